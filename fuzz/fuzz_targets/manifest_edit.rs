//! The payload of a frame of the manifest.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::engine::manifest_edit(data);
});
