//! Names of drivers and emulated devices.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::driver_name(data);
});
