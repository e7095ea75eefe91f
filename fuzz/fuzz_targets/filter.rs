//! A filter partition and the hashes in it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::table::filter(data);
});
