//! What holds a database besides its handles: snapshots, cursors and scans, bulk loads,
//! transactions. Each keeps the files in place and the directories locked, also after the last
//! handle closed them.
//!
//! Threads: shared freely.

use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicUsize, Ordering};

/// A kind of holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Snapshot,
    Cursor,
    Load,
    Transaction,
}

/// How many there are of each kind.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    counts: [AtomicUsize; 4],
}

impl Holders {
    fn counter(&self, holder: Holder) -> &AtomicUsize {
        &self.counts[holder as usize]
    }

    /// How many of a kind there are.
    pub fn count(&self, holder: Holder) -> usize {
        self.counter(holder).load(Ordering::Acquire)
    }

    /// What there is: `1 snapshot and 2 cursors or scans`; none where nothing holds the database.
    pub fn describe(&self) -> Option<String> {
        let kinds = [
            (Holder::Snapshot, "snapshot", "snapshots"),
            (Holder::Cursor, "cursor or scan", "cursors or scans"),
            (Holder::Load, "unfinished bulk load", "unfinished bulk loads"),
            (Holder::Transaction, "transaction", "transactions"),
        ];
        let texts = kinds.into_iter().filter_map(|(holder, one, many)| match self.count(holder) {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        });
        let texts: Vec<_> = texts.collect();
        (!texts.is_empty()).then(|| texts.join(" and "))
    }
}

/// One holder, counted while it lives.
#[derive(Debug)]
pub(crate) struct Held {
    holders: Arc<Holders>,
    holder: Holder,
}

impl Held {
    pub fn new(holders: &Arc<Holders>, holder: Holder) -> Self {
        holders.counter(holder).fetch_add(1, Ordering::AcqRel);
        Self { holders: Arc::clone(holders), holder }
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        Self::new(&self.holders, self.holder)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.holders.counter(self.holder).fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_told_by_kind_until_they_are_gone() {
        let holders = Arc::new(Holders::default());
        assert_eq!(holders.describe(), None);
        let snapshot = Held::new(&holders, Holder::Snapshot);
        assert_eq!(holders.describe().as_deref(), Some("1 snapshot"));
        let cursors = [Holder::Cursor, Holder::Cursor].map(|holder| Held::new(&holders, holder));
        let load = Held::new(&holders, Holder::Load);
        let all = "1 snapshot and 2 cursors or scans and 1 unfinished bulk load";
        assert_eq!(holders.describe().as_deref(), Some(all));
        drop((cursors, load));
        let more = snapshot.clone();
        assert_eq!(holders.describe().as_deref(), Some("2 snapshots"));
        drop((snapshot, more));
        assert_eq!(holders.describe(), None);
    }
}
