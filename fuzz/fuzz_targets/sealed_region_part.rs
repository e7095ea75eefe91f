//! A part of a region of persistent memory, behind its checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::pmem::sealed_region_part(data);
});
