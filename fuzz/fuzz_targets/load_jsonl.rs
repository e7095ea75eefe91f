//! JSON lines for `load`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::formats::jsonl(data);
});
