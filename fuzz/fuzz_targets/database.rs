//! A whole database driven by bytes, against a model.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::database::database(data);
});
