//! Reading: memtables first, then tables from the newest to the oldest.
//!
//! A look-up takes the read state, then the visible sequence (in this order: an edit may drop
//! versions that an older sequence would need), and touches no lock. `multi_get` goes in rounds:
//! each round asks every unanswered key's next tables until it needs a block that is not cached,
//! then reads all those blocks, on all tiers, as one batch. It counts, and moves records up, as
//! that many look-ups do.

use crate::error::Result;
use crate::front::memtable::MemtableCursor;
use crate::front::slabs::FastTier;
use crate::front::slabs::cursor::SlotCursor;
use crate::front::slabs::lookup::{Reader, trailer_of};
use crate::iterator::{Cursor, Renewal, ScanRange};
use crate::merge::{LevelCursor, Merge, Source, Tables};
use crate::snapshot::Snapshot;
use crate::state::{Engine, ReadState};
use crate::table_set::levels::{LEVELS, Levels, Located, may_overlap, settles};
use crate::table_set::table::Table;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_device::{ReadAt, read_batch};
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::{
    Block, BlockAddress, Lookup, Probe, ReadAhead, RecordKind, Trailer, key_hash,
};

/// Bytes that a record is taken to have when an expected number of bytes is turned into keys.
const RECORD_BYTES_GUESS: u64 = 1 << 10;

/// Bytes that a scan's first read of a place has beside the part of the scan that lies there.
const SHARE_SPARE_BYTES: u32 = 4096;

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
        if let Some(fast) = &self.fast {
            return self.get_hybrid(fast, key, snapshot);
        }
        let state = self.read_state.load();
        let snapshot = snapshot.unwrap_or_else(|| self.visible());
        self.metrics.gets.add(1);
        if let Some(found) = state.get_in_memory(key, snapshot) {
            self.metrics.memtable_hits.add(1);
            return Ok(live(Some(found)));
        }
        Ok(live(state.levels.get(key, snapshot)?))
    }

    /// As [`Engine::get`], where records are on a fast tier too.
    fn get_hybrid(
        &self,
        fast: &FastTier,
        key: &[u8],
        snapshot: Option<Sequence>,
    ) -> Result<Option<Bytes>> {
        self.metrics.gets.add(1);
        let hash = key_hash(key);
        // Kept for the question whether a load has a newer version, which a later state would not
        // answer.
        let before = self.read_state.load();
        if let Some(found) = before.get_in_memory(key, snapshot.unwrap_or_else(|| self.visible())) {
            self.metrics.memtable_hits.add(1);
            self.answered_above(fast, hash, found.0);
            return Ok(live(Some(found)));
        }
        let found = fast.get(key, snapshot)?;
        // What was demoted since is in the tables of now. They may have dropped what only the
        // moment above would see, so without a registered snapshot that moment is now too.
        let state = self.read_state.load();
        let below = match &found {
            Some((trailer, _))
                if planted(Planted::IngestHiddenBySlot)
                    || !before.may_be_loaded_over(key, hash, trailer.sequence()) =>
            {
                None
            }
            _ => {
                let snapshot = snapshot.unwrap_or_else(|| self.visible());
                let look_up = || state.levels.find_newest(key, snapshot);
                fast.regulation.read_waits.for_tables(look_up)?
            }
        };
        match below {
            Some(below) if found.as_ref().is_none_or(|(above, _)| below.trailer > *above) => {
                let Located { trailer, value, table } = below;
                self.metrics.slow_reads.add(1);
                if snapshot.is_none() {
                    self.consider_promotion(key, hash, (trailer, &value), table);
                }
                Ok(live(Some((trailer, value))))
            }
            _ => {
                match &found {
                    Some((trailer, _)) => self.answered_above(fast, hash, *trailer),
                    None => self.metrics.absent_reads.add(1),
                }
                Ok(live(found))
            }
        }
    }

    /// The values of `keys`, in their order.
    pub fn multi_get(
        &self,
        keys: &[&[u8]],
        snapshot: Option<Sequence>,
    ) -> Result<Vec<Option<Bytes>>> {
        // Held to the end, so that no version is dropped for which the keys' moment is too late.
        let registered = (self.fast.is_some() && snapshot.is_none()).then(|| self.snapshot());
        let state = self.read_state.load_full();
        let moment = snapshot.or_else(|| registered.as_ref().map(Snapshot::sequence));
        let moment = moment.unwrap_or_else(|| self.visible());
        self.multi_get_at(keys, moment, state, snapshot.is_none())
    }

    /// As [`Engine::multi_get`]; `is_now` where nobody asked for the moment of `snapshot`.
    fn multi_get_at(
        &self,
        keys: &[&[u8]],
        snapshot: Sequence,
        mut state: Arc<ReadState>,
        is_now: bool,
    ) -> Result<Vec<Option<Bytes>>> {
        let mut results = vec![None; keys.len()];
        let mut left = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            match state.get_in_memory(key, snapshot) {
                Some(found) => {
                    self.metrics.memtable_hits.add(1);
                    if let Some(fast) = &self.fast {
                        self.answered_above(fast, key_hash(key), found.0);
                    }
                    results[index] = live(Some(found));
                }
                None => left.push(index),
            }
        }
        let mut counted = 0;
        if let Some(fast) = &self.fast {
            counted = self.get_in_slots(fast, keys, snapshot, &mut left, &mut results)?;
            state = self.read_state.load_full();
        }
        self.metrics.gets.add((keys.len() - counted) as u64);
        let mut searches: Vec<_> =
            left.iter().map(|index| Search::new(*index, keys[*index], snapshot, &state)).collect();
        while !searches.is_empty() {
            let mut wanted = Vec::new();
            for mut search in std::mem::take(&mut searches) {
                match search.advance()? {
                    None => {
                        let index = search.index;
                        results[index] = live(self.answered_below(search, is_now));
                    }
                    Some(address) => wanted.push((search, address)),
                }
            }
            searches = fetch(wanted)?;
        }
        Ok(results)
    }

    /// Counts a look-up that memory above the fast tier, or the tier, has answered. A deleted key
    /// is none to keep up here.
    fn answered_above(&self, fast: &FastTier, hash: u64, found: Trailer) {
        self.metrics.fast_reads.add(1);
        if found.kind() == RecordKind::Put {
            fast.popularity.touch(hash, true);
        }
    }

    /// What a search of the tables found, counted and offered for promotion where there is a fast
    /// tier.
    fn answered_below(&self, search: Search<'_>, is_now: bool) -> Found {
        let Search { key, hash, snapshot, newest, .. } = search;
        if newest.is_none() {
            self.metrics.absent_reads.add(1);
        }
        let (found, table) = newest?;
        if self.fast.is_some() {
            self.metrics.slow_reads.add(1);
            // What the table has of a later moment may be the same key's, and newer: in a slot, the
            // version that was found would stand for it.
            if is_now && table.meta.largest_sequence <= snapshot {
                self.consider_promotion(key, hash, (found.0, &found.1), table.meta.number);
            }
        }
        Some(found)
    }

    /// Answers those of `left` whose records are on the fast tier, in one batch of reads, and takes
    /// them off the list. Says how many look-ups it has counted as such.
    fn get_in_slots(
        &self,
        fast: &FastTier,
        keys: &[&[u8]],
        snapshot: Sequence,
        left: &mut Vec<usize>,
        results: &mut [Option<Bytes>],
    ) -> Result<usize> {
        let before = self.read_state.load();
        let known = |index: &usize| {
            let key = keys[*index];
            let entry = fast.entry(key, Some(snapshot))?;
            let over = before.may_be_loaded_over(key, key_hash(key), entry.sequence);
            (!over).then_some((*index, entry))
        };
        let found: Vec<_> = left.iter().filter_map(known).collect();
        let wanted: Vec<_> = found.iter().map(|(index, entry)| (keys[*index], *entry)).collect();
        let values = fast.values(&wanted, Reader::LookUp);
        let mut answered = vec![false; keys.len()];
        for ((index, entry), value) in found.into_iter().zip(values) {
            let found = match value {
                Some(value) => Some((trailer_of(&entry), value)),
                None => fast.get(keys[index], Some(snapshot))?,
            };
            if let Some(found) = found {
                self.answered_above(fast, key_hash(keys[index]), found.0);
                results[index] = live(Some(found));
                answered[index] = true;
            }
        }
        left.retain(|index| !answered[*index]);
        let mut counted = 0;
        // A bulk load newer than a record in a slot: rare enough for the plain way.
        if before.has_loads() {
            for index in std::mem::take(left) {
                match fast.entry(keys[index], Some(snapshot)) {
                    Some(_) => {
                        results[index] = self.get_hybrid(fast, keys[index], Some(snapshot))?;
                        counted += 1;
                    }
                    None => left.push(index),
                }
            }
        }
        Ok(counted)
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.take(|| self.visible())
    }

    /// A cursor over the records of `range` at `snapshot`. `expected_bytes` sizes the first read of
    /// each table.
    pub fn cursor(
        self: &Arc<Self>,
        range: &ScanRange,
        snapshot: Snapshot,
        expected_bytes: u32,
    ) -> Cursor {
        if snapshot.require_owner().is_err() {
            // As every movement of it says.
            return Cursor::new(Merge::unpositioned(Vec::new()), snapshot, None);
        }
        self.metrics.scans.add(1);
        let sources = self.sources(range, snapshot.sequence(), expected_bytes);
        let renewal = self.fast.is_some().then(|| {
            let (engine, range) = (Arc::clone(self), range.clone());
            Box::new(Renewal { engine, range, expected_bytes })
        });
        Cursor::new(Merge::new(sources), snapshot, renewal)
    }

    /// Everything that has records of `range` for `snapshot`.
    pub fn sources(
        self: &Arc<Self>,
        range: &ScanRange,
        snapshot: Sequence,
        expected_bytes: u32,
    ) -> Vec<Source> {
        // Before the state: what leaves the fast tier from here on is missed by its cursor.
        let departures = self.fast.as_ref().map(FastTier::departures);
        let state = self.read_state.load_full();
        let memtables = std::iter::once(&state.active)
            .chain(state.frozen.iter().map(|frozen| &frozen.memtable))
            .filter(|memtable| memtable.count() > 0);
        let mut sources = Vec::new();
        let share = Shares::of(self, &state.levels);
        if let Some(departures) = departures {
            // First of all: the sooner it is positioned, the less can have left since.
            let keys = u64::from(share.of_slots(expected_bytes)) / RECORD_BYTES_GUESS;
            let cursor = SlotCursor::new(self, snapshot, departures, keys as usize);
            sources.push(Source::Slots(Box::new(cursor)));
        }
        sources.extend(
            memtables.map(|table| Source::Memtable(MemtableCursor::new(Arc::clone(table)))),
        );
        let bound = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        let (from, to) = (bound(&range.from), bound(&range.to));
        let window_bytes_max =
            scan_window_bytes(self.settings.memory.0, state.levels.level(0).len());
        for level in 0..LEVELS {
            let first_bytes = share.of_level(level, expected_bytes);
            let read_ahead = ReadAhead::Adaptive { first_bytes, window_bytes_max };
            // Without an end to stop at, and with nothing in it that must not be seen, the level
            // serves as it is.
            let whole = !may_overlap(level)
                && to.is_none()
                && state.levels.newest_ingest(level) <= snapshot;
            if whole {
                if !state.levels.level(level).is_empty() {
                    let tables = Tables::Level(Arc::clone(&state.levels), level);
                    sources.push(Source::Level(Box::new(LevelCursor::new(tables, read_ahead))));
                }
                continue;
            }
            let mut tables = state.levels.overlapping(level, from.as_deref(), to.as_deref());
            tables.retain(|table| table.stored_snapshot(snapshot).is_some());
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
        sources
    }
}

/// How a scan's records are spread over slots and levels, where they are in several places of about
/// the same weight: what a scan expects to read, it expects to find there by these shares. Without
/// slots most is in the deepest level, and every level is read as if it had all.
struct Shares<'a> {
    levels: &'a Levels,
    slots: u64,
    /// Entries of all; none where levels are not weighed.
    total: Option<u64>,
}

impl<'a> Shares<'a> {
    fn of(engine: &Engine, levels: &'a Levels) -> Self {
        let slots = engine.fast.as_ref().map(|fast| fast.index.slot_records());
        let total = slots.map(|slots| slots + levels.entries().iter().sum::<u64>());
        Self { levels, slots: slots.unwrap_or(0), total }
    }

    fn of_slots(&self, bytes: u32) -> u32 {
        self.part(self.slots, bytes)
    }

    fn of_level(&self, level: usize, bytes: u32) -> u32 {
        self.part(self.levels.entries()[level], bytes)
    }

    /// The part of `bytes` that lies where `entries` are, and half as much again with a page: a
    /// second read is dearer than what a somewhat longer one reads in vain.
    fn part(&self, entries: u64, bytes: u32) -> u32 {
        let Some(total) = self.total.filter(|total| *total > 0) else { return bytes };
        let part = u128::from(bytes) * u128::from(entries) * 3 / 2 / u128::from(total);
        (part as u32).saturating_add(SHARE_SPARE_BYTES).min(bytes)
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
    /// The newest version so far, and the table that has it.
    newest: Option<((Trailer, Bytes), Arc<Table>)>,
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
            if self.newest.as_ref().is_some_and(|((best, _), _)| settles(*best, level, &table)) {
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

    fn look(&mut self, table: &Arc<Table>, block: &Block) -> Result<()> {
        let Some(snapshot) = table.stored_snapshot(self.snapshot) else { return Ok(()) };
        let found = match table.reader()?.get_in(block, self.key, snapshot)? {
            Lookup::Found(trailer, value) => Some((table.trailer(trailer), value)),
            Lookup::Absent => None,
            // So many versions that they run over into the next block; rare enough for the plain
            // way.
            Lookup::NextBlock => table.get(self.key, self.snapshot)?,
        };
        if let Some(found) = found
            && self.newest.as_ref().is_none_or(|((best, _), _)| found.0 > *best)
        {
            self.newest = Some((found, Arc::clone(table)));
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

#[cfg(test)]
mod tests {
    use crate::Db;
    use crate::support::{hybrid, stepped};

    /// A store with a record in a table, one in a slot, a tombstone in each, and one in memory.
    fn spread() -> Db {
        let db = stepped(&hybrid());
        // A snapshot keeps the tombstones and what they hide.
        let put = |key| db.put(key, "value").unwrap();
        put("deleted in table");
        let kept = db.snapshot();
        db.delete("deleted in table").unwrap();
        put("table");
        db.compact_range(None, None, &mut |_| {}).unwrap();
        put("slot");
        put("deleted in slot");
        db.delete("deleted in slot").unwrap();
        db.flush().unwrap();
        put("memory");
        drop(kept);
        db
    }

    const KEYS: [&str; 6] =
        ["table", "slot", "deleted in table", "deleted in slot", "memory", "nowhere"];

    /// What is counted of look-ups: all, answered by memory, by it or the fast tier, by tables;
    /// keys that are tracked, by popularity; records that moved up.
    fn counts(db: &Db) -> ([u64; 6], Vec<u64>) {
        db.settle().unwrap();
        let stats = db.stats();
        let fast = stats.fast_tier.unwrap();
        let counts = [
            stats.operations.gets,
            db.engine().metrics.memtable_hits.get(),
            fast.fast_reads,
            fast.slow_reads,
            fast.tracked_keys,
            fast.promoted_records,
        ];
        (counts, fast.histogram)
    }

    #[test]
    fn look_ups_in_a_batch_count_and_move_records_up_as_single_ones_do() {
        let (single, batched) = (spread(), spread());
        for round in 0..3 {
            let one_by_one: Vec<_> = KEYS.iter().map(|key| single.get(key).unwrap()).collect();
            let values = batched.multi_get(&KEYS).unwrap();
            assert_eq!(values, one_by_one);
            assert_eq!(values.iter().flatten().count(), 3);
            assert_eq!(counts(&batched), counts(&single), "round {round}");
        }
        let ([gets, in_memory, fast_reads, slow_reads, tracked, promoted], _) = counts(&batched);
        // The third time memory has a copy of the table's record.
        assert_eq!([gets, in_memory, fast_reads, slow_reads], [18, 3, 10, 5]);
        assert_eq!((tracked, promoted), (3, 1), "keys that are deleted are not tracked");
    }

    #[test]
    fn look_ups_of_a_snapshot_move_nothing_up() {
        let db = spread();
        let snapshot = db.snapshot();
        for _ in 0..3 {
            snapshot.multi_get(&KEYS).unwrap();
        }
        let ([gets, .., promoted], _) = counts(&db);
        assert_eq!((gets, promoted), (18, 0));
    }

    /// Another version came to the table between the moment of the look-ups and their search.
    #[test]
    fn a_version_that_the_table_has_a_newer_one_of_does_not_move_up() {
        let db = stepped(&hybrid());
        db.put("key", "old").unwrap();
        let moment = db.engine().snapshot();
        db.put("key", "new").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        for _ in 0..2 {
            let state = db.engine().read_state.load_full();
            let found = db.engine().multi_get_at(&[b"key"], moment.sequence(), state, true);
            assert_eq!(found.unwrap()[0].as_deref(), Some(&b"old"[..]));
        }
        assert_eq!(counts(&db).0[5], 0);
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn a_record_that_a_bulk_load_replaced_is_counted_once() {
        let db = spread();
        let mut ingest = db.ingest();
        ingest.add("slot", "loaded").unwrap();
        ingest.finish().unwrap();
        let before = counts(&db).0;
        let found = db.multi_get(&["slot", "memory"]).unwrap();
        assert_eq!(found[0].as_deref(), Some(&b"loaded"[..]));
        let after = counts(&db).0;
        let counted: Vec<_> = std::iter::zip(after, before).map(|(a, b)| a - b).collect();
        assert_eq!(counted[..4], [2, 0, 1, 1], "writing stops for a load, memory is flushed");
    }

    #[test]
    fn a_bulk_load_of_other_keys_sends_no_look_up_to_the_tables() {
        let db = spread();
        let mut ingest = db.ingest();
        ["a", "z"].iter().for_each(|key| ingest.add(key, "loaded").unwrap());
        ingest.finish().unwrap();
        let slow_reads = || (db.stats().tiers[1].reads, counts(&db).0[3]);
        // The load's filter is read once.
        assert_eq!(db.get("slot").unwrap().as_deref(), Some(&b"value"[..]));
        let before = slow_reads();
        for _ in 0..3 {
            assert_eq!(db.get("slot").unwrap().as_deref(), Some(&b"value"[..]));
            assert_eq!(db.multi_get(&["slot"]).unwrap()[0].as_deref(), Some(&b"value"[..]));
            assert_eq!(db.get("deleted in slot").unwrap(), None);
        }
        assert_eq!(slow_reads(), before);
        assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"loaded"[..]));
    }
}
