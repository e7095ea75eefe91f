//! What a device has refused for want of room, although its tier's capacity has some left.
//!
//! A capacity is what a user promises. The device may be smaller, or others may fill it. A tier
//! whose device has said so is asked last for as long as its refusal stands.
//!
//! 1. A refusal changes the order in which tiers are asked, never whether they are: before a file
//!    is refused, each tier that its capacity leaves room on was asked for it.
//! 2. It stands until files that leave the tier have given back what was wanted, tables left out
//!    that never came to be there to stay; or the device says that it has as much, where it did not
//!    say so when it refused (a quota is in no such figure); or files have gone elsewhere because
//!    of it, twice as many after each refusal in a row.
//!
//! Threads: any.

use crate::driver::Space;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Files that go elsewhere before the tier is asked again, at most, as a power of two.
const PASSED_OVER_SHIFT_MAX: u32 = 6;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    last: Mutex<Option<Refusal>>,
    /// There has been one.
    is_in_doubt: AtomicBool,
}

/// The last refusal, and what has happened since.
#[derive(Debug)]
struct Refusal {
    stands: bool,
    /// How many there were with no file that came to be there between them.
    in_a_row: u32,
    wanted_bytes: u64,
    freed_bytes: u64,
    passed_over: u64,
    /// The device said that it had as much.
    says_otherwise: bool,
}

impl Refusals {
    /// The device has refused so many bytes, of the `space` that it says to have.
    pub fn note(&self, wanted_bytes: u64, space: Option<Space>) {
        self.is_in_doubt.store(true, Relaxed);
        let mut last = self.last.lock();
        let in_a_row = last.as_ref().map_or(0, |last| last.in_a_row) + 1;
        let says_otherwise = space.is_some_and(|space| space.free_bytes >= wanted_bytes);
        let (stands, freed_bytes, passed_over) = (true, 0, 0);
        *last = Some(Refusal {
            stands,
            in_a_row,
            wanted_bytes,
            freed_bytes,
            passed_over,
            says_otherwise,
        });
    }

    /// The tier is asked last.
    pub fn stands(&self) -> bool {
        self.is_in_doubt() && self.last.lock().as_ref().is_some_and(|last| last.stands)
    }

    /// The device has refused something since it was opened: what needs much room asks first.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Relaxed)
    }

    /// A file went elsewhere because of the refusal.
    pub fn passed_over(&self) {
        self.change(|last| {
            last.passed_over += 1;
            // None are left in a row where another thread has been served meanwhile.
            let most = 1 << last.in_a_row.saturating_sub(1).min(PASSED_OVER_SHIFT_MAX);
            last.stands &= last.passed_over < most;
        });
    }

    /// A file of so many bytes is gone from the tier.
    pub fn freed(&self, bytes: u64) {
        self.change(|last| {
            last.freed_bytes = last.freed_bytes.saturating_add(bytes);
            last.stands &= last.freed_bytes < last.wanted_bytes.max(1);
        });
    }

    /// The device says how much it has now.
    pub fn told(&self, space: Space) {
        self.change(|last| {
            last.stands &= last.says_otherwise || space.free_bytes < last.wanted_bytes;
        });
    }

    /// A file has come to be there, to stay.
    pub fn served(&self) {
        self.change(|last| last.in_a_row = if last.stands { last.in_a_row } else { 0 });
    }

    fn change(&self, change: impl FnOnce(&mut Refusal)) {
        if self.is_in_doubt()
            && let Some(last) = &mut *self.last.lock()
        {
            change(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free_bytes: u64) -> Space {
        Space { total_bytes: 1000, free_bytes }
    }

    #[test]
    fn a_refusal_stands_until_as_much_is_freed_as_was_wanted() {
        let refusals = Refusals::default();
        assert!(!refusals.stands() && !refusals.is_in_doubt());
        refusals.note(100, None);
        refusals.freed(60);
        assert!(refusals.stands());
        refusals.freed(40);
        assert!(!refusals.stands() && refusals.is_in_doubt());
        refusals.note(100, None);
        refusals.freed(60);
        assert!(refusals.stands(), "counted anew");
    }

    #[test]
    fn the_device_is_believed_that_it_has_room_unless_it_refused_with_as_much() {
        let refusals = Refusals::default();
        refusals.note(100, Some(space(99)));
        refusals.told(space(99));
        assert!(refusals.stands());
        refusals.told(space(100));
        assert!(!refusals.stands());
        refusals.note(100, Some(space(100)));
        refusals.told(space(1000));
        assert!(refusals.stands(), "a quota");
    }

    #[test]
    fn after_each_refusal_in_a_row_twice_as_many_files_go_elsewhere() {
        let refusals = Refusals::default();
        let files_elsewhere = || {
            refusals.note(100, None);
            let mut files = 0;
            while refusals.stands() {
                refusals.passed_over();
                files += 1;
            }
            files
        };
        let counted: Vec<_> = (0..8).map(|_| files_elsewhere()).collect();
        assert_eq!(counted, [1, 2, 4, 8, 16, 32, 64, 64]);
        refusals.served();
        assert_eq!(files_elsewhere(), 1, "a file has come to be there");
    }

    /// A thread saw that the refusal stands; before its file is elsewhere, another one has been
    /// served.
    #[test]
    fn a_file_that_goes_elsewhere_after_one_came_to_be_there_changes_nothing() {
        let refusals = Refusals::default();
        refusals.note(100, None);
        refusals.freed(100);
        refusals.served();
        refusals.passed_over();
        assert!(!refusals.stands());
        refusals.note(100, None);
        assert!(refusals.stands());
    }
}
