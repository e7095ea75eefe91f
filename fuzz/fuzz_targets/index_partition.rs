//! A raw index partition, both ways.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::table::index_partition(data);
});
