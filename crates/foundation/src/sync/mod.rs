//! The door for what threads share: locks, signals, atomics, and the pointer that readers load.
//!
//! The crates above take these types from here and from nowhere else (`cargo xtask tidy` checks
//! it), because what is behind the door depends on how the store is compiled:
//!
//! ```text
//!   ordinary        std::sync, its locks without poison (`locks.rs`), and arc_swap
//!   --cfg shuttle   the same types over the scheduler of `shuttle` (`locks.rs`, `scheduled.rs`),
//!                   which decides at each of them which thread goes on, and repeats a schedule
//!                   from its seed
//!   --cfg loom      the atomics of `loom`, which tries every order that the memory model allows;
//!                   only this crate is compiled so
//! ```
//! They are compiler flags and not features, so that no dependency can switch them on for another.
//! `docs/decisions/0024-schedules.md` says why, and what is left out.
//!
//! Invariants:
//! 1. The three have one interface: code above compiles unchanged.
//! 2. Under the scheduler every operation but a read through a guard is a point at which another
//!    thread may run; nothing blocks a thread of the operating system.
//! 3. Of these types only `Arc`, `Weak` and `Ordering` are the same in all three.

mod locks;
#[cfg(shuttle)]
mod scheduled;
#[cfg(shuttle)]
pub mod schedules;

#[cfg(not(shuttle))]
mod ordinary {
    pub use arc_swap::{ArcSwap, Guard as ArcSwapGuard};
    pub use std::sync::OnceLock;

    /// Atomic numbers and flags.
    pub mod atomic {
        #[cfg(loom)]
        pub use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
        pub use std::sync::atomic::Ordering;
        #[cfg(not(loom))]
        pub use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
    }
}

pub use locks::*;
#[cfg(not(shuttle))]
pub use ordinary::*;
#[cfg(shuttle)]
pub use scheduled::*;
pub use std::sync::{Arc, Weak};
