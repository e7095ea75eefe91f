//! Finds tables that hold neighbouring keys apart: by leaf scans and by what callers scan (SLM-DB,
//! section 3.3; the rules are in `compaction/sequentiality.rs`).
//!
//! ```text
//!   a table was entered -> a leaf scan, from where the last one ended ─┐
//!   a caller's scan has ended ─────────────────────────────────────────┴─> scattered -> plan.rs
//! ```
//! 1. What was found is in memory alone. It may be lost, and name tables that are gone: it decides
//!    what is merged, and nothing else.
//! 2. A leaf scan takes entries out that a merge would have, had no crash come before: those of
//!    tombstones that are in no table, where no table may have what they hid. Their merge has found
//!    nothing older in other tables, and what it merged itself is a table until its last edit.
//!
//! Threads: any. The lock is held for no I/O.

use super::Indexed;
use crate::compaction::sequentiality::{SubRanges, leaf_scan_keys, scattered};
use crate::error::{ErrorKind, Result};
use crate::jobs::{Job, Step};
use crate::locator::index::TableIndex;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_table::key_hash;

/// Keys of the index that a step passes.
const STEP_KEYS: usize = 1 << 12;

/// What is known of the order of the tables.
#[derive(Debug, Default)]
pub(crate) struct Order {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    scattered: BTreeSet<FileNumber>,
    /// Where the next leaf scan begins.
    from: Vec<u8>,
    /// Tables that had been entered when the last one began.
    entered: u64,
    is_scanning: bool,
    /// The plan before this one looked for a leaf scan first.
    had_turn: bool,
}

impl Order {
    /// Whether a leaf scan comes before a merge now: every other time.
    pub fn takes_turn(&self) -> bool {
        let mut state = self.state.lock();
        state.had_turn = !state.had_turn;
        state.had_turn
    }

    /// Tables that were named and are still in `tables`.
    pub fn scattered(&self, tables: impl Fn(FileNumber) -> bool) -> BTreeSet<FileNumber> {
        let mut state = self.state.lock();
        state.scattered.retain(|number| tables(*number));
        state.scattered.clone()
    }

    /// Those that were named are merged, or in order: what still is scattered is found again.
    pub fn settled(&self) {
        self.state.lock().scattered.clear();
    }

    fn add(&self, tables: BTreeSet<FileNumber>) {
        self.state.lock().scattered.extend(tables);
    }
}

/// A walk over some leaves of the index.
#[derive(Debug)]
pub(super) struct LeafScan {
    indexed: Arc<Indexed>,
    index: Arc<TableIndex>,
    /// None at the end of the keys.
    from: Option<Vec<u8>>,
    left: usize,
    passed: BTreeSet<FileNumber>,
}

impl LeafScan {
    /// The walk that is due, if one is.
    pub fn due(indexed: &Arc<Indexed>, index: &Arc<TableIndex>) -> Option<Self> {
        if indexed.shared.experiments.leaf_scan == Some(false) {
            return None;
        }
        let entered = index.entered_tables();
        let mut state = indexed.order.state.lock();
        if state.is_scanning || state.entered == entered {
            return None;
        }
        (state.is_scanning, state.entered) = (true, entered);
        let levels = Arc::clone(&indexed.versions.current().levels);
        let entries = levels.tables().map(|(_, table)| table.meta.entries).sum();
        let left = leaf_scan_keys(entries, levels.tables().count() as u64);
        let (from, passed) = (Some(state.from.clone()), BTreeSet::new());
        drop(state);
        Some(Self { indexed: Arc::clone(indexed), index: Arc::clone(index), from, left, passed })
    }
}

impl LeafScan {
    /// Takes those of the tombstones `released` out that hide nothing.
    fn remove_idle(&self, mut released: Vec<(Vec<u8>, u64)>) -> Result<()> {
        let levels = Arc::clone(&self.indexed.versions.current().levels);
        released.retain(|(key, trailer)| {
            let (key, sequence) = (&key[..], Sequence(trailer >> 8));
            let hash = key_hash(key);
            !levels.tables().any(|(_, table)| {
                table.meta.smallest_sequence < sequence
                    && table.meta.overlaps(Some(key), Some(key))
                    && table.may_have(key, hash)
            })
        });
        match self.index.remove(&released) {
            // There is no room for the change: the next scan comes by again.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => Ok(()),
            removed => removed,
        }
    }
}

impl Job for LeafScan {
    fn name(&self) -> &'static str {
        "scan of the index"
    }

    fn step(&mut self) -> Result<Step> {
        let keys = self.left.min(STEP_KEYS);
        if keys > 0
            && let Some(from) = self.from.take()
        {
            let passed = self.index.pass(&from, keys)?;
            self.passed.extend(passed.tables);
            (self.from, self.left) = (passed.next, self.left - keys);
            self.remove_idle(passed.released)?;
            return Ok(Step::More);
        }
        self.indexed.order.add(scattered(std::mem::take(&mut self.passed)));
        Ok(Step::Done)
    }
}

impl Drop for LeafScan {
    fn drop(&mut self) {
        let mut state = self.indexed.order.state.lock();
        state.is_scanning = false;
        // Behind the last key comes the first one.
        state.from = self.from.take().unwrap_or_default();
    }
}

/// The tables that a cursor of a caller finds its records in.
#[derive(Debug)]
pub(crate) struct Trail {
    indexed: Arc<Indexed>,
    passed: SubRanges,
}

impl Trail {
    /// For a cursor that begins; none where nothing would come of it.
    pub fn begin(indexed: &Arc<Indexed>) -> Option<Self> {
        let is_of_use =
            indexed.index.is_some() && indexed.shared.experiments.scan_merges != Some(false);
        is_of_use.then(|| Self { indexed: Arc::clone(indexed), passed: SubRanges::default() })
    }

    /// The cursor stands on a record of `table`; none where a memtable has it.
    #[inline]
    pub fn pass(&mut self, table: Option<FileNumber>) {
        self.passed.pass(table);
    }

    /// The cursor goes elsewhere.
    pub fn turn(&mut self) {
        self.passed.turn();
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let named = std::mem::take(&mut self.passed).scattered();
        if !named.is_empty() {
            self.indexed.order.add(named);
            self.indexed.shared.jobs.wake();
        }
    }
}
