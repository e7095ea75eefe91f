//! A scan by the index: its leaves say in order which block has each key, and the blocks of some
//! keys are read as one batch (SLM-DB, section 4).
//!
//! ```text
//!   leaf -> entries -> what the moment sees of each -> blocks of a run, one batch -> records
//! ```
//! 1. The merge has the memtables of a version, then the tables that waited after that, each as a
//!    source. All else that the moment sees is in tables that are entered.
//! 2. An entry that is too new for the moment says nothing: then the version's tables are searched,
//!    which have what the moment sees. Where that comes often the source is *stale*: a scan of a
//!    past moment is cheaper as a merge of the tables, and the scan begins again as one.
//! 3. A tombstone whose entry goes hides nothing in tables any more, but may in a table that waited
//!    when the scan began. So the source is stale then, too.
//! 4. It holds the tables of its moment, and nothing of the index: between two leaves entries may
//!    change place. What names a table that went is looked up again.
//! 5. Runs grow, as read-ahead does. Of a scan that has come far the next run's blocks are being
//!    read while the records of this one are given out: one run, of which a device has
//!    [`AHEAD_BYTES_MAX`] at the most, and [`AHEAD_RUNS_MAX`] runs in a store: a cursor may stand
//!    for long. What is found wrong there is told when the scan comes to it.

use super::blocks::{Blocks, Named};
use super::{TableIndex, Tables};
use crate::error::Result;
use crate::merge::{RecordSource, Target};
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_pmem::{Entry, LeafEntries};
use thermocline_table::{BlockAddress, RecordKind, Trailer};

/// Keys of the first run at the least, and of any at the most.
const RUN_KEYS_MIN: usize = 4;
const RUN_KEYS_MAX: usize = 1024;
/// Bytes of blocks with which a run ends.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// Keys after which a scan is long: the next run is begun early from then on. One of a few hundred
/// keys reads nothing beyond its last run.
const LONG_KEYS: usize = 1024;
/// Bytes that are read for the next run while this one is given out.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Runs of all scans of a store that are begun early at a time.
const AHEAD_RUNS_MAX: usize = 8;
/// Entries too new for the moment after which tables are merged instead.
const TOO_NEW_MAX: usize = 256;

/// What a scan reads: keys from the first to the second, both included, where there are such.
pub(crate) type KeyBounds = (Option<Vec<u8>>, Option<Vec<u8>>);

/// A scan by the index, and the tables that are to be read beside it.
#[derive(Debug)]
pub(crate) struct Walk {
    pub source: IndexCursor,
    pub waiting: Vec<Arc<Table>>,
}

#[derive(Debug)]
struct Record {
    key: Vec<u8>,
    trailer: Trailer,
    value: Bytes,
    table: FileNumber,
}

/// A record of a run to come.
#[derive(Debug)]
struct Planned {
    key: Vec<u8>,
    source: PlannedSource,
}

#[derive(Debug)]
enum PlannedSource {
    /// In a block that the index names.
    Named(Named),
    /// A tombstone, in that table.
    Tombstone(Trailer, FileNumber),
    /// The index does not say what the moment sees.
    Tables,
}

/// A run to come, and the blocks of its records.
#[derive(Debug)]
struct NextRun {
    records: Vec<Planned>,
    blocks: Blocks,
    /// Where it was begun early.
    _early: Option<Early>,
}

/// One of the runs of a store that are begun early.
#[derive(Debug)]
struct Early(Arc<TableIndex>);

impl Early {
    /// None where there are as many as may be.
    fn of(index: &Arc<TableIndex>) -> Option<Self> {
        let more = |runs: usize| (runs < AHEAD_RUNS_MAX).then_some(runs + 1);
        let counted = index.early_runs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.is_ok().then(|| Self(Arc::clone(index)))
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        self.0.early_runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NextRun {
    /// Its blocks are looked for in the cache, and none is read.
    fn of(records: Vec<Planned>) -> Result<Self> {
        let blocks = Blocks::of(records.iter().filter_map(|planned| Some(planned.wanted()?.1)))?;
        Ok(Self { records, blocks, _early: None })
    }
}

impl Planned {
    /// What is to be read in a block.
    fn wanted(&self) -> Option<(&[u8], &Named)> {
        match &self.source {
            PlannedSource::Named(named) => Some((&self.key, named)),
            PlannedSource::Tombstone(..) | PlannedSource::Tables => None,
        }
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct IndexCursor {
    index: Arc<TableIndex>,
    tables: Arc<Tables>,
    levels: Arc<Levels>,
    snapshot: Sequence,
    bounds: KeyBounds,
    /// Entries of tombstones that had gone when it began; none where no table waited.
    removals: Option<u64>,
    too_new: usize,
    is_stale: bool,
    /// Entries of a leaf that are in no run yet, in the order of the walk, and where it goes on.
    ahead: VecDeque<(Vec<u8>, Entry)>,
    rest: Option<Vec<u8>>,
    run: Vec<Record>,
    at: usize,
    /// The run after `run`, where it was begun.
    begun: Option<Result<NextRun>>,
    /// Keys of all runs since the cursor was positioned.
    keys: usize,
    first_keys: usize,
    next_keys: usize,
    is_forward: bool,
}

impl TableIndex {
    /// A scan over what `snapshot` sees; `levels` are of a version that was taken before. None
    /// where tables have newer records than that: then a merge of them is cheaper.
    pub fn walk(
        self: &Arc<Self>,
        levels: &Arc<Levels>,
        bounds: &KeyBounds,
        snapshot: Sequence,
        keys: usize,
    ) -> Option<Walk> {
        let newest = levels.level(0).first().map(|table| table.meta.largest_sequence);
        if newest > Some(snapshot) {
            return None;
        }
        let removals = self.removals.load(Ordering::SeqCst);
        let tables = self.tables.load_full();
        let is_wanted = |table: &&Arc<Table>| {
            table.meta.overlaps(bounds.0.as_deref(), bounds.1.as_deref())
                && table.stored_snapshot(snapshot).is_some()
        };
        let waiting: Vec<_> = tables.waiting.iter().filter(is_wanted).cloned().collect();
        // A cursor stands one entry ahead of what it gives out.
        let first_keys = (keys + 1).clamp(RUN_KEYS_MIN, RUN_KEYS_MAX);
        let source = IndexCursor {
            index: Arc::clone(self),
            tables,
            levels: Arc::clone(levels),
            snapshot,
            bounds: bounds.clone(),
            removals: Some(removals).filter(|_| !waiting.is_empty()),
            too_new: 0,
            is_stale: false,
            ahead: VecDeque::new(),
            rest: None,
            run: Vec::new(),
            at: 0,
            begun: None,
            keys: 0,
            first_keys,
            next_keys: first_keys,
            is_forward: true,
        };
        Some(Walk { source, waiting })
    }
}

impl IndexCursor {
    /// The next entry inside the bounds.
    fn next_entry(&mut self) -> Result<Option<(Vec<u8>, Entry)>> {
        while self.ahead.is_empty()
            && let Some(rest) = self.rest.take()
        {
            let tree = &self.index.tree;
            let found =
                if self.is_forward { tree.ascend(&rest) } else { tree.descend(Some(&rest)) };
            self.go_on_with(found.map_err(|error| self.index.named(&error))?);
        }
        let Some((key, entry)) = self.ahead.pop_front() else { return Ok(None) };
        let is_inside = match (&self.bounds, self.is_forward) {
            ((_, Some(to)), true) => key <= *to,
            ((Some(from), _), false) => key >= *from,
            _ => true,
        };
        if !is_inside {
            self.go_on_with(LeafEntries::default());
            return Ok(None);
        }
        Ok(Some((key, entry)))
    }

    fn go_on_with(&mut self, found: LeafEntries) {
        (self.ahead, self.rest) = (found.entries.into(), found.rest);
    }

    /// Reads on until the moment sees something, or there is nothing more.
    fn next_run(&mut self) -> Result<()> {
        self.run.clear();
        self.at = 0;
        while self.run.is_empty() && !self.is_stale {
            let next = self.begun.take().unwrap_or_else(|| self.plan())?;
            if next.records.is_empty() {
                return Ok(());
            }
            let is_long = self.keys >= LONG_KEYS;
            self.keys += next.records.len();
            self.read(next)?;
            if is_long
                && !self.is_stale
                && let Some(early) = Early::of(&self.index)
            {
                let begun = self.plan();
                self.begun = Some(begun.map(|mut next| {
                    next.blocks.start(AHEAD_BYTES_MAX);
                    NextRun { _early: Some(early), ..next }
                }));
            }
        }
        Ok(())
    }

    /// The next run; without a record at the end.
    fn plan(&mut self) -> Result<NextRun> {
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
        while entries.len() < self.next_keys && bytes < RUN_BYTES_MAX {
            let Some((key, entry)) = self.next_entry()? else { break };
            let block = Some((entry.table, entry.block_offset));
            if std::mem::replace(&mut last, block) != block {
                bytes += u64::from(entry.block_bytes);
            }
            entries.push((key, entry));
        }
        self.next_keys = (2 * self.next_keys).min(RUN_KEYS_MAX);
        let mut records = Vec::with_capacity(entries.len());
        for (key, entry) in entries {
            let trailer = self.index.trailer(&entry)?;
            let is_too_new = trailer.sequence() > self.snapshot;
            let source = match trailer.kind() {
                _ if is_too_new => PlannedSource::Tables,
                RecordKind::Delete => PlannedSource::Tombstone(trailer, entry.table),
                _ => self.table(entry.table).map_or(PlannedSource::Tables, |table| {
                    let (offset, len) = (entry.block_offset, entry.block_bytes);
                    let address = BlockAddress { offset, len };
                    PlannedSource::Named(Named { trailer, table, address })
                }),
            };
            records.push(Planned { key, source });
            self.too_new += usize::from(is_too_new);
            if self.too_new > TOO_NEW_MAX {
                break;
            }
        }
        NextRun::of(records)
    }

    /// The records of `next` that the moment sees.
    fn read(&mut self, next: NextRun) -> Result<()> {
        let NextRun { records, blocks, _early } = next;
        let wanted: Vec<_> = records.iter().filter_map(Planned::wanted).collect();
        let mut values = blocks.values(&wanted)?.into_iter();
        for Planned { key, source } in records {
            let (trailer, value, table) = match source {
                PlannedSource::Named(named) => {
                    let value = values.next().expect("each record of the index has a value");
                    (named.trailer, value, named.table.meta.number)
                }
                PlannedSource::Tombstone(trailer, table) => (trailer, Bytes::new(), table),
                PlannedSource::Tables => {
                    let found = self.index.find_newest(&self.levels, &key, self.snapshot)?;
                    let Some(found) = found else { continue };
                    (found.trailer, found.value, found.table)
                }
            };
            self.run.push(Record { key, trailer, value, table });
        }
        self.is_stale = self.too_new > TOO_NEW_MAX;
        Ok(())
    }

    fn table(&self, number: FileNumber) -> Option<Arc<Table>> {
        let newer = || self.index.tables.load().all.get(&number).cloned();
        self.tables.all.get(&number).cloned().or_else(newer)
    }
}

impl RecordSource for IndexCursor {
    fn current(&self) -> Option<(&[u8], Trailer)> {
        self.run.get(self.at).map(|record| (&record.key[..], record.trailer))
    }

    fn value(&self) -> Bytes {
        self.run.get(self.at).map(|record| record.value.clone()).unwrap_or_default()
    }

    fn value_slice(&self) -> &[u8] {
        self.run.get(self.at).map_or(&[], |record| &record.value)
    }

    fn table(&self) -> Option<FileNumber> {
        self.run.get(self.at).map(|record| record.table)
    }

    fn position(&mut self, to: Target<'_>) -> Result<()> {
        let tree = &self.index.tree;
        self.is_forward = matches!(to, Target::First | Target::From(_));
        let found = match to {
            Target::First => tree.ascend(b""),
            Target::From(key) => tree.ascend(key),
            Target::Last => tree.descend(None),
            Target::UpTo(key) => tree.descend(Some(&[key, &[0]].concat())),
            Target::Before(key) => tree.descend(Some(key)),
        };
        self.go_on_with(found.map_err(|error| self.index.named(&error))?);
        (self.next_keys, self.keys, self.begun) = (self.first_keys, 0, None);
        self.next_run()
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        debug_assert_eq!(forward, self.is_forward, "a merge is positioned before it turns");
        self.at += 1;
        if self.at < self.run.len() { Ok(()) } else { self.next_run() }
    }

    fn is_stale(&self) -> bool {
        let removals = || self.index.removals.load(Ordering::SeqCst);
        self.is_stale || self.removals.is_some_and(|before| before != removals())
    }
}
