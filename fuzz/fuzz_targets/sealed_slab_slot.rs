//! The record in a slot of a slab, behind its checksum.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::slab::sealed_slab_slot(data);
});
