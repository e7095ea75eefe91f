//! The file `PROFILE` of a tier behind its checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::sealed_tier_profile(data);
});
