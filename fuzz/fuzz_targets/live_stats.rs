//! Figures of an open store as JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::engine::live_stats(data);
});
