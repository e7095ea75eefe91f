//! The file `PROFILE` of a tier, checksum as it comes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::tier_profile(data);
});
