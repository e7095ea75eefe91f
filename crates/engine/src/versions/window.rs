//! The window: sequences are claimed in order, and published in order.
//!
//! Groups of writes are in flight side by side and end in any order. Each has a slot; the window
//! publishes the slots that are complete up to the first that is not (SpanDB, section 4.2: what is
//! durable before its predecessors waits for them).
//!
//! Invariants:
//! 1. `visible` never passes a slot that is not complete.
//! 2. A group that ends without being completed has failed: no slot behind it is published.
//! 3. `durable` is the newest sequence of a published group that was written durably. All before it
//!    are durable too: the front sees to that before it completes such a group.
//!
//! Threads: claims come one at a time, in the order in which the log gets them; the rest from any.

use std::collections::VecDeque;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex, MutexGuard};
use thermocline_foundation::{Planted, Sequence, planted};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Window {
    /// The last sequence that was given out.
    claimed: AtomicU64,
    /// The newest sequence that readers see.
    visible: AtomicU64,
    durable: AtomicU64,
    slots: Mutex<Slots>,
    /// Signalled when slots were published or one failed, if a thread waits.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Slots {
    /// Those that are not published, in order.
    open: VecDeque<Slot>,
    waiting: usize,
}

#[derive(Debug)]
struct Slot {
    last: Sequence,
    state: State,
    /// When it was claimed, by the clock of the claim, if that was looked at.
    since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Flying,
    /// Its records are in the memtable.
    Complete {
        durable: bool,
    },
    /// It has no records.
    Skipped,
    Failed,
}

/// Sequences that were given out and are not published yet. Dropped before it is completed or
/// skipped, it has failed.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    window: &'a Window,
    first: Sequence,
    last: Sequence,
    ended: bool,
}

impl Group<'_> {
    /// The first of its sequences.
    pub fn first(&self) -> Sequence {
        self.first
    }

    /// The last of its sequences.
    pub fn last(&self) -> Sequence {
        self.last
    }

    /// Its records are in the memtable, and in the log: as `durable` as that. Readers see them as
    /// soon as all before are complete.
    pub fn complete(mut self, durable: bool) -> Publication {
        let last = self.last;
        self.end(State::Complete { durable });
        Publication(last)
    }

    /// It has no records. Readers pass it with the next one.
    pub fn skip(mut self) {
        self.end(State::Skipped);
    }

    fn end(&mut self, state: State) {
        self.ended = true;
        self.window.end(self.last, state);
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(State::Failed);
        }
    }
}

/// A group that is complete, to be waited for.
#[derive(Clone, Copy, Debug)]
#[must_use = "a group is acknowledged when it is published"]
pub(crate) struct Publication(Sequence);

impl Window {
    /// All up to `last` is published.
    pub(super) fn new(last: Sequence) -> Self {
        Self {
            claimed: AtomicU64::new(last.0),
            visible: AtomicU64::new(last.0),
            durable: AtomicU64::new(0),
            slots: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The newest sequence that readers see.
    pub fn visible(&self) -> Sequence {
        Sequence(self.visible.load(Ordering::Acquire))
    }

    /// The newest sequence that was given out. A group is in a memtable before readers see it: what
    /// may be there is told by this, not by what is visible.
    pub fn claimed(&self) -> Sequence {
        Sequence(self.claimed.load(Ordering::Acquire))
    }

    /// The newest sequence up to which all was written durably, group by group; none since the
    /// opening is zero.
    pub fn durable(&self) -> Sequence {
        Sequence(self.durable.load(Ordering::Acquire))
    }

    /// Gives out the next `count` sequences, at the time `now_ns` where the caller has looked.
    pub fn claim(&self, count: u64, now_ns: Option<u64>) -> Group<'_> {
        let mut slots = self.slots.lock();
        let before = self.claimed.load(Ordering::Relaxed);
        let (first, last) = (Sequence(before + 1), Sequence(before + count));
        self.claimed.store(last.0, Ordering::Relaxed);
        if planted(Planted::VisibleBeforeDurable) {
            self.visible.store(last.0, Ordering::Release);
        }
        slots.open.push_back(Slot { last, state: State::Flying, since_ns: now_ns });
        Group { window: self, first, last, ended: false }
    }

    /// Waits until the group is published; false where one before it failed.
    pub fn wait(&self, publication: Publication) -> bool {
        let Publication(last) = publication;
        if self.visible() >= last || planted(Planted::AcknowledgedOutOfOrder) {
            return true;
        }
        self.wait_for(|slots| match slots.open.iter().find(|slot| slot.state == State::Failed) {
            _ if self.visible() >= last => Some(true),
            Some(failed) if failed.last <= last => Some(false),
            _ => None,
        })
    }

    /// Waits until all groups before `group` are published; false where one of them failed. Those
    /// behind it have no say.
    pub fn wait_before(&self, group: &Group<'_>) -> bool {
        self.wait_for(|slots| {
            let mut before = slots.open.iter().take_while(|slot| slot.last < group.last).peekable();
            match before.peek() {
                None => Some(true),
                Some(_) => before.any(|slot| slot.state == State::Failed).then_some(false),
            }
        })
    }

    /// How many groups are not published yet, and when the oldest was claimed of those that say.
    pub fn flying(&self) -> (u64, Option<u64>) {
        let slots = self.slots.lock();
        let flying = slots.open.iter().filter(|slot| slot.state == State::Flying);
        (flying.clone().count() as u64, flying.filter_map(|slot| slot.since_ns).next())
    }

    /// Waits until the groups that were claimed by now have ended, and are published unless one
    /// failed.
    pub fn wait_claimed(&self) {
        let last = Sequence(self.claimed.load(Ordering::Relaxed));
        if self.visible() >= last {
            return;
        }
        self.wait_for(|slots| {
            let claimed = slots.open.iter().take_while(|slot| slot.last <= last);
            (!claimed.into_iter().any(|slot| slot.state == State::Flying)).then_some(())
        });
    }

    /// Waits until no group is in flight.
    pub fn wait_idle(&self) {
        self.wait_for(|slots| {
            let is_flying = slots.open.iter().any(|slot| slot.state == State::Flying);
            (!is_flying).then_some(())
        });
    }

    fn wait_for<T>(&self, mut found: impl FnMut(&Slots) -> Option<T>) -> T {
        let mut slots = self.slots.lock();
        loop {
            if let Some(found) = found(&slots) {
                return found;
            }
            slots.waiting += 1;
            self.changed.wait(&mut slots);
            slots.waiting -= 1;
        }
    }

    fn end(&self, last: Sequence, state: State) {
        let mut slots = self.slots.lock();
        let at = slots.open.binary_search_by_key(&last, |slot| slot.last);
        let at = at.expect("a group has a slot until it is published");
        slots.open[at].state = state;
        self.publish(&mut slots);
        if slots.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Publishes the slots that are complete and have none before them that is not.
    fn publish(&self, slots: &mut MutexGuard<'_, Slots>) {
        while let Some(Slot { last, state, .. }) = slots.open.front() {
            match state {
                State::Complete { durable } => {
                    if *durable {
                        self.durable.store(last.0, Ordering::Release);
                    }
                    self.visible.store(last.0, Ordering::Release);
                }
                State::Skipped => {}
                State::Flying | State::Failed => return,
            }
            slots.open.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_a_group_once_it_is_published_and_pass_one_that_was_skipped() {
        let window = Window::new(Sequence(5));
        let group = window.claim(3, Some(10));
        assert_eq!((group.first(), window.visible()), (Sequence(6), Sequence(5)));
        assert!(window.wait(group.complete(false)));
        assert_eq!(window.visible(), Sequence(8));
        window.claim(1, Some(20)).skip();
        assert_eq!(window.visible(), Sequence(8));
        let group = window.claim(1, Some(30));
        assert_eq!(group.first(), Sequence(10));
        assert_eq!(window.flying(), (1, Some(30)));
        assert!(window.wait(group.complete(true)));
        assert_eq!((window.visible(), window.durable()), (Sequence(10), Sequence(10)));
        window.wait_idle();
    }

    #[test]
    fn groups_that_end_in_any_order_are_published_in_theirs() {
        let window = Window::new(Sequence(0));
        let [first, second, third] = [2, 3, 4].map(|count| window.claim(count, Some(count)));
        assert_eq!(window.flying(), (3, Some(2)));
        let last = third.complete(true);
        assert_eq!((window.visible(), window.durable()), (Sequence(0), Sequence(0)));
        assert!(window.wait_before(&first));
        let first = first.complete(true);
        assert!(window.wait(first) && window.wait_before(&second));
        assert_eq!((window.visible(), window.durable()), (Sequence(2), Sequence(2)));
        let second = second.complete(false);
        assert!(window.wait(second) && window.wait(last));
        assert_eq!((window.visible(), window.durable()), (Sequence(9), Sequence(9)));
    }

    #[test]
    fn nothing_behind_a_group_that_failed_is_published() {
        let window = Window::new(Sequence(0));
        let [first, second, third] = [1, 1, 1].map(|count| window.claim(count, None));
        let third = third.complete(true);
        drop(second);
        let first = first.complete(true);
        assert!(window.wait(first) && !window.wait(third));
        assert_eq!(window.visible(), Sequence(1));
        window.wait_claimed();
        let fourth = window.claim(1, None);
        assert!(!window.wait_before(&fourth));
        drop(fourth);
        window.wait_idle();
    }

    #[test]
    fn a_group_that_failed_takes_nothing_from_those_before_it() {
        let window = Window::new(Sequence(0));
        let [first, second, third] = [1, 1, 1].map(|count| window.claim(count, None));
        drop(third);
        assert!(window.wait(first.complete(false)));
        assert!(window.wait_before(&second), "what failed is behind it");
        let second = second.complete(true);
        assert!(window.wait(second));
        assert_eq!((window.visible(), window.durable()), (Sequence(2), Sequence(2)));
    }
}
