//! Locks of keys, for pessimistic transactions and, while one is open, for all other writes.
//!
//! ```text
//!   stripe of a key's hash    key -> holder, line of those that wait, first come first served
//!   one graph of waits        which owner waits for which: changed only with a stripe's lock held
//! ```
//! Invariants:
//! 1. A key without a lock is in no stripe.
//! 2. The graph says of each owner in line which owner holds its key, exactly: both are changed
//!    together, under the stripe's lock and then the graph's.
//! 3. A lock goes to the first in line, so none waits for ever while others come and go.
//! 4. A write without locks is not written while a pessimistic transaction is open: the leader of
//!    the writes asks [`Locks::are_needed`] at the turnstile and sends such a write back.
//!
//! Threads: any; each owner is one thread at a time.

use super::deadlock::{Owner, Waits, closed_circle};
use crate::batch::BatchReader;
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use thermocline_device::OwnerProcess;
use thermocline_foundation::Duration;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_table::key_hash;

/// Parts that are locked one by one, so that threads with other keys do not meet.
const STRIPES: usize = 64;

/// A lock that is held.
#[derive(Debug)]
struct Lock {
    holder: Owner,
    line: VecDeque<Arc<Waiter>>,
}

/// An owner in line.
#[derive(Debug)]
struct Waiter {
    owner: Owner,
    has_lock: Mutex<bool>,
    changed: Condvar,
}

impl Waiter {
    /// Waits to be given the lock; says no after `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let mut has_lock = self.has_lock.lock();
        while !*has_lock {
            if self.changed.wait_for(&mut has_lock, timeout.0).timed_out() {
                return *has_lock;
            }
        }
        true
    }

    fn give(&self) {
        *self.has_lock.lock() = true;
        self.changed.notify_one();
    }
}

type Stripe = BTreeMap<Bytes, Lock>;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Locks {
    stripes: Vec<Mutex<Stripe>>,
    waits: Mutex<Waits>,
    /// Pessimistic transactions that are open.
    open: AtomicU64,
    last_owner: AtomicU64,
    /// In a forked child another thread of its parent may hold a stripe for ever; nothing is let go
    /// there.
    process: OwnerProcess,
}

impl Default for Locks {
    fn default() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self {
            stripes,
            waits: Mutex::default(),
            open: 0.into(),
            last_owner: 0.into(),
            process: OwnerProcess::default(),
        }
    }
}

impl Locks {
    /// A pessimistic transaction is open: each write needs the locks of its keys.
    pub fn are_needed(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// A pessimistic transaction opens. From the next group of writes on, all have locks.
    pub fn open(self: &Arc<Self>) -> Opened {
        self.open.fetch_add(1, Ordering::AcqRel);
        Opened(Arc::clone(self))
    }

    /// No locks yet, of an owner of its own.
    pub fn owner(self: &Arc<Self>) -> HeldLocks {
        let owner = Owner(self.last_owner.fetch_add(1, Ordering::Relaxed) + 1);
        HeldLocks { locks: Arc::clone(self), owner, keys: BTreeSet::new() }
    }

    /// The locks of the keys of an encoded batch, taken in their order.
    pub fn of_batch(self: &Arc<Self>, encoded: &Bytes, timeout: Duration) -> Result<HeldLocks> {
        let mut keys = BTreeSet::new();
        for record in BatchReader::new(encoded)? {
            let record = record?;
            let (at, len) = (record.key_at as usize, record.key_len as usize);
            keys.insert(encoded.slice(at..at + len));
        }
        let mut locks = self.owner();
        locks.take_all(&keys, timeout)?;
        Ok(locks)
    }

    fn stripe(&self, key: &[u8]) -> &Mutex<Stripe> {
        &self.stripes[key_hash(key) as usize % STRIPES]
    }

    fn acquire(&self, owner: Owner, key: &Bytes, timeout: Duration) -> Result<()> {
        let mut stripe = self.stripe(key).lock();
        let Some(lock) = stripe.get_mut(key) else {
            stripe.insert(key.clone(), Lock { holder: owner, line: VecDeque::new() });
            return Ok(());
        };
        let mut waits = self.waits.lock();
        if let Some(owners) = closed_circle(&waits, owner, lock.holder) {
            return Err(deadlock(key, owners));
        }
        waits.insert(owner, lock.holder);
        drop(waits);
        let (has_lock, changed) = (Mutex::new(false), Condvar::new());
        let waiter = Arc::new(Waiter { owner, has_lock, changed });
        lock.line.push_back(Arc::clone(&waiter));
        drop(stripe);
        if waiter.wait(timeout) || !self.leave(key, &waiter) {
            return Ok(());
        }
        Err(timed_out(key, timeout))
    }

    /// Leaves the line; says no where the lock was given to the waiter just before.
    fn leave(&self, key: &[u8], waiter: &Arc<Waiter>) -> bool {
        let mut stripe = self.stripe(key).lock();
        let Some(lock) = stripe.get_mut(key).filter(|lock| lock.holder != waiter.owner) else {
            return false;
        };
        lock.line.retain(|other| !Arc::ptr_eq(other, waiter));
        self.waits.lock().remove(&waiter.owner);
        true
    }

    /// Gives a lock to the first in line.
    fn release(&self, key: &[u8]) {
        let mut stripe = self.stripe(key).lock();
        let Some(lock) = stripe.get_mut(key) else { return };
        let Some(next) = lock.line.pop_front() else {
            stripe.remove(key);
            return;
        };
        lock.holder = next.owner;
        let mut waits = self.waits.lock();
        waits.remove(&next.owner);
        waits.extend(lock.line.iter().map(|waiter| (waiter.owner, next.owner)));
        drop(waits);
        next.give();
    }
}

/// A pessimistic transaction is open while this lives.
#[derive(Debug)]
pub(crate) struct Opened(Arc<Locks>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The locks of one owner. Dropping it lets go of them.
#[derive(Debug)]
pub(crate) struct HeldLocks {
    locks: Arc<Locks>,
    owner: Owner,
    keys: BTreeSet<Bytes>,
}

impl HeldLocks {
    /// Takes the lock of `key`; says no where it is held already. An error of kind `Deadlock` at
    /// once where its holder waits for this owner, of kind `LockTimeout` after `timeout`.
    pub fn take(&mut self, key: &[u8], timeout: Duration) -> Result<bool> {
        if self.keys.contains(key) {
            return Ok(false);
        }
        let key = Bytes::copy_from_slice(key);
        self.locks.acquire(self.owner, &key, timeout)?;
        Ok(self.keys.insert(key))
    }

    /// Takes the locks of all `keys`, in their order, for a write that has no others. Where that
    /// closes a circle it lets go of all and begins again: others go on meanwhile.
    pub fn take_all(&mut self, keys: &BTreeSet<Bytes>, timeout: Duration) -> Result<()> {
        loop {
            let taken = keys.iter().try_for_each(|key| self.take(key, timeout).map(drop));
            match taken {
                Err(error) if error.kind() == ErrorKind::Deadlock => self.release_all(),
                taken => return taken,
            }
        }
    }

    /// Lets go of all.
    pub fn release_all(&mut self) {
        for key in std::mem::take(&mut self.keys) {
            self.locks.release(&key);
        }
    }
}

impl Drop for HeldLocks {
    fn drop(&mut self) {
        if self.locks.process.is_current() {
            self.release_all();
        }
    }
}

fn deadlock(key: &[u8], owners: usize) -> Error {
    let key = key.escape_ascii();
    let text = format!(
        "deadlock: with a wait for the lock of key {key}, {owners} transactions or writes would \
         wait for each other; drop this transaction and run it again"
    );
    Error::new(ErrorKind::Deadlock, text)
}

fn timed_out(key: &[u8], timeout: Duration) -> Error {
    let key = key.escape_ascii();
    let text = format!(
        "another transaction holds the lock of key {key}, for longer than the lock timeout of \
         {timeout}; run this again, or end the other"
    );
    Error::new(ErrorKind::LockTimeout, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::{Clock, SystemClock, threads};

    /// Far longer than any test waits.
    const LONG: Duration = Duration::ms(60_000);
    const NO_WAIT: Duration = Duration::ms(0);

    #[test]
    fn a_lock_is_its_holders_until_that_lets_go() {
        let locks = Arc::new(Locks::default());
        let (mut one, mut two) = (locks.owner(), locks.owner());
        assert!(one.take(b"a", NO_WAIT).unwrap());
        assert!(!one.take(b"a", NO_WAIT).unwrap(), "it has it");
        let error = two.take(b"a", NO_WAIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockTimeout);
        assert!(error.to_string().ends_with("run this again, or end the other"), "{error}");
        two.take(b"b", NO_WAIT).unwrap();
        drop(one);
        two.take(b"a", NO_WAIT).unwrap();
        drop(two);
        assert!(locks.stripes.iter().all(|stripe| stripe.lock().is_empty()), "nothing is left");
        assert!(locks.waits.lock().is_empty(), "a wait that timed out is none");
    }

    /// Waits until so many owners are in line.
    fn until_waiting(locks: &Locks, owners: usize) {
        crate::support::until("owners in line", || {
            let are_in_line = locks.waits.lock().len() == owners;
            if !are_in_line {
                // Their threads may wait for a processor.
                SystemClock::new().sleep(Duration::ms(1).0);
            }
            are_in_line
        });
    }

    #[test]
    fn the_owner_that_closes_a_circle_is_told_at_once_and_the_others_go_on() {
        let locks = Arc::new(Locks::default());
        let (mut one, mut two, mut three) = (locks.owner(), locks.owner(), locks.owner());
        one.take(b"a", NO_WAIT).unwrap();
        two.take(b"b", NO_WAIT).unwrap();
        three.take(b"c", NO_WAIT).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let waits = |mut owner: HeldLocks, key: &'static [u8]| {
            let told = Arc::clone(&told);
            let body = move || {
                let taken = owner.take(key, LONG);
                told.lock().push(key);
                drop(owner);
                taken
            };
            threads::spawn("test", body).unwrap()
        };
        let first = waits(one, b"b");
        until_waiting(&locks, 1);
        let second = waits(two, b"c");
        until_waiting(&locks, 2);
        let error = three.take(b"a", LONG).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock);
        assert!(error.to_string().contains("3 transactions"), "{error}");
        assert!(error.to_string().ends_with("drop this transaction and run it again"), "{error}");
        drop(three);
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
        assert_eq!(*told.lock(), [b"c", b"b"], "each as its turn came");
        assert!(locks.waits.lock().is_empty());
    }

    #[test]
    fn those_in_line_get_the_lock_in_the_order_in_which_they_came() {
        let locks = Arc::new(Locks::default());
        let mut holder = locks.owner();
        holder.take(b"a", NO_WAIT).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..4)
            .map(|number| {
                let (mut owner, order) = (locks.owner(), Arc::clone(&order));
                let body = move || {
                    owner.take(b"a", LONG).unwrap();
                    order.lock().push(number);
                };
                let waiter = threads::spawn("test", body).unwrap();
                until_waiting(&locks, number + 1);
                waiter
            })
            .collect();
        drop(holder);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(*order.lock(), [0, 1, 2, 3]);
    }
}
