//! Which readers are under way: what was unlinked before they came may not be reused.
//!
//! ```text
//!   reader   takes a slot, writes the number of the epoch into it; looks; gives the slot back
//!   writer   unlinks, ends the epoch; what was unlinked in epoch e is free once no slot has a
//!            number up to e
//! ```
//! 1. A reader never waits. Where all slots are taken it counts itself, and nothing is freed as
//!    long as one does.
//! 2. The writer looks at a slot by changing nothing in it, atomically. So it sees the reader, or
//!    the reader sees all that was unlinked before.
//!
//! Threads: any read; one writes.

#[cfg(not(any(shuttle, loom)))]
use thermocline_foundation::sync::atomic::AtomicUsize;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(shuttle))]
const SLOTS: usize = 64;
#[cfg(shuttle)]
const SLOTS: usize = 2;

#[cfg(not(any(shuttle, loom)))]
thread_local! {
    static FIRST_SLOT: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SLOTS
    };
}

/// The slot that this thread tries first: those that read side by side share no line.
#[cfg(not(any(shuttle, loom)))]
fn first_slot() -> usize {
    FIRST_SLOT.with(|slot| *slot)
}

/// A schedule decides which threads meet.
#[cfg(any(shuttle, loom))]
fn first_slot() -> usize {
    0
}

/// A slot of a reader, on a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// The readers of a tree.
#[derive(Debug)]
pub struct Readers {
    /// The present epoch; from 1 on, for zero is a free slot.
    epoch: AtomicU64,
    slots: Box<[Slot]>,
    without_slot: Slot,
}

/// A reader that is under way, until this is dropped.
#[derive(Debug)]
pub struct Pin<'a> {
    readers: &'a Readers,
    slot: Option<usize>,
}

impl Default for Readers {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        Self { epoch: AtomicU64::new(1), slots, without_slot: Slot::default() }
    }
}

impl Readers {
    /// Begins to read. What is found until the pin is dropped is not reused.
    pub fn pin(&self) -> Pin<'_> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let take = |slot: &usize| {
            let slot = &self.slots[*slot].0;
            slot.compare_exchange(0, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        let first = first_slot();
        let slot = (first..SLOTS).chain(0..first).find(take);
        if slot.is_none() {
            self.without_slot.0.fetch_add(1, Ordering::SeqCst);
        }
        Pin { readers: self, slot }
    }

    /// Ends the epoch in which something was unlinked, and returns its number.
    pub fn end_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst)
    }

    /// The last epoch of which no reader is under way.
    pub fn quiet_epoch(&self) -> u64 {
        if self.without_slot.0.fetch_add(0, Ordering::SeqCst) > 0 {
            return 0;
        }
        let present = self.epoch.load(Ordering::SeqCst);
        let epochs = self.slots.iter().map(|slot| slot.0.fetch_add(0, Ordering::SeqCst));
        let oldest = epochs.filter(|epoch| *epoch > 0).min();
        oldest.unwrap_or(present) - 1
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        match self.slot {
            Some(slot) => self.readers.slots[slot].0.store(0, Ordering::SeqCst),
            None => {
                self.readers.without_slot.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_quiet_when_its_readers_are_gone() {
        let readers = Readers::default();
        let first = readers.pin();
        let epoch = readers.end_epoch();
        let second = readers.pin();
        assert!(readers.quiet_epoch() < epoch);
        drop(first);
        assert_eq!(readers.quiet_epoch(), epoch);
        assert_eq!(readers.end_epoch(), epoch + 1);
        assert_eq!(readers.quiet_epoch(), epoch);
        drop(second);
        assert_eq!(readers.quiet_epoch(), epoch + 1);
    }

    #[test]
    fn readers_without_a_slot_hold_everything_back() {
        let readers = Readers::default();
        let pins: Vec<_> = (0..=SLOTS).map(|_| readers.pin()).collect();
        assert_eq!(pins.last().unwrap().slot, None);
        let epoch = readers.end_epoch();
        assert_eq!(readers.quiet_epoch(), 0);
        drop(pins);
        assert_eq!(readers.quiet_epoch(), epoch);
    }
}
