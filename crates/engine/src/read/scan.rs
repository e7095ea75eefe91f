//! Scans: everything that has records of a range, as sources of one merge.

use super::Reader;
use super::cursor::{Cursor, Renewal};
use super::range::ScanRange;
use crate::generations::memtable::MemtableCursor;
use crate::limits::LEVELS;
use crate::locator::index::{KeyBounds, Walk};
use crate::merge::{LevelCursor, Merge, Source, Tables};
use crate::table_set::levels::{Levels, may_overlap};
use crate::versions::holders::Holder;
use crate::versions::snapshots::Snapshot;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_table::ReadAhead;

/// Bytes that a record is taken to have when an expected number of bytes is turned into keys.
const RECORD_BYTES_GUESS: u64 = 1 << 10;

/// Bytes that a scan's first read of a place has beside the part of the scan that lies there.
const SHARE_SPARE_BYTES: u32 = 4096;

impl Reader {
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
        self.shared.note_scan();
        let sources = self.sources(range, snapshot.sequence(), expected_bytes);
        let renewal = self.layout.moves_records().then(|| {
            let (reader, range) = (Arc::clone(self), range.clone());
            Box::new(Renewal { reader, range, expected_bytes })
        });
        Cursor::new(Merge::new(sources), snapshot, renewal).with_trail(self.layout.trail())
    }

    /// Everything that has records of `range` for `snapshot`.
    pub fn sources(
        &self,
        range: &ScanRange,
        snapshot: Sequence,
        expected_bytes: u32,
    ) -> Vec<Source> {
        self.sources_newer(range, Sequence::ZERO, snapshot, expected_bytes)
    }

    /// The same, without tables that have nothing newer than `than`.
    pub(super) fn sources_newer(
        &self,
        range: &ScanRange,
        than: Sequence,
        snapshot: Sequence,
        expected_bytes: u32,
    ) -> Vec<Source> {
        // Before the version: what leaves for tables from here on is missed by the cursor.
        let departures = self.layout.departures();
        let state = self.versions.current_full();
        let share = Shares::of(self.layout.records_beside_tables(), &state.levels);
        // First of all: the sooner it is positioned, the less can have left since.
        let keys = u64::from(share.of_slots(expected_bytes)) / RECORD_BYTES_GUESS;
        let mut sources = Vec::new();
        sources.extend(self.layout.source(snapshot, departures, keys as usize));
        let memtables = std::iter::once(&state.active)
            .chain(state.frozen.iter().map(|frozen| &frozen.memtable))
            .filter(|memtable| memtable.count() > 0);
        sources.extend(
            memtables.map(|table| Source::Memtable(MemtableCursor::new(Arc::clone(table)))),
        );
        let bound = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
            Bound::Unbounded => None,
        };
        let bounds = (bound(&range.from), bound(&range.to));
        let is_walked = than == Sequence::ZERO
            && self.walk(&state.levels, &bounds, snapshot, expected_bytes, &mut sources);
        if is_walked {
            return sources;
        }
        let (from, to) = bounds;
        let window_bytes_max = self.scan_window_bytes(state.levels.level(0).len());
        for level in 0..LEVELS {
            let read_ahead = read_ahead(share.of_level(level, expected_bytes), window_bytes_max);
            // Without an end to stop at, and with nothing in it that must not be seen, the level
            // serves as it is.
            let whole = than == Sequence::ZERO
                && !may_overlap(level)
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
            tables.retain(|table| {
                table.stored_snapshot(snapshot).is_some() && table.meta.largest_sequence > than
            });
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

    /// Adds what a scan by an index reads, if there is one that serves this moment.
    fn walk(
        &self,
        levels: &Arc<Levels>,
        bounds: &KeyBounds,
        snapshot: Sequence,
        expected_bytes: u32,
        sources: &mut Vec<Source>,
    ) -> bool {
        let keys = u64::from(expected_bytes) / RECORD_BYTES_GUESS;
        let walk = self.layout.locator().walk(levels, bounds, snapshot, keys as usize);
        let Some(Walk { source, waiting }) = walk else { return false };
        sources.push(Source::Records(Box::new(source)));
        let window_bytes_max = self.scan_window_bytes(waiting.len());
        let read_ahead = read_ahead(expected_bytes, window_bytes_max);
        sources.extend(waiting.into_iter().map(|table| {
            let tables = Tables::Listed(vec![table]);
            Source::Level(Box::new(LevelCursor::new(tables, read_ahead)))
        }));
        true
    }

    /// Bytes that one of a new scan's table iterators reads at once, at most.
    fn scan_window_bytes(&self, single_tables: usize) -> u32 {
        // The new one is among them where it is a scan; a cursor counts once it is made.
        let open_scans = self.versions.holders().count(Holder::Cursor);
        scan_window_bytes(self.shared.settings.memory.0, single_tables, open_scans)
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
    /// Of `levels`, and of the records that the layout has beside them.
    fn of(slots: Option<u64>, levels: &'a Levels) -> Self {
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

/// How a scan reads a table of which it expects to read so many bytes: the first read is no longer
/// than its windows may be.
fn read_ahead(expected_bytes: u32, window_bytes_max: u32) -> ReadAhead {
    ReadAhead::Adaptive { first_bytes: expected_bytes.min(window_bytes_max), window_bytes_max }
}

/// Bytes that one of a scan's table iterators reads at once, at most: all of them together, three
/// windows each, take a thirty-second of the memory budget, or the scan's part of an eighth where
/// more than four scans are open. `single_tables` have an iterator each, beside one for each level.
/// Scans that are open already keep their windows: of hundreds each takes little, and all of them
/// about half of the budget.
fn scan_window_bytes(memory_bytes: u64, single_tables: usize, open_scans: usize) -> u32 {
    let windows = 3 * (single_tables + LEVELS) as u64;
    let scan_bytes = memory_bytes / 8 / open_scans.max(4) as u64;
    (scan_bytes / windows).clamp(16 << 10, 1 << 20) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_that_expects_much_begins_with_a_window_of_its_part_of_the_memory() {
        for (expected_bytes, first_bytes) in [(0, 0), (8192, 8192), (256 << 10, 16 << 10)] {
            let window_bytes_max = 16 << 10;
            let expected = ReadAhead::Adaptive { first_bytes, window_bytes_max };
            assert_eq!(read_ahead(expected_bytes, window_bytes_max), expected);
        }
    }

    #[test]
    fn windows_of_open_scans_share_a_part_of_the_memory() {
        let kib = |memory_mib: u64, single_tables, open_scans| {
            scan_window_bytes(memory_mib << 20, single_tables, open_scans) >> 10
        };
        // Memory in MiB, tables of level 0, open scans: KiB of a window.
        assert_eq!(LEVELS, 7);
        let rows = [
            (64, 0, 1, 97),
            (64, 0, 4, 97),
            (64, 0, 8, 48),
            (64, 9, 1, 42),
            (64, 0, 1000, 16),
            (8192, 0, 1, 1024),
            (8192, 0, 32, 1024),
            (8192, 0, 320, 156),
        ];
        for (memory_mib, tables, scans, window_kib) in rows {
            assert_eq!(kib(memory_mib, tables, scans), window_kib, "{memory_mib} {tables} {scans}");
        }
    }
}
