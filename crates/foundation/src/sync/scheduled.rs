//! The shared types over the scheduler of `shuttle`, shaped as those of `ordinary.rs`.
//!
//! Threads of a test are then coroutines of one thread, and one of them runs at a time. Each
//! operation here asks the scheduler who goes on. A lock that nobody can get any more is a
//! deadlock, which the scheduler reports with the schedule that leads to it.
//!
//! Invariants:
//! 1. Locks are not poisoned, as the ordinary ones are not: a panic fails the whole test anyway.
//! 2. A wait for a signal ends with one, or, where it has a limit, at any time: the scheduler knows
//!    no clock, so a limit may always be over.
//! 3. A read of [`OnceLock`] and [`ArcSwap`] is a point of scheduling, as a load of an atomic is.
//!
//! Compiled with `--cfg shuttle` only, for tests.

use shuttle::sync as base;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Atomic numbers and flags; every order is as strong as the strongest.
pub mod atomic {
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
    pub use std::sync::atomic::Ordering;
}

/// A lock for one.
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
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { mutex: self, held: Some(held) }
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = self.inner.try_lock().ok()?;
        Some(MutexGuard { mutex: self, held: Some(held) })
    }

    /// What is inside, without locking: nobody else can have it.
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

    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
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
    /// A signal that nobody waits for.
    #[track_caller]
    pub const fn new() -> Self {
        Self { inner: base::Condvar::new() }
    }

    /// Opens the lock, waits for a signal, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        let held = self.inner.wait(held).unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(held);
    }

    /// As [`Condvar::wait`], but for a while that may be over at once: the lock is opened, others
    /// may run, and the caller must be content with what it then finds.
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _limit: Duration,
    ) -> WaitTimeoutResult {
        MutexGuard::unlocked(guard, shuttle::thread::yield_now);
        WaitTimeoutResult(true)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T> {
    inner: base::RwLock<T>,
}

/// The right to read what is in a [`RwLock`].
pub type RwLockReadGuard<'a, T> = base::RwLockReadGuard<'a, T>;
/// The right to change what is in a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = base::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    /// An open lock around `value`.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self { inner: base::RwLock::new(value) }
    }

    /// Waits for the right to read.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the right to change.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
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
        // Does not wait for one who makes the value, as the original does not.
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
