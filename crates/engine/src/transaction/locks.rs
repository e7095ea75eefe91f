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
use super::tally::{Tally, TransactionStats};
use crate::batch::BatchReader;
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use thermocline_device::OwnerProcess;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::{Clock, Duration};
use thermocline_table::key_hash;

/// Parts that are locked one by one, so that threads with other keys do not meet.
const STRIPES: usize = 64;

/// With the number of those that are open: what was written without locks is published, and since
/// then one was always open.
const SETTLED: u64 = 1 << 63;

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

/// How long one call waits for locks, however many it takes.
#[derive(Debug)]
pub(crate) struct Patience {
    timeout: Duration,
    /// When it ends: from the first wait on, unless it began before.
    until_ns: Option<u64>,
}

impl Patience {
    /// It begins with the first wait.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, until_ns: None }
    }

    /// It began at `since_ns`.
    pub fn since(since_ns: u64, timeout: Duration) -> Self {
        let timeout_ns = u64::try_from(timeout.0.as_nanos()).unwrap_or(u64::MAX);
        Self { timeout, until_ns: Some(since_ns.saturating_add(timeout_ns)) }
    }

    /// How long a wait may take that begins now.
    fn left(&mut self, now_ns: u64) -> Duration {
        if self.until_ns.is_none() {
            *self = Self::since(now_ns, self.timeout);
        }
        let until_ns = self.until_ns.unwrap_or(now_ns);
        Duration(std::time::Duration::from_nanos(until_ns.saturating_sub(now_ns)))
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Locks {
    clock: Arc<dyn Clock>,
    stripes: Vec<Mutex<Stripe>>,
    waits: Mutex<Waits>,
    /// Pessimistic transactions that are open, and the bit [`SETTLED`].
    open: AtomicU64,
    last_owner: AtomicU64,
    /// What callers heard of locks and conflicts.
    pub tally: Tally,
    /// In a forked child another thread of its parent may hold a stripe for ever; nothing is let go
    /// there.
    process: OwnerProcess,
}

impl Locks {
    /// No locks; `clock` says how long an owner has waited.
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self {
            clock: Arc::clone(clock),
            stripes,
            waits: Mutex::default(),
            open: 0.into(),
            last_owner: 0.into(),
            tally: Tally::default(),
            process: OwnerProcess::default(),
        }
    }

    /// See [`TransactionStats`].
    pub fn stats(&self) -> TransactionStats {
        self.tally.stats(self.open.load(Ordering::Relaxed) & !SETTLED)
    }

    /// A pessimistic transaction is open: each write needs the locks of its keys.
    pub fn are_needed(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// A pessimistic transaction opens. From the next group of writes on, all have locks.
    /// What was written without may still be on its way, unless it [`Opened::is_settled`].
    pub fn open(self: &Arc<Self>) -> Opened {
        let before = self.open.fetch_add(1, Ordering::AcqRel);
        Opened { locks: Arc::clone(self), is_settled: before & SETTLED != 0 }
    }

    /// No locks yet, of an owner of its own.
    pub fn owner(self: &Arc<Self>) -> HeldLocks {
        let owner = Owner(self.last_owner.fetch_add(1, Ordering::Relaxed) + 1);
        HeldLocks { locks: Arc::clone(self), owner, keys: BTreeSet::new() }
    }

    /// The locks of the keys of an encoded batch, taken in their order.
    pub fn of_batch(
        self: &Arc<Self>,
        encoded: &Bytes,
        patience: &mut Patience,
    ) -> Result<HeldLocks> {
        let mut keys = BTreeSet::new();
        for record in BatchReader::new(encoded)? {
            let record = record?;
            let (at, len) = (record.key_at as usize, record.key_len as usize);
            keys.insert(encoded.slice(at..at + len));
        }
        let mut locks = self.owner();
        locks.take_all(&keys, patience)?;
        Ok(locks)
    }

    fn stripe(&self, key: &[u8]) -> &Mutex<Stripe> {
        &self.stripes[key_hash(key) as usize % STRIPES]
    }

    fn acquire(&self, owner: Owner, key: &Bytes, patience: &mut Patience) -> Result<()> {
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
        let left = patience.left(self.clock.now_ns());
        if waiter.wait(left) || !self.leave(key, &waiter) {
            return Ok(());
        }
        Err(timed_out(key, patience.timeout))
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
pub(crate) struct Opened {
    locks: Arc<Locks>,
    is_settled: bool,
}

impl Opened {
    /// What was written without locks is published: another transaction has seen to that, and has
    /// had no gap after it in which none was open.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// What was written without locks is published now. Those that open while this one or another
    /// is open find it so.
    pub fn settled(&mut self) {
        self.is_settled = true;
        self.locks.open.fetch_or(SETTLED, Ordering::AcqRel);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let less = |open: u64| Some(if open & !SETTLED == 1 { 0 } else { open - 1 });
        let updated = self.locks.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        debug_assert!(updated.is_ok(), "the update has a value for each");
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
    /// once where its holder waits for this owner, of kind `LockTimeout` where `patience` ends.
    pub fn take(&mut self, key: &[u8], patience: &mut Patience) -> Result<bool> {
        if self.keys.contains(key) {
            return Ok(false);
        }
        let key = Bytes::copy_from_slice(key);
        self.locks.acquire(self.owner, &key, patience)?;
        Ok(self.keys.insert(key))
    }

    /// Takes the locks of all `keys`, in their order, for a write that has no others. Where that
    /// closes a circle it lets go of all and begins again: others go on meanwhile.
    pub fn take_all(&mut self, keys: &BTreeSet<Bytes>, patience: &mut Patience) -> Result<()> {
        loop {
            let taken = keys.iter().try_for_each(|key| self.take(key, patience).map(drop));
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
    use thermocline_foundation::{SystemClock, threads};

    /// Far longer than any test waits.
    const LONG: Duration = Duration::ms(60_000);
    const NO_WAIT: Duration = Duration::ms(0);

    fn locks() -> Arc<Locks> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Arc::new(Locks::new(&clock))
    }

    #[test]
    fn a_lock_is_its_holders_until_that_lets_go() {
        let locks = locks();
        let (mut one, mut two) = (locks.owner(), locks.owner());
        assert!(one.take(b"a", &mut Patience::new(NO_WAIT)).unwrap());
        assert!(!one.take(b"a", &mut Patience::new(NO_WAIT)).unwrap(), "it has it");
        let error = two.take(b"a", &mut Patience::new(NO_WAIT)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockTimeout);
        assert!(error.to_string().ends_with("run this again, or end the other"), "{error}");
        two.take(b"b", &mut Patience::new(NO_WAIT)).unwrap();
        drop(one);
        two.take(b"a", &mut Patience::new(NO_WAIT)).unwrap();
        drop(two);
        assert!(locks.stripes.iter().all(|stripe| stripe.lock().is_empty()), "nothing is left");
        assert!(locks.waits.lock().is_empty(), "a wait that timed out is none");
    }

    #[test]
    fn a_transaction_waits_for_writes_without_locks_unless_one_has_been_open_since() {
        let locks = locks();
        let (mut first, early) = (locks.open(), locks.open());
        assert!(!first.is_settled() && !early.is_settled(), "the wait is not over");
        first.settled();
        let second = locks.open();
        assert!(second.is_settled());
        drop((first, early));
        let third = locks.open();
        assert!(third.is_settled(), "one was always open");
        assert!(locks.are_needed());
        drop((second, third));
        assert!(!locks.are_needed());
        assert!(!locks.open().is_settled(), "none was open before it");
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
        let locks = locks();
        let (mut one, mut two, mut three) = (locks.owner(), locks.owner(), locks.owner());
        one.take(b"a", &mut Patience::new(NO_WAIT)).unwrap();
        two.take(b"b", &mut Patience::new(NO_WAIT)).unwrap();
        three.take(b"c", &mut Patience::new(NO_WAIT)).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let waits = |mut owner: HeldLocks, key: &'static [u8]| {
            let told = Arc::clone(&told);
            let body = move || {
                let taken = owner.take(key, &mut Patience::new(LONG));
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
        let error = three.take(b"a", &mut Patience::new(LONG)).unwrap_err();
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
        let locks = locks();
        let mut holder = locks.owner();
        holder.take(b"a", &mut Patience::new(NO_WAIT)).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..4)
            .map(|number| {
                let (mut owner, order) = (locks.owner(), Arc::clone(&order));
                let body = move || {
                    owner.take(b"a", &mut Patience::new(LONG)).unwrap();
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
