//! Settings as TOML.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::engine::settings(data);
});
