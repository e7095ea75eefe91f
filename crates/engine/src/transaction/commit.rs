//! A batch with conditions on its way: what it builds on, and how often that was looked at.

use super::check::{Check, Recent};
use super::validation::Footprint;
use crate::settings::Durability;
use crate::versions::Versions;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::{Duration, Planted, Sequence, planted};

/// Keys, and entries of ranges, that the leader looks at while others wait, at most.
const ENTRIES_MAX: u64 = 4096;
/// After so many looks at everything the leader goes through more all the same: what came after the
/// last look is little, but for what is written meanwhile.
const LOOKS_MAX: u32 = 2;

/// A batch and what must hold when it is written.
#[derive(Debug)]
pub(crate) struct Commit {
    pub encoded: Bytes,
    pub count: u32,
    pub durability: Durability,
    /// What must not have changed.
    pub footprint: Footprint,
    pub lock_timeout: Duration,
    /// The caller has the locks of all keys.
    pub has_locks: bool,
}

/// Tries at a batch: each is a [`Check`] for the leader, and after one that memory could not decide
/// comes a look at everything (`transaction/mod.rs`).
#[derive(Debug)]
pub(crate) struct Attempts {
    footprint: Arc<Footprint>,
    looked: Sequence,
    looks: u32,
}

impl Attempts {
    /// Nothing was looked at yet.
    pub fn new(footprint: Footprint, versions: &Versions) -> Self {
        let oldest =
            footprint.oldest_base().filter(|_| !planted(Planted::CommitValidatesMemoryOnly));
        let looked = oldest.unwrap_or_else(|| versions.visible());
        Self { footprint: Arc::new(footprint), looked, looks: 0 }
    }

    /// Memory has not all that came after what is built on, or that is more than a leader looks at:
    /// the first try would be for nothing.
    pub fn need_look(&self, versions: &Versions) -> bool {
        self.footprint.keys.len() as u64 > ENTRIES_MAX
            || !Recent::new(versions).has_all_after(self.looked)
    }

    /// What is looked at.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// Up to here nothing has changed: what is looked at is what came after it.
    pub fn looked(&self) -> Sequence {
        self.looked
    }

    /// A look at everything has found no change up to here.
    pub fn have_looked(&mut self, up_to: Sequence) {
        self.looked = up_to;
        self.looks += 1;
    }

    /// What the leader is asked to look at now.
    pub fn check(&self, has_locks: bool) -> Arc<Check> {
        let entries_max = if self.looks < LOOKS_MAX { ENTRIES_MAX } else { u64::MAX };
        let footprint = Arc::clone(&self.footprint);
        Arc::new(Check { footprint, looked: self.looked, entries_max, has_locks })
    }
}
