//! The list of a cache's lives behind its checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::sealed_cache_lives(data);
});
