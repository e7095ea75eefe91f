//! A change of a slab's live slots.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::slab::slab_change(data);
});
