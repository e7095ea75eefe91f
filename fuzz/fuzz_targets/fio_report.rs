//! A report of fio that becomes a profile.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    thermocline_fuzz::device::fio_report(data);
});
