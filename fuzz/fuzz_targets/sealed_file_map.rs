//! A file map behind its checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::sealed_file_map(data);
});
