//! Variable-length integers and byte strings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::foundation::coding(data);
});
