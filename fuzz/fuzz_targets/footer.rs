//! The last page of a table, its checksum made right.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::table::footer(data);
});
