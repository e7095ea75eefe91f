//! A table behind the checksums of its blocks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::table::sealed_table(data);
});
