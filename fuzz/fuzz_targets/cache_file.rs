//! A sealed file of a cache, checksums as they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::cache_file(data);
});
