//! A URI that puts a host's directories over tiers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::host_uri(data);
});
