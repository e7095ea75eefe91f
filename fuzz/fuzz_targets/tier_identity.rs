//! A tier's identity, checksums as they come.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::tier_identity(data);
});
