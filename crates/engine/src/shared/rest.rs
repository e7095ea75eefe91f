//! Whether the store rests though memory has records: nothing was written between two looks.
//!
//! Work that a busy store would only repeat waits for rest. A store is at rest at once where
//! everything is flushed; writers that stop without a flush leave records in memory, maybe for
//! ever. An idle worker looks, some time apart (`jobs/mod.rs`); here is what two looks tell. No
//! clock comes in: the time between looks is the worker's.
//!
//! Threads: any may ask, one at a time looks.

use crate::jobs::Look;
use thermocline_foundation::sync::atomic::AtomicU64;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

/// There are fewer writes than this.
const NEVER: u64 = u64::MAX;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Writes at the last look.
    seen: AtomicU64,
    /// Writes when the store came to rest last.
    rested: AtomicU64,
}

impl Default for Rest {
    fn default() -> Self {
        Self { seen: NEVER.into(), rested: NEVER.into() }
    }
}

impl Rest {
    /// Takes a look: so many writes were made until now.
    pub fn look(&self, writes: u64) -> Look {
        if self.is_at(writes) {
            return Look::Ended;
        }
        if self.seen.swap(writes, Relaxed) != writes {
            return Look::Again;
        }
        self.rested.store(writes, Relaxed);
        Look::Rests
    }

    /// No write was made since the store came to rest; `writes` are all until now.
    pub fn is_at(&self, writes: u64) -> bool {
        self.rested.load(Relaxed) == writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_rests_after_two_looks_without_a_write_between_and_until_the_next_write() {
        let rest = Rest::default();
        let looks = [10, 11, 12, 12, 12].map(|writes| rest.look(writes));
        assert_eq!(looks, [Look::Again, Look::Again, Look::Again, Look::Rests, Look::Ended]);
        assert!(rest.is_at(12) && !rest.is_at(13));
        assert_eq!([13, 13].map(|writes| rest.look(writes)), [Look::Again, Look::Rests]);
        assert!(rest.is_at(13) && !rest.is_at(12));
    }
}
