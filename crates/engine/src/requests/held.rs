//! What counts against the bounds of the queue, and the tasks that wait for room.
//!
//! ```text
//!   all          every request that is not answered       <= bounds, for those that come
//!   with locks   of them, commits that hold their locks   <= bounds, for commits that hold theirs
//! ```
//! Invariants:
//! 1. Writes that wait for the locks of a transaction never keep that transaction from its commit:
//!    a commit that holds its locks counts against others of its kind alone, none of which waits.
//! 2. At least as many tasks are woken as there are places, and one that found room or leaves wakes
//!    the next where there is more: so none sleeps beside a place that is free.
//!
//! Threads: under the queue's lock.

use crate::settings::Settings;
use std::collections::BTreeMap;
use std::fmt;
use std::task::Waker;
use thermocline_foundation::ByteSize;

/// Requests, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    requests: usize,
    bytes: u64,
}

impl Load {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
    }

    fn take_off(&mut self, other: Self) {
        self.requests -= other.requests;
        self.bytes -= other.bytes;
    }

    /// How many more requests may come, of which one may go beyond the bytes.
    fn places(self, most: Self) -> usize {
        if self.bytes < most.bytes { most.requests.saturating_sub(self.requests) } else { 0 }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.requests, ByteSize(self.bytes))
    }
}

/// What requests count for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    all: Load,
    /// Of them, commits that hold their locks.
    with_locks: Load,
    /// Of them, writes.
    writes: usize,
}

impl Share {
    /// Of a read.
    pub fn of_read(bytes: u64) -> Self {
        Self { all: Load { requests: 1, bytes }, ..Self::default() }
    }

    /// Of a write, which may come with the locks of its keys.
    pub fn of_write(bytes: u64, has_locks: bool) -> Self {
        let all = Load { requests: 1, bytes };
        Self { all, with_locks: if has_locks { all } else { Load::default() }, writes: 1 }
    }

    pub fn add(&mut self, other: &Self) {
        self.all.add(other.all);
        self.with_locks.add(other.with_locks);
        self.writes += other.writes;
    }

    pub fn take_off(&mut self, other: &Self) {
        self.all.take_off(other.all);
        self.with_locks.take_off(other.with_locks);
        self.writes -= other.writes;
    }

    /// The load that a request finds, which may come with locks.
    fn met_by(&self, has_locks: bool) -> Load {
        if has_locks { self.with_locks } else { self.all }
    }
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Held {
    most: Load,
    now: Share,
    /// Tasks that wait for room, in the order in which they came: for requests without locks, and
    /// with.
    waiters: [BTreeMap<u64, Waker>; 2],
    next_waiter: u64,
}

impl Held {
    /// Nothing, within the bounds of `settings`.
    pub fn new(settings: &Settings) -> Self {
        let bytes = settings.request_queue_bytes.0;
        let most = Load { requests: settings.request_queue as usize, bytes };
        Self { most, now: Share::default(), waiters: Default::default(), next_waiter: 0 }
    }

    pub fn has_room(&self, has_locks: bool) -> bool {
        self.now.met_by(has_locks).places(self.most) > 0
    }

    pub fn add(&mut self, share: &Share) {
        self.now.add(share);
    }

    /// Takes off what counts no more; gives the tasks that are to be woken for it.
    pub fn release(&mut self, share: &Share) -> Vec<Waker> {
        self.now.take_off(share);
        let mut woken = Vec::new();
        for has_locks in [false, true] {
            let waiters = &mut self.waiters[usize::from(has_locks)];
            let places = self.now.met_by(has_locks).places(self.most).min(waiters.len());
            woken.extend((0..places).filter_map(|_| waiters.pop_first()).map(|(_, waker)| waker));
        }
        woken
    }

    /// Keeps a task that waits for room, at its `place`; gives what was there.
    pub fn keep(
        &mut self,
        place: &mut Option<u64>,
        has_locks: bool,
        waker: Waker,
    ) -> Option<Waker> {
        let at = *place.get_or_insert(self.next_waiter);
        self.next_waiter = self.next_waiter.max(at + 1);
        self.waiters[usize::from(has_locks)].insert(at, waker)
    }

    /// The task at `place` waits no longer. Gives what was there, and the task that is to be woken
    /// in its stead.
    pub fn forget(&mut self, place: u64, has_locks: bool) -> (Option<Waker>, Option<Waker>) {
        let has_room = self.has_room(has_locks);
        let waiters = &mut self.waiters[usize::from(has_locks)];
        let forgotten = waiters.remove(&place);
        let next = if has_room { waiters.pop_first() } else { None };
        (forgotten, next.map(|(_, waker)| waker))
    }

    /// All tasks that wait.
    pub fn take_waiters(&mut self) -> Vec<Waker> {
        let waiters = std::mem::take(&mut self.waiters);
        waiters.into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub fn requests(&self) -> usize {
        self.now.all.requests
    }

    pub fn bytes(&self) -> u64 {
        self.now.all.bytes
    }

    pub fn writes(&self) -> usize {
        self.now.writes
    }

    /// What to say where there is no room. Of what waits, `for_locks` are writes that wait for
    /// locks.
    pub fn refusal(&self, has_locks: bool, for_locks: usize) -> Refusal {
        Refusal { met: self.now.met_by(has_locks), most: self.most, has_locks, for_locks }
    }
}

/// A request was refused for want of room: the text of that.
#[derive(Debug)]
pub(super) struct Refusal {
    met: Load,
    most: Load,
    has_locks: bool,
    for_locks: usize,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { requests, bytes } = self.met;
        let bytes = ByteSize(bytes);
        let room = if self.has_locks {
            write!(f, "{requests} asynchronous commits with locks, of {bytes}, wait")?;
            "Transaction::has_room"
        } else {
            write!(f, "{requests} asynchronous requests of {bytes} wait")?;
            "Db::has_room"
        };
        if self.for_locks > 0 && !self.has_locks {
            write!(f, ", {} of them for locks that transactions hold", self.for_locks)?;
        }
        let most = self.most;
        write!(
            f,
            ", and no more than {most} may: await a ticket or {room} and call again, or raise \
             request_queue and request_queue_bytes"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;
    use thermocline_foundation::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn held(requests: u32) -> Held {
        Held::new(&Settings { request_queue: requests, ..Settings::default() })
    }

    #[test]
    fn as_many_tasks_are_woken_as_there_are_places_and_one_that_leaves_hands_its_place_on() {
        let mut held = held(3);
        let one = Share::of_write(10, false);
        (0..3).for_each(|_| held.add(&one));
        let tasks: [Arc<Counted>; 3] = Default::default();
        let mut places = [None; 3];
        for (task, place) in tasks.iter().zip(&mut places) {
            assert!(held.keep(place, false, Arc::clone(task).into()).is_none());
        }
        let woken = |wakers: Vec<Waker>| {
            wakers.into_iter().for_each(Waker::wake);
            tasks.each_ref().map(|task| task.0.load(Relaxed))
        };
        let released = held.release(&one);
        assert_eq!(woken(released), [1, 0, 0]);
        let (forgotten, next) = held.forget(places[0].unwrap(), false);
        assert!(forgotten.is_none(), "it was woken");
        assert_eq!(woken(next.into_iter().collect()), [1, 1, 0]);
        held.add(&one);
        let (_, next) = held.forget(places[1].unwrap(), false);
        assert!(next.is_none(), "it has taken the place");
        let released = held.release(&one);
        assert_eq!(woken(released), [1, 1, 1]);
    }

    #[test]
    fn commits_that_hold_their_locks_have_a_bound_of_their_own() {
        let mut held = held(1);
        let (waits, commits) = (Share::of_write(10, false), Share::of_write(20, true));
        held.add(&waits);
        assert_eq!([false, true].map(|has_locks| held.has_room(has_locks)), [false, true]);
        held.add(&commits);
        assert_eq!([false, true].map(|has_locks| held.has_room(has_locks)), [false; 2]);
        let text = held.refusal(true, 1).to_string();
        assert!(text.starts_with("1 asynchronous commits with locks, of 20"), "{text}");
        let text = held.refusal(false, 1).to_string();
        assert!(text.contains("wait, 1 of them for locks that transactions hold"), "{text}");
        held.release(&commits);
        assert_eq!((held.requests(), held.bytes(), held.writes()), (1, 10, 1));
        held.release(&waits);
        assert!(held.has_room(false));
    }
}
