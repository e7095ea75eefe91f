//! Texts of links in a host's directory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::link_text(data);
});
