//! The allocator of the programs, and what it is told so that `memory` holds for a whole process.
//!
//! A store counts what it uses. What a process has resident is more where the allocator rounds up
//! to huge pages, of which a whole unit of 2 MiB is resident for the first byte, and where it keeps
//! what was freed. mimalloc does both by default: it asks for huge pages, and gives memory back a
//! second after it was freed. [`give_back_early`] ends both; decision page
//! `docs/decisions/0112-memory-of-a-process.md` has what that brings and costs.
//!
//! ```text
//!   main of a program ── #[global_allocator] Allocator
//!                     └─ give_back_early()      first of all, once
//! ```
//! 1. A library of ours never calls this: a program chooses its allocator.
//! 2. What the user says by mimalloc's own variables stands.
//!
//! Threads: [`give_back_early`] before there is a second one.

/// To be the `#[global_allocator]` of a program.
pub use mimalloc::MiMalloc as Allocator;
use std::ffi::{c_int, c_long};

// Of mimalloc.h; the crate that links the library has them behind a feature, with a dependency.
unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Freed memory goes back to the system once it was free for so many milliseconds.
const PURGE_DELAY_MS: c_long = 100;

/// `mi_option_purge_delay`.
const PURGE_DELAY: c_int = 15;

/// Has the process give memory back early, and has no huge pages for it: see the module's header.
/// Where the system refuses, the process has more resident, and works as well.
pub fn give_back_early() {
    // SAFETY: it writes a number of the allocator's, which every thread reads as it frees. The
    // caller has no second thread yet.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) };
    // An older kernel does not know the call.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    /// What `PURGE_DELAY` says now.
    fn delay_ms() -> c_long {
        // SAFETY: it reads a number, and no other thread sets it.
        unsafe { mi_option_get(PURGE_DELAY) }
    }

    #[test]
    fn memory_goes_back_early_and_there_are_no_huge_pages() {
        assert_eq!(delay_ms(), 1000, "another number has the delay in this mimalloc");
        give_back_early();
        assert_eq!(delay_ms(), PURGE_DELAY_MS);
        assert!(rustix::thread::transparent_huge_pages_are_disabled().unwrap());
    }
}
