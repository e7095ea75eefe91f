//! The payload of a record of the log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::engine::batch(data);
});
