//! What is behind the door under the scheduler of `shuttle`, beside the locks of `locks.rs`.
//!
//! Threads of a test are then coroutines of one thread, and one of them runs at a time. Each
//! operation here asks the scheduler which thread goes on. A lock that no thread can get any more
//! is a deadlock, which the scheduler reports with the schedule that leads to it.
//!
//! Invariants:
//! 1. A wait for a signal ends with one, or, where it has a limit, at any time: the scheduler knows
//!    no clock, so a limit may always be over.
//! 2. A read of [`OnceLock`] and [`ArcSwap`] is a point of scheduling, as a load of an atomic is.
//!
//! Compiled with `--cfg shuttle` only, for tests.

use shuttle::sync as base;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError};

/// Atomic numbers and flags; every order is as strong as the strongest.
pub mod atomic {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
    pub use std::sync::atomic::Ordering;
}

/// A value that is set once.
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    /// Taken by each call: where the scheduler may choose another thread, and what keeps two from
    /// making the value at once.
    turn: base::Mutex<()>,
}

impl<T> OnceLock<T> {
    /// Nothing, so far.
    #[track_caller]
    pub const fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), turn: base::Mutex::new(()) }
    }

    /// The value, once it is set.
    pub fn get(&self) -> Option<&T> {
        // Does not wait for a thread that makes the value, as the original does not.
        drop(self.turn.try_lock());
        self.value.get()
    }

    /// Sets the value, or gives it back if there is one.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _turn = self.turn.lock();
        self.value.set(value)
    }

    /// The value, made by `make` if there was none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let _turn = self.turn.lock();
        self.value.get_or_init(make)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A shared pointer that is replaced while others read what it points to.
pub struct ArcSwap<T> {
    current: base::Mutex<Arc<T>>,
}

/// What an [`ArcSwap`] pointed to when it was asked. Holds it for as long as it lives.
#[derive(Debug)]
pub struct ArcSwapGuard<P>(P);

impl<P> ArcSwapGuard<P> {
    /// A guard of what the caller holds.
    pub fn from_inner(inner: P) -> Self {
        Self(inner)
    }
}

impl<P> Deref for ArcSwapGuard<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

impl<T> ArcSwap<T> {
    /// Points to `value`.
    #[track_caller]
    pub fn from_pointee(value: T) -> Self {
        Self { current: base::Mutex::new(Arc::new(value)) }
    }

    /// What it points to now.
    pub fn load(&self) -> ArcSwapGuard<Arc<T>> {
        ArcSwapGuard(self.load_full())
    }

    /// As [`ArcSwap::load`], for keeping.
    pub fn load_full(&self) -> Arc<T> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Points to `value` from now on.
    pub fn store(&self, value: Arc<T>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, value);
        drop(current);
        // Its end may take locks of its own.
        drop(before);
    }
}

impl<T: fmt::Debug> fmt::Debug for ArcSwap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current.fmt(f)
    }
}
