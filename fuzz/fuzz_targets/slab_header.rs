//! The header page of a slab.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::slab::slab_header(data);
});
