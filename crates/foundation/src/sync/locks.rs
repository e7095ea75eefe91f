//! The locks and signals: those of `std::sync`, without poison; under `--cfg shuttle` those of its
//! scheduler, which have the same interface.
//!
//! Invariants:
//! 1. Locks are not poisoned: a panic is an error of the call that met it, and each holder keeps
//!    what it guards whole at every step that can fail.
//! 2. A lock is a number in memory and a wait of the kernel on its address. No table of the
//!    process stands behind it, so a child that was forked in the middle of any call can make and
//!    use locks of its own. `parking_lot` has such a table: what waits in it is on the stacks of
//!    threads that the child does not have (`docs/decisions/0076-locks-without-a-table.md`).
//! 3. A guard holds its lock whenever its owner can look at it, also when a panic passes.

#[cfg(shuttle)]
use shuttle::sync as base;
use std::fmt;
use std::ops::{Deref, DerefMut};
#[cfg(not(shuttle))]
use std::sync as base;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// The right to read what is in a [`RwLock`].
pub type RwLockReadGuard<'a, T> = base::RwLockReadGuard<'a, T>;
/// The right to change what is in a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = base::RwLockWriteGuard<'a, T>;

/// A lock for one thread at a time.
#[derive(Default)]
pub struct Mutex<T> {
    inner: base::Mutex<T>,
}

impl<T> Mutex<T> {
    /// An open lock around `value`.
    #[track_caller]
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
    /// Opens the lock while `body` runs. Takes it again also where `body` panics.
    pub fn unlocked<U>(guard: &mut Self, body: impl FnOnce() -> U) -> U {
        guard.held = None;
        let _locks_again = LocksAgain(guard);
        body()
    }
}

/// Takes a guard's lock again at its end.
struct LocksAgain<'a, 'b, T>(&'a mut MutexGuard<'b, T>);

impl<T> Drop for LocksAgain<'_, '_, T> {
    fn drop(&mut self) {
        self.0.held = self.0.mutex.lock().held.take();
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

/// Whether a wait ended because its limit was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// The limit was over.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A signal to wait for.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: base::Condvar,
}

impl Condvar {
    /// A signal for which no thread waits.
    #[track_caller]
    pub const fn new() -> Self {
        Self { inner: base::Condvar::new() }
    }

    /// Opens the lock, waits for a signal, and takes the lock again. May end without a signal.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        guard.held = Some(self.inner.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`Condvar::wait`], for `limit` at most.
    #[cfg(not(shuttle))]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> WaitTimeoutResult {
        let held = guard.held.take().expect(HELD);
        let waited = self.inner.wait_timeout(held, limit);
        let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
        WaitTimeoutResult(result.timed_out())
    }

    /// As [`Condvar::wait`], but for a while that may be over at once: the scheduler knows no
    /// clock. The lock is opened, other threads may run, and the caller must be content with what
    /// it then finds.
    #[cfg(shuttle)]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        MutexGuard::unlocked(guard, shuttle::thread::yield_now);
        WaitTimeoutResult(true)
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
    #[track_caller]
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

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::threads::catch_panic;

    #[test]
    fn a_panic_leaves_a_lock_usable_and_its_guard_holding_it() {
        let mutex = Mutex::new(1);
        let mut guard = mutex.lock();
        let met = catch_panic(|| {
            MutexGuard::unlocked(&mut guard, || {
                *mutex.lock() += 1;
                panic!("while the lock is open");
            });
        });
        assert!(met.is_err() && mutex.try_lock().is_none(), "the guard has its lock again");
        *guard += 1;
        drop(guard);
        assert!(
            catch_panic(|| {
                let _guard = mutex.lock();
                panic!("while the lock is held");
            })
            .is_err()
        );
        assert_eq!(mutex.try_lock().map(|guard| *guard), Some(3));
        assert_eq!(mutex.into_inner(), 3);
    }

    #[test]
    fn a_wait_ends_with_a_signal_or_with_its_limit() {
        let (mutex, changed) = (Mutex::new(false), Condvar::new());
        let mut guard = mutex.lock();
        assert!(changed.wait_for(&mut guard, Duration::ZERO).timed_out());
        assert!(mutex.try_lock().is_none(), "the lock is held after a wait");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *mutex.lock() = true;
                changed.notify_all();
            });
            while !*guard {
                changed.wait(&mut guard);
            }
        });
    }
}
