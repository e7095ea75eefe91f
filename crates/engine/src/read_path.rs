//! Reading: memtables first, then tables from the newest to the oldest.
//!
//! A look-up takes the read state, then the visible sequence (in this order: an edit may drop
//! versions that an older sequence would need), and touches no lock. `multi_get` goes in rounds:
//! each round asks every unanswered key's next tables until it needs a block that is not cached,
//! then reads all those blocks, on all tiers, as one batch.

use crate::error::Result;
use crate::front::memtable::MemtableCursor;
use crate::iterator::{Cursor, ScanRange};
use crate::merge::{LevelCursor, Merge, Source, Tables};
use crate::snapshot::Snapshot;
use crate::state::{Engine, ReadState};
use crate::table_set::levels::{LEVELS, may_overlap, settles};
use crate::table_set::table::Table;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_device::{ReadAt, read_batch};
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::{
    Block, BlockAddress, Lookup, Probe, ReadAhead, RecordKind, Trailer, key_hash,
};

/// What a look-up found: an entry, or nothing of the key.
type Found = Option<(Trailer, Bytes)>;

fn live(found: Found) -> Option<Bytes> {
    found.filter(|(trailer, _)| trailer.kind() == RecordKind::Put).map(|(_, value)| value)
}

impl ReadState {
    fn get_in_memory(&self, key: &[u8], snapshot: Sequence) -> Found {
        let oldest_first = planted(Planted::FrozenReadOldestFirst);
        let oldest = oldest_first.then(|| self.frozen.last()).flatten();
        let oldest = || oldest?.memtable.get(key, snapshot);
        self.active
            .get(key, snapshot)
            .or_else(oldest)
            .or_else(|| self.frozen.iter().find_map(|frozen| frozen.memtable.get(key, snapshot)))
    }
}

impl Engine {
    /// The value of `key` at `snapshot`, or now.
    pub fn get(&self, key: &[u8], snapshot: Option<Sequence>) -> Result<Option<Bytes>> {
        let state = self.read_state.load();
        let snapshot = snapshot.unwrap_or_else(|| self.visible());
        self.metrics.gets.add(1);
        if let Some(found) = state.get_in_memory(key, snapshot) {
            self.metrics.memtable_hits.add(1);
            return Ok(live(Some(found)));
        }
        Ok(live(state.levels.get(key, snapshot)?))
    }

    /// The values of `keys`, in their order.
    pub fn multi_get(
        &self,
        keys: &[&[u8]],
        snapshot: Option<Sequence>,
    ) -> Result<Vec<Option<Bytes>>> {
        let state = self.read_state.load_full();
        let snapshot = snapshot.unwrap_or_else(|| self.visible());
        self.metrics.gets.add(keys.len() as u64);
        let mut results = vec![None; keys.len()];
        let mut searches = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            match state.get_in_memory(key, snapshot) {
                Some(found) => {
                    self.metrics.memtable_hits.add(1);
                    results[index] = live(Some(found));
                }
                None => searches.push(Search::new(index, key, snapshot, &state)),
            }
        }
        while !searches.is_empty() {
            let mut wanted = Vec::new();
            for mut search in std::mem::take(&mut searches) {
                match search.advance()? {
                    None => results[search.index] = live(search.newest),
                    Some(address) => wanted.push((search, address)),
                }
            }
            searches = fetch(wanted)?;
        }
        Ok(results)
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.take(|| self.visible())
    }

    /// A cursor over the records of `range` at `snapshot`. `expected_bytes` sizes the first read of
    /// each table.
    pub fn cursor(&self, range: &ScanRange, snapshot: Snapshot, expected_bytes: u32) -> Cursor {
        let state = self.read_state.load_full();
        let memtables = std::iter::once(&state.active)
            .chain(state.frozen.iter().map(|frozen| &frozen.memtable))
            .filter(|memtable| memtable.count() > 0);
        let mut sources: Vec<_> = memtables
            .map(|table| Source::Memtable(MemtableCursor::new(Arc::clone(table))))
            .collect();
        let bound = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        let (from, to) = (bound(&range.from), bound(&range.to));
        let window_bytes_max =
            scan_window_bytes(self.settings.memory.0, state.levels.level(0).len());
        let read_ahead = ReadAhead::Adaptive { first_bytes: expected_bytes, window_bytes_max };
        for level in 0..LEVELS {
            // Without an end to stop at, and with nothing in it that must not be seen, the level
            // serves as it is.
            let whole = !may_overlap(level)
                && to.is_none()
                && state.levels.newest_ingest(level) <= snapshot.sequence();
            if whole {
                if !state.levels.level(level).is_empty() {
                    let tables = Tables::Level(Arc::clone(&state.levels), level);
                    sources.push(Source::Level(Box::new(LevelCursor::new(tables, read_ahead))));
                }
                continue;
            }
            let mut tables = state.levels.overlapping(level, from.as_deref(), to.as_deref());
            tables.retain(|table| table.stored_snapshot(snapshot.sequence()).is_some());
            if may_overlap(level) {
                sources.extend(tables.into_iter().map(|table| {
                    Source::Level(Box::new(LevelCursor::new(
                        Tables::Listed(vec![table]),
                        read_ahead,
                    )))
                }));
            } else if !tables.is_empty() {
                let tables = Tables::Listed(tables);
                sources.push(Source::Level(Box::new(LevelCursor::new(tables, read_ahead))));
            }
        }
        self.metrics.scans.add(1);
        Cursor::new(Merge::new(sources), snapshot)
    }
}

/// Bytes that one of a scan's table iterators reads at once, at most: all of them together, three
/// windows each, take a thirty-second of the memory budget.
fn scan_window_bytes(memory_bytes: u64, level0_tables: usize) -> u32 {
    let windows = 3 * (level0_tables + LEVELS) as u64;
    (memory_bytes / 32 / windows).clamp(16 << 10, 1 << 20) as u32
}

/// The look-up of one key of a `multi_get`, between rounds.
struct Search<'a> {
    index: usize,
    key: &'a [u8],
    hash: u64,
    snapshot: Sequence,
    candidates: std::vec::IntoIter<(usize, Arc<Table>)>,
    /// The table whose block is being fetched.
    table: Option<Arc<Table>>,
    newest: Found,
}

impl<'a> Search<'a> {
    fn new(index: usize, key: &'a [u8], snapshot: Sequence, state: &ReadState) -> Self {
        let candidates = state.levels.candidates(key);
        let candidates: Vec<_> =
            candidates.map(|(level, table)| (level, Arc::clone(table))).collect();
        Self {
            index,
            key,
            hash: key_hash(key),
            snapshot,
            candidates: candidates.into_iter(),
            table: None,
            newest: None,
        }
    }

    /// Goes through tables until the answer is known (none) or a block must be read.
    fn advance(&mut self) -> Result<Option<BlockAddress>> {
        while let Some((level, table)) = self.candidates.next() {
            if self.newest.as_ref().is_some_and(|(best, _)| settles(*best, level, &table)) {
                break;
            }
            if table.stored_snapshot(self.snapshot).is_none() {
                continue;
            }
            match table.reader()?.probe(self.key, self.hash)? {
                Probe::Absent => {}
                Probe::Cached(block) => self.look(&table, &block)?,
                Probe::Fetch(address) => {
                    self.table = Some(table);
                    return Ok(Some(address));
                }
            }
        }
        Ok(None)
    }

    fn look(&mut self, table: &Table, block: &Block) -> Result<()> {
        let Some(snapshot) = table.stored_snapshot(self.snapshot) else { return Ok(()) };
        let found = match table.reader()?.get_in(block, self.key, snapshot)? {
            Lookup::Found(trailer, value) => Some((table.trailer(trailer), value)),
            Lookup::Absent => None,
            // So many versions that they run over into the next block; rare enough for the plain
            // way.
            Lookup::NextBlock => table.get(self.key, self.snapshot)?,
        };
        if let Some(found) = found
            && self.newest.as_ref().is_none_or(|(best, _)| found.0 > *best)
        {
            self.newest = Some(found);
        }
        Ok(())
    }
}

/// Reads the wanted blocks in one batch and looks the keys up in them.
fn fetch(wanted: Vec<(Search<'_>, BlockAddress)>) -> Result<Vec<Search<'_>>> {
    let mut reads = Vec::with_capacity(wanted.len());
    let mut tables = Vec::with_capacity(wanted.len());
    for (search, _) in &wanted {
        tables.extend(search.table.clone());
    }
    for (table, (_, address)) in tables.iter().zip(&wanted) {
        let file = table.reader()?.file();
        reads.push(ReadAt { file, offset: address.offset, len: address.len as usize });
    }
    let buffers = read_batch(&reads);
    let mut searches = Vec::with_capacity(wanted.len());
    for (((mut search, address), table), buffer) in wanted.into_iter().zip(&tables).zip(buffers) {
        let block = table.reader()?.fetch(address, buffer?)?;
        search.table = None;
        search.look(table, &block)?;
        searches.push(search);
    }
    Ok(searches)
}
