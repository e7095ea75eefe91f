//! A region of persistent memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::pmem::region(data);
});
