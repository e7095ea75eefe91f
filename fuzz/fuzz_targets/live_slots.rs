//! The live slots of all slabs.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::slab::live_slots(data);
});
