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
//!
//! Runs grow, as read-ahead does.

use super::blocks::{Named, read_all};
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
            let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
            while entries.len() < self.next_keys && bytes < RUN_BYTES_MAX {
                let Some((key, entry)) = self.next_entry()? else { break };
                let block = Some((entry.table, entry.block_offset));
                if std::mem::replace(&mut last, block) != block {
                    bytes += u64::from(entry.block_bytes);
                }
                entries.push((key, entry));
            }
            if entries.is_empty() {
                return Ok(());
            }
            self.next_keys = (2 * self.next_keys).min(RUN_KEYS_MAX);
            self.read(entries)?;
        }
        Ok(())
    }

    /// The records of `entries` that the moment sees.
    fn read(&mut self, entries: Vec<(Vec<u8>, Entry)>) -> Result<()> {
        let mut named = Vec::new();
        for (key, entry) in entries {
            let trailer = self.index.trailer(&entry)?;
            let is_too_new = trailer.sequence() > self.snapshot;
            if !is_too_new && trailer.kind() == RecordKind::Delete {
                self.run.push(Record { key, trailer, value: Bytes::new(), table: entry.table });
                continue;
            }
            let table = if is_too_new { None } else { self.table(entry.table) };
            if let Some(table) = table {
                let address = BlockAddress { offset: entry.block_offset, len: entry.block_bytes };
                named.push((self.run.len(), Named { trailer, table, address }));
                self.run.push(Record { key, trailer, value: Bytes::new(), table: entry.table });
            } else if let Some(found) = self.index.find_newest(&self.levels, &key, self.snapshot)? {
                let (trailer, value, table) = (found.trailer, found.value, found.table);
                self.run.push(Record { key, trailer, value, table });
            }
            self.too_new += usize::from(is_too_new);
            if self.too_new > TOO_NEW_MAX {
                self.is_stale = true;
                break;
            }
        }
        let wanted: Vec<_> =
            named.iter().map(|(at, named)| (&self.run[*at].key[..], named)).collect();
        let values = read_all(&wanted)?;
        for ((at, _), value) in named.iter().zip(values) {
            self.run[*at].value = value;
        }
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
        self.next_keys = self.first_keys;
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
