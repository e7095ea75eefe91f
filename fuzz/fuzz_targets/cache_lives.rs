//! The list of a cache's lives, checksum as it comes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::cache_lives(data);
});
