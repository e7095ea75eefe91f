//! The value of an index entry.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::table::index_entry(data);
});
