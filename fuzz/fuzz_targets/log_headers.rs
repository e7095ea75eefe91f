//! The headers of a log's page and record.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::log::log_headers(data);
});
