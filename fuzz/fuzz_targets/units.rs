//! Texts of sizes, durations and identities.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::foundation::units(data);
});
