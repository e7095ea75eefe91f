//! Finds tables that hold neighbouring keys apart: by leaf scans and by what callers scan (SLM-DB,
//! section 3.3; the rules are in `compaction/sequentiality.rs`).
//!
//! ```text
//!   a table was entered -> a leaf scan, from where the last one ended ─┐
//!   a caller's scan has ended ─────────────────────────────────────────┴─> scattered -> plan.rs
//! ```
//! What was found is in memory alone. It may be lost, and name tables that are gone: it decides
//! what is merged, and nothing else.
//!
//! Threads: any. The lock is held for no I/O.

use super::Indexed;
use crate::compaction::sequentiality::{SubRanges, leaf_scan_keys, scattered};
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::locator::index::TableIndex;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::Mutex;

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

impl Job for LeafScan {
    fn name(&self) -> &'static str {
        "scan of the index"
    }

    fn step(&mut self) -> Result<Step> {
        let keys = self.left.min(STEP_KEYS);
        if keys > 0
            && let Some(from) = self.from.take()
        {
            let (tables, next) = self.index.tables_from(&from, keys)?;
            self.passed.extend(tables);
            (self.from, self.left) = (next, self.left - keys);
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
