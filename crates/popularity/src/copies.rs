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
//! Where no record is much hotter than another, copies are dropped for others that are read as
//! seldom: each costs a write of a slot, and saves less than a read. Then those that are there may
//! as well stay. While copies get no slots hardly any is dropped, so the rule does not see whether
//! that still holds; it rests for a number of uses, and then tries for a window. Where copies are
//! worth it, these many uses are a moment.
//!
//! Invariant: the judgement changes at the ends of windows only, and counters only grow.

/// What became of copies since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyUses {
    /// Reads that a copy served.
    pub read: u64,
    /// Copies whose record was written anew.
    pub replaced: u64,
    /// Copies that were given up for others.
    pub dropped: u64,
}

/// Limits of the judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyWorthSettings {
    /// Uses of a window, of any kind; 1 or more.
    pub window: u64,
    /// Share of replacements in a window from which copies are not worth slots. With 0.2 a copy
    /// serves four reads in the mean before it is replaced.
    pub replaced_share_max: f64,
    /// Reads for each copy that is dropped, below which copies are not worth slots. A slot costs
    /// about as much to write as a read of the slow tier costs the processor.
    pub reads_a_drop_min: f64,
    /// Windows in which they get none once that was seen.
    pub rest_windows: u64,
}

impl Default for CopyWorthSettings {
    fn default() -> Self {
        Self { window: 4096, replaced_share_max: 0.2, reads_a_drop_min: 0.75, rest_windows: 16 }
    }
}

/// See the header. One owner; feed it from a background job.
#[derive(Clone, Debug)]
pub struct CopyWorth {
    settings: CopyWorthSettings,
    /// When the window began.
    since: CopyUses,
    is_worth_it: bool,
    /// They were dropped for others as good, and get no slots for some windows.
    rests: bool,
}

impl CopyWorth {
    /// Copies are worth slots until more is known.
    pub fn new(settings: CopyWorthSettings) -> Self {
        Self { settings, since: CopyUses::default(), is_worth_it: true, rests: false }
    }

    /// Takes the counters; answers whether copies are worth slots.
    pub fn observe(&mut self, now: CopyUses) -> bool {
        let read = now.read.saturating_sub(self.since.read);
        let replaced = now.replaced.saturating_sub(self.since.replaced);
        let dropped = now.dropped.saturating_sub(self.since.dropped);
        let windows = if self.rests { self.settings.rest_windows.max(1) } else { 1 };
        if read + replaced + dropped >= self.settings.window.max(1) * windows {
            self.since = now;
            let share_max = self.settings.replaced_share_max;
            let are_replaced = replaced as f64 >= share_max * (read + replaced).max(1) as f64;
            self.rests = (read as f64) < self.settings.reads_a_drop_min * dropped as f64;
            self.is_worth_it = !are_replaced && !self.rests;
        }
        self.is_worth_it
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth() -> CopyWorth {
        let settings = CopyWorthSettings {
            window: 100,
            replaced_share_max: 0.2,
            reads_a_drop_min: 0.75,
            rest_windows: 3,
        };
        CopyWorth::new(settings)
    }

    fn uses(read: u64, replaced: u64, dropped: u64) -> CopyUses {
        CopyUses { read, replaced, dropped }
    }

    #[test]
    fn copies_that_are_replaced_before_they_are_read_often_are_not_worth_slots() {
        let mut worth = worth();
        assert!(worth.observe(uses(0, 99, 0)), "the window has not ended");
        assert!(!worth.observe(uses(50, 99, 0)));
    }

    #[test]
    fn copies_are_worth_slots_again_when_they_are_read_again() {
        let mut worth = worth();
        assert!(!worth.observe(uses(79, 21, 0)));
        assert!(!worth.observe(uses(178, 21, 0)), "the old window is over");
        assert!(worth.observe(uses(179, 21, 0)));
        assert!(worth.observe(uses(260, 40, 0)), "19 of 100");
        assert!(!worth.observe(uses(340, 60, 0)), "20 of 100");
    }

    #[test]
    fn copies_that_are_dropped_before_they_are_read_are_not_worth_slots_for_a_while() {
        let mut worth = worth();
        assert!(worth.observe(uses(60, 0, 80)), "three reads for four drops");
        assert!(!worth.observe(uses(100, 0, 140)));
        assert!(!worth.observe(uses(399, 0, 140)), "it rests for three windows");
        assert!(worth.observe(uses(400, 0, 140)), "and tries again");
        assert!(!worth.observe(uses(400, 0, 240)));
        assert!(!worth.observe(uses(500, 100, 340)), "both are seen at the end of a rest");
        assert!(!worth.observe(uses(520, 180, 340)), "replaced");
        assert!(worth.observe(uses(620, 180, 340)), "after one window");
    }
}
