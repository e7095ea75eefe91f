//! The window: sequences are claimed in order, and published in order.
//!
//! One group of writes is in flight at a time: the front claims for the next one when the one
//! before is published or the store is latched. So `visible` never passes a group that is not
//! finished.

use thermocline_foundation::Sequence;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Window {
    /// The last sequence that was given out.
    claimed: AtomicU64,
    /// The newest sequence that readers see.
    visible: AtomicU64,
}

/// Sequences that were given out and are not published yet.
#[derive(Debug)]
pub(crate) struct Group {
    first: Sequence,
    last: Sequence,
}

impl Group {
    /// The first of its sequences.
    pub fn first(&self) -> Sequence {
        self.first
    }
}

impl Window {
    /// All up to `last` is published.
    pub(super) fn new(last: Sequence) -> Self {
        Self { claimed: AtomicU64::new(last.0), visible: AtomicU64::new(last.0) }
    }

    /// The newest sequence that readers see.
    pub fn visible(&self) -> Sequence {
        Sequence(self.visible.load(Ordering::Acquire))
    }

    /// Gives out the next `count` sequences. The caller keeps other callers out until the group is
    /// published, or the store is latched.
    pub fn claim(&self, count: u64) -> Group {
        let before = self.claimed.load(Ordering::Relaxed);
        let last = before + count;
        self.claimed.store(last, Ordering::Relaxed);
        Group { first: Sequence(before + 1), last: Sequence(last) }
    }

    /// Readers see the group: its records are in the memtable.
    #[expect(clippy::needless_pass_by_value, reason = "a group is published or skipped once")]
    pub fn publish(&self, group: Group) {
        let Group { first, last } = group;
        debug_assert!(self.visible.load(Ordering::Relaxed) < first.0, "published in order");
        self.visible.store(last.0, Ordering::Release);
    }

    /// The group has no records. Readers pass it with the next one.
    #[expect(clippy::needless_pass_by_value, reason = "a group is published or skipped once")]
    pub fn skip(&self, group: Group) {
        debug_assert_eq!(self.claimed.load(Ordering::Relaxed), group.last.0, "none is behind it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_a_group_once_it_is_published_and_pass_one_that_was_skipped() {
        let window = Window::new(Sequence(5));
        let group = window.claim(3);
        assert_eq!((group.first(), window.visible()), (Sequence(6), Sequence(5)));
        window.publish(group);
        assert_eq!(window.visible(), Sequence(8));
        window.skip(window.claim(1));
        assert_eq!(window.visible(), Sequence(8));
        let group = window.claim(1);
        assert_eq!(group.first(), Sequence(10));
        window.publish(group);
        assert_eq!(window.visible(), Sequence(10));
    }
}
