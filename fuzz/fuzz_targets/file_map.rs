//! A file map, checksums as they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::file_map(data);
});
