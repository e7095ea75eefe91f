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
}
