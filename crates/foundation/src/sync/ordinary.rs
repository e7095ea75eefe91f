//! The shared types as products have them: `std::sync`'s locks and `arc_swap`'s pointer.
//!
//! Invariants:
//! 1. Locks are not poisoned: a panic is an error of the call that met it, and each holder keeps
//!    what it guards whole at every step that can fail.
//! 2. A lock is a number in memory and a wait of the kernel on its address. No table of the
//!    process stands behind it, so a child that was forked in the middle of any call can make and
//!    use locks of its own. `parking_lot` has such a table: what waits in it is on the stacks of
//!    threads that the child does not have (`docs/decisions/0076-locks-without-a-table.md`).

pub use arc_swap::{ArcSwap, Guard as ArcSwapGuard};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync as base;
pub use std::sync::OnceLock;
use std::sync::{PoisonError, TryLockError};
pub use std::sync::{RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
use std::time::Duration;

/// Atomic numbers and flags.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
    pub use std::sync::atomic::Ordering;
    #[cfg(not(loom))]
    pub use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
}

/// A lock for one thread at a time.
#[derive(Default)]
pub struct Mutex<T> {
    inner: base::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: base::Mutex::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { mutex: self, held: Some(held) }
    }

    /// The lock, if no thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.inner.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { mutex: self, held: Some(held) })
    }

    /// What is inside, without locking: no other thread can have it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was inside.
    pub fn into_inner(self) -> T {
        self.inner.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The right to what is in a [`Mutex`].
#[must_use = "the lock is open again once its guard is dropped"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// None only while a call below has given the lock away.
    held: Option<base::MutexGuard<'a, T>>,
}

impl<T> MutexGuard<'_, T> {
    /// Opens the lock while `body` runs.
    pub fn unlocked<U>(guard: &mut Self, body: impl FnOnce() -> U) -> U {
        guard.held = None;
        let result = body();
        guard.held = guard.mutex.lock().held.take();
        result
    }
}

const HELD: &str = "a guard holds its lock outside of waits";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

/// A signal to wait for.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: base::Condvar,
}

impl Condvar {
    /// A signal for which no thread waits.
    pub const fn new() -> Self {
        Self { inner: base::Condvar::new() }
    }

    /// Opens the lock, waits for a signal, and takes the lock again. May end without a signal.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        guard.held = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`Condvar::wait`], for `limit` at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        let held = guard.held.take().expect(HELD);
        let waited = self.inner.wait_timeout(held, limit);
        let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
        result
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T> {
    inner: base::RwLock<T>,
}

impl<T> RwLock<T> {
    /// An open lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: base::RwLock::new(value) }
    }

    /// Waits for the right to read.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to change.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
