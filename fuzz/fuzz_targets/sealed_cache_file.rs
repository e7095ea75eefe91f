//! A sealed file of a cache behind its checksums.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::sealed_cache_file(data);
});
