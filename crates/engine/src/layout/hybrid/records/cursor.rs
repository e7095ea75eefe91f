//! Walking the fast tier in key order, as one source of a merge.
//!
//! A cursor copies a batch of keys out of the index and reads their slots in runs, of which each is
//! one batch of reads: all of the batch, unless values are long. Batches grow, as read-ahead does.
//! It holds nothing of the index meanwhile, so two things can have happened when it comes for the
//! next run:
//! 1. Records have been replaced. What the cursor's snapshot sees of them is still there, for it is
//!    registered, or came in since from a memtable that the merge has too: another slot, and where
//!    it came in another version, which may be a tombstone.
//! 2. Records have been demoted. They are in tables that the merge does not have: the source is
//!    *stale*, says so, and the scan that drives the merge begins again with the tables of now.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::records::lookup::{Reader, trailer_of};
use crate::merge::{RecordSource, Target};
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::{Planted, planted};
use thermocline_index::{Entry, IndexBatch};
use thermocline_table::Trailer;

/// Keys of the first batch at the least, and of any at the most.
const BATCH_MIN: usize = 4;
const BATCH_MAX: usize = 512;
/// Bytes of keys and values with which a run ends.
const RUN_BYTES_MAX: u64 = 1 << 20;
/// Bytes of slots with which the first one ends: what they become is known afterwards only.
const FIRST_RUN_BYTES_MAX: u64 = RUN_BYTES_MAX / 16;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct SlotCursor {
    hybrid: Arc<Hybrid>,
    snapshot: Sequence,
    /// Departures from the index before the tables of the merge were chosen.
    departures: u64,
    stale: bool,
    batch: IndexBatch,
    /// Keys of the batch whose slots have been read.
    read: usize,
    /// The visible version of each key read last that has one, in the order of the walk.
    run: Vec<(usize, Trailer, Bytes)>,
    /// Why the last of the run has no value, where its slot is damaged.
    damage: Option<Error>,
    at: usize,
    /// Bytes of the records of all runs, and what slots have of them.
    unpacked_bytes: u64,
    stored_bytes: u64,
    next_keys: usize,
    forward: bool,
}

impl SlotCursor {
    /// A cursor over what `snapshot` sees; `departures` is from before the tables were chosen.
    pub fn new(hybrid: &Arc<Hybrid>, snapshot: Sequence, departures: u64, keys: usize) -> Self {
        Self {
            hybrid: Arc::clone(hybrid),
            snapshot,
            departures,
            stale: false,
            batch: IndexBatch::new(),
            read: 0,
            run: Vec::new(),
            damage: None,
            at: 0,
            unpacked_bytes: 0,
            stored_bytes: 0,
            next_keys: keys.clamp(BATCH_MIN, BATCH_MAX),
            forward: true,
        }
    }

    fn load(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let hybrid = Arc::clone(&self.hybrid);
        let fast = &hybrid.fast;
        fast.damage.admit_scan()?;
        self.copy_keys(fast, from);
        self.next_run()
    }

    /// Reads on, in this batch or the next ones, until something is visible, all is read or it is
    /// stale.
    fn next_run(&mut self) -> Result<()> {
        let hybrid = Arc::clone(&self.hybrid);
        let fast = &hybrid.fast;
        self.run.clear();
        self.damage = None;
        self.at = 0;
        while self.run.is_empty() && !self.stale {
            if self.read < self.batch.len() {
                self.read_slots(fast)?;
            } else if self.batch.is_end() {
                break;
            } else {
                let last = self.batch.last_key().unwrap_or_default().to_vec();
                self.copy_keys(fast, Bound::Excluded(&last));
            }
        }
        Ok(())
    }

    /// Copies the next keys out of the index.
    fn copy_keys(&mut self, fast: &FastTier, from: Bound<&[u8]>) {
        let keys = self.next_keys;
        self.next_keys = (2 * keys).min(BATCH_MAX);
        self.batch.clear();
        self.read = 0;
        if self.forward {
            fast.index.ascend(from, Bound::Unbounded, keys, &mut self.batch);
        } else {
            fast.index.descend(Bound::Unbounded, from, keys, &mut self.batch);
        }
        // Asked after the run was copied: what left earlier is missing from it.
        self.stale =
            fast.index.departures() != self.departures && !planted(Planted::CursorMissesDepartures);
    }

    /// Reads what the snapshot sees of the keys that were copied, from the first one not read on.
    fn read_slots(&mut self, fast: &FastTier) -> Result<()> {
        // What is in memory only is in the merge's tables too.
        let visible = |versions: &[Entry]| {
            let newest = versions.iter().find(|entry| entry.sequence <= self.snapshot);
            newest.filter(|entry| entry.has_slot()).copied()
        };
        let bytes_max = match self.unpacked_bytes {
            0 => FIRST_RUN_BYTES_MAX,
            unpacked => RUN_BYTES_MAX * self.stored_bytes / unpacked,
        };
        let (mut seen, mut bytes) = (Vec::new(), 0);
        while self.read < self.batch.len() && bytes <= bytes_max {
            if let Some(entry) = visible(self.batch.versions(self.read)) {
                bytes += u64::from(entry.record_bytes);
                seen.push((self.read, entry));
            }
            self.read += 1;
        }
        let wanted: Vec<_> = seen.iter().map(|(at, entry)| (self.batch.key(*at), *entry)).collect();
        let values = fast.values(&wanted, Reader::Cursor);
        for ((at, entry), value) in seen.into_iter().zip(values) {
            let found = match value {
                Some(value) => Some((trailer_of(&entry), value)),
                // The slot was given away since the keys were copied: ask for what is there now.
                None => match fast.get(self.batch.key(at), Some(self.snapshot)) {
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        // The next run begins behind it.
                        self.run.push((at, trailer_of(&entry), Bytes::new()));
                        (self.damage, self.read) = (Some(error), at + 1);
                        return Ok(());
                    }
                    found => found?,
                },
            };
            let Some((trailer, value)) = found else {
                // It left for tables.
                self.stale = true;
                self.run.clear();
                return Ok(());
            };
            self.unpacked_bytes += (self.batch.key(at).len() + value.len()) as u64;
            self.stored_bytes += u64::from(entry.record_bytes);
            self.run.push((at, trailer, value));
        }
        Ok(())
    }
}

impl RecordSource for SlotCursor {
    /// Records left the index for tables that this cursor's merge does not have.
    fn is_stale(&self) -> bool {
        self.stale
    }

    fn current(&self) -> Option<(&[u8], Trailer)> {
        let (at, trailer, _) = self.run.get(self.at)?;
        Some((self.batch.key(*at), *trailer))
    }

    fn value(&self) -> Bytes {
        self.run.get(self.at).map(|(_, _, value)| value.clone()).unwrap_or_default()
    }

    fn value_slice(&self) -> &[u8] {
        self.run.get(self.at).map_or(&[], |(_, _, value)| value)
    }

    /// Why the current record has no value: its slot is damaged. The cursor goes on all the same.
    fn damage(&self) -> Option<&Error> {
        self.damage.as_ref().filter(|_| self.at + 1 == self.run.len())
    }

    fn position(&mut self, to: Target<'_>) -> Result<()> {
        let (Target::First | Target::From(_)) = to else {
            self.forward = false;
            let bound = match to {
                Target::UpTo(key) => Bound::Included(key),
                Target::Before(key) => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            return self.load(bound);
        };
        self.forward = true;
        let bound = match to {
            Target::From(key) => Bound::Included(key),
            _ => Bound::Unbounded,
        };
        self.load(bound)
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        debug_assert_eq!(forward, self.forward, "a merge turns by positioning");
        self.at += 1;
        if self.at < self.run.len() {
            return Ok(());
        }
        self.next_run()
    }
}

impl FastTier {
    /// To be asked before the tables of a merge are chosen; see [`SlotCursor::new`].
    pub fn departures(&self) -> u64 {
        self.index.departures()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{hybrid, stepped, stepped_environment, tier};
    use crate::{Compression, Db, HybridSettings, Settings};
    use std::path::Path;
    use thermocline_table::RecordKind;

    fn cursor(db: &Db) -> SlotCursor {
        let engine = Arc::clone(db.engine());
        let departures = engine.hybrid().fast.departures();
        SlotCursor::new(engine.hybrid(), engine.versions().visible(), departures, BATCH_MIN)
    }

    /// A flush replaces records between a cursor's look at the index and its reads, and their slots
    /// hold others already: what is found then is the tombstone, not a record that has its sequence
    /// and nothing in it.
    #[test]
    fn a_record_that_was_deleted_while_its_slot_was_to_be_read_is_a_tombstone() {
        let db = stepped(&hybrid());
        let fast = &db.engine().hybrid().fast;
        let keys = || (0..64).map(|number| format!("key {number:03}"));
        keys().for_each(|key| db.put(key, "a value").unwrap());
        db.flush().unwrap();
        keys().for_each(|key| db.delete(key).unwrap());
        let mut cursor = cursor(&db);
        cursor.copy_keys(fast, Bound::Unbounded);
        db.flush().unwrap();
        keys().for_each(|key| db.put(format!("a{key}"), "another").unwrap());
        db.flush().unwrap();
        let mut given_away = 0;
        for at in 0..cursor.batch.len() {
            let key = cursor.batch.key(at);
            let entry = cursor.batch.versions(at)[0];
            given_away += usize::from(fast.values(&[(key, entry)], Reader::Cursor)[0].is_none());
        }
        assert!(given_away > 0, "no slot holds another record");
        cursor.read_slots(fast).unwrap();
        assert_eq!(cursor.run.len(), cursor.batch.len());
        let tombstones =
            cursor.run.iter().filter(|(_, trailer, _)| trailer.kind() == RecordKind::Delete);
        assert_eq!(tombstones.count(), given_away);
    }

    #[test]
    fn a_run_of_long_records_ends_before_it_takes_much_memory() {
        let environment = stepped_environment();
        let home = Path::new("/home");
        for record_compression in [Compression::None, Compression::Lz4] {
            let hybrid_settings = HybridSettings { record_compression, ..hybrid().hybrid };
            let home = home.join(format!("{record_compression:?}"));
            let tiers =
                ["fast", "slow"].map(|name| tier(&format!("{}/{name}", home.display()), 64));
            let settings = Settings { tiers: tiers.to_vec(), hybrid: hybrid_settings, ..hybrid() };
            let db = environment.create(&home, &settings).unwrap();
            let bytes = 200 << 10;
            let value = |number: u8| vec![number; bytes];
            (0..60u8).for_each(|number| db.put([number], value(number)).unwrap());
            db.flush().unwrap();
            db.close().unwrap();
            // Nothing is known of how much values shrink.
            let db = environment.open(&home).unwrap();
            assert_eq!(db.stats().fast_tier.unwrap().records, 60);
            for backward in [false, true] {
                let mut cursor = cursor(&db);
                cursor.position(if backward { Target::Last } else { Target::First }).unwrap();
                for at in 0..60 {
                    let number = if backward { 59 - at } else { at };
                    assert_eq!(cursor.current().unwrap().0, [number]);
                    assert_eq!(cursor.value(), value(number));
                    assert!(cursor.run.len() as u64 <= RUN_BYTES_MAX / bytes as u64 + 2);
                    cursor.step(!backward).unwrap();
                }
                assert!(cursor.current().is_none() && !cursor.is_stale());
            }
        }
    }
}
