//! A tier on the command line.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::engine::tier(data);
});
