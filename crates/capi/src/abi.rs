//! The version of the interface.

/// The version of this interface that the header describes. It goes up by one with every release
/// that adds to the interface; what is there stays.
pub const THERMOCLINE_ABI_VERSION: u32 = 1;

/// The version of the interface that the library in use has; a program was compiled with
/// THERMOCLINE_ABI_VERSION. A library with a higher one has all that the program knows.
#[unsafe(no_mangle)]
pub extern "C" fn thermocline_abi_version() -> u32 {
    THERMOCLINE_ABI_VERSION
}
