//! A log behind the checksums of its sectors and records.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::log::sealed_log(data);
});
