//! The record in a slot of a slab.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::slab::slab_slot(data);
});
