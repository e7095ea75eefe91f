//! Whether copies of what the slow tier has are worth slots.
//!
//! A record that is read on the slow tier may be copied to the fast one (promotion on read). The
//! copy serves reads until the record is written: then the version that was written comes to the
//! fast tier by itself, and the copy was in vain but for the reads in between. Where the same
//! records are written and read (YCSB-A), there is about one such read a copy, for which a slot is
//! written and another record must leave; where others are written than are read, or few, there are
//! many. So what counts is what becomes of copies, not how much is written:
//!
//! ```text
//!              read, read, read ............ read     worth its slot
//!   copy ───┤
//!              replaced | read, replaced              hot records come up by their writes
//! ```
//!
//! Reads and replacements of copies that are in memory only count as well. These there are always,
//! so the rule sees when the mix of reads and writes changes.
//!
//! Invariant: judgements change at the ends of windows only, and counters only grow.

/// What became of copies since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyUses {
    /// Reads that a copy served.
    pub read: u64,
    /// Copies whose record was written anew.
    pub replaced: u64,
}

/// Limits of the judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyWorthSettings {
    /// Reads and replacements of a window; 1 or more.
    pub window: u64,
    /// Share of replacements in a window from which copies are not worth slots. With 0.2 a copy
    /// serves four reads in the mean before it is replaced.
    pub replaced_share_max: f64,
}

impl Default for CopyWorthSettings {
    fn default() -> Self {
        Self { window: 4096, replaced_share_max: 0.2 }
    }
}

/// See the header. One owner; feed it from a background job.
#[derive(Clone, Debug)]
pub struct CopyWorth {
    settings: CopyWorthSettings,
    /// When the window began.
    since: CopyUses,
    is_worth_it: bool,
}

impl CopyWorth {
    /// Copies are worth slots until more is known.
    pub fn new(settings: CopyWorthSettings) -> Self {
        Self { settings, since: CopyUses::default(), is_worth_it: true }
    }

    /// Takes the counters; answers whether copies are worth slots.
    pub fn observe(&mut self, now: CopyUses) -> bool {
        let read = now.read.saturating_sub(self.since.read);
        let replaced = now.replaced.saturating_sub(self.since.replaced);
        let uses = read + replaced;
        if uses >= self.settings.window.max(1) {
            self.since = now;
            self.is_worth_it = (replaced as f64) < self.settings.replaced_share_max * uses as f64;
        }
        self.is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth() -> CopyWorth {
        CopyWorth::new(CopyWorthSettings { window: 100, replaced_share_max: 0.2 })
    }

    #[test]
    fn copies_that_are_replaced_before_they_are_read_often_are_not_worth_slots() {
        let mut worth = worth();
        assert!(worth.observe(CopyUses { read: 0, replaced: 99 }), "the window has not ended");
        assert!(!worth.observe(CopyUses { read: 50, replaced: 99 }));
    }

    #[test]
    fn copies_are_worth_slots_again_when_they_are_read_again() {
        let mut worth = worth();
        assert!(!worth.observe(CopyUses { read: 79, replaced: 21 }));
        assert!(!worth.observe(CopyUses { read: 178, replaced: 21 }), "the old window is over");
        assert!(worth.observe(CopyUses { read: 179, replaced: 21 }));
        assert!(worth.observe(CopyUses { read: 260, replaced: 40 }), "19 of 100");
        assert!(!worth.observe(CopyUses { read: 340, replaced: 60 }), "20 of 100");
    }

    /// The share after as many windows of so many reads for each copy that is dropped.
    fn share_after(admission: &mut CopyAdmission, windows: u64, reads_per_drop: u64) -> f64 {
        for _ in 0..windows {
            let mut now = admission.since;
            now.dropped += 20_000;
            now.served += 20_000 * reads_per_drop;
            admission.observe(now, 0);
        }
        admission.share()
    }

    #[test]
    fn fewer_copies_get_slots_while_they_are_dropped_unread() {
        let mut admission = CopyAdmission::new(CopyAdmissionSettings::default());
        assert!((0..100).all(|_| admission.admits()));
        assert_eq!(share_after(&mut admission, 1, 0), 0.5);
        assert_eq!(share_after(&mut admission, 1, 0), 0.25);
        assert_eq!((0..100).filter(|_| admission.admits()).count(), 25);
        assert_eq!(share_after(&mut admission, 3, 2), 0.25, "just right");
        assert_eq!(share_after(&mut admission, 20, 0), 1.0 / 64.0, "some always do");
        assert_eq!(share_after(&mut admission, 20, 3), 1.0);
    }

    #[test]
    fn a_window_is_as_long_as_drops_are_far_apart() {
        let mut admission = CopyAdmission::new(CopyAdmissionSettings::default());
        let slots = 100_000;
        admission.observe(CopyTurns { served: 0, dropped: 24_999 }, slots);
        assert_eq!(admission.share(), 1.0, "a quarter of the slots is not there yet");
        admission.observe(CopyTurns { served: 60_000, dropped: 24_999 }, slots);
        assert_eq!(admission.share(), 1.0);
        admission.observe(CopyTurns { served: 60_000, dropped: 49_999 }, slots);
        assert_eq!(admission.share(), 0.5, "of the new window");
    }

    #[test]
    fn where_nothing_is_dropped_every_copy_gets_a_slot() {
        let mut admission = CopyAdmission::new(CopyAdmissionSettings::default());
        assert_eq!(share_after(&mut admission, 4, 0), 1.0 / 16.0);
        for _ in 0..4 {
            let served = admission.since.served + 20_000;
            admission.observe(CopyTurns { served, ..admission.since }, 0);
        }
        assert_eq!(admission.share(), 1.0);
    }
}
