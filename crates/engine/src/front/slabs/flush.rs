//! Flush of a memtable into slots.
//!
//! Records go piece by piece, in key order: slots are found and written. Once all are, or there is
//! no room for the next piece, each slab that they touched is synced, once, and then an edit for
//! each piece makes it live and frees the slots of the versions that it replaces. After the last
//! piece an edit raises the log floor; until then the log has all of them, and recovery finds a
//! record in both places with the same sequence. So the log is made durable before the first piece
//! is. A piece for which there is no room waits for demotions, with nothing written that is not
//! live.
//!
//! Between writing and edit only keys and places are kept; the memtable has the values.

use super::{Arrival, Born, Died, FastTier, Placed, SlotEdit, Written};
use crate::compaction::rewrite::Retention;
use crate::error::{Error, ErrorKind, Result};
use crate::front::memtable::MemtableCursor;
use crate::jobs::{Job, Step};
use crate::manifest::Edit;
use crate::state::{Engine, Frozen, TableState};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::Origin;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, MutexGuard};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_index::{Entry, EntryKind};
use thermocline_table::key_hash;

/// Bytes of keys and values of a piece: a share of the slots' room, so that a piece of a small tier
/// finds its slots soon.
const PIECE_SHARE: u64 = 32;
const PIECE_BYTES_MIN: u64 = 16 << 10;
const PIECE_BYTES_MAX: u64 = 4 << 20;

/// Most records that are written before they are synced and made live: it bounds what is known of
/// them meanwhile.
const WRITTEN_RECORDS_MAX: usize = 1 << 16;
/// Most bytes of them: a sync of more makes those of others wait long.
const WRITTEN_BYTES_MAX: u64 = 32 << 20;

/// How long a flush that found no slot waits before it looks again.
const WAIT: Duration = Duration::from_micros(500);

/// So many looks in a row without room, and without anything that could make any, are for ever.
const STARVED_MAX: u32 = 200;

/// Which memtables may be flushed: all, but while somebody wants a moment at which none is partly
/// in slots those only that were full before.
#[derive(Debug)]
pub(crate) struct FlushGate {
    /// Logs from this number on are held back.
    held_from: AtomicU64,
    /// Held by who holds flushes back.
    holder: Mutex<()>,
}

/// Flushes go on when it is dropped.
#[derive(Debug)]
pub(crate) struct FlushesHeld<'a> {
    gate: &'a FlushGate,
    _holder: MutexGuard<'a, ()>,
}

impl Default for FlushGate {
    fn default() -> Self {
        Self { held_from: AtomicU64::new(u64::MAX), holder: Mutex::new(()) }
    }
}

impl FlushGate {
    /// Holds back the memtables whose log is `log` or a later one. Waits for another who does.
    pub fn hold_from(&self, log: FileNumber) -> FlushesHeld<'_> {
        let holder = self.holder.lock();
        self.held_from.store(log.0, Relaxed);
        FlushesHeld { gate: self, _holder: holder }
    }

    /// The memtable must wait.
    pub fn is_held(&self, frozen: &Frozen) -> bool {
        frozen.log.number.0 >= self.held_from.load(Relaxed)
    }
}

impl Drop for FlushesHeld<'_> {
    fn drop(&mut self) {
        self.gate.held_from.store(u64::MAX, Relaxed);
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct SlotFlush {
    engine: Arc<Engine>,
    frozen: Arc<Frozen>,
    cursor: MemtableCursor,
    started: bool,
    retention: Retention,
    /// Records that wait for slots.
    piece: Vec<Arrival>,
    /// Those that are in slots, and neither durable there nor live.
    written: Option<Written>,
    /// How many of these are in each piece.
    written_pieces: Vec<usize>,
    written_bytes: u64,
    flushed_bytes: u64,
    /// Looks in a row at which there was no room, not even beyond the slots' share of the tier, and
    /// nothing that could make any.
    starved: u32,
}

impl SlotFlush {
    pub fn new(engine: &Arc<Engine>, frozen: Arc<Frozen>) -> Self {
        let retention = Retention::new(engine.snapshots.list(|| engine.visible()), None);
        Self {
            engine: Arc::clone(engine),
            cursor: MemtableCursor::new(Arc::clone(&frozen.memtable)),
            frozen,
            started: false,
            retention,
            piece: Vec::new(),
            written: None,
            written_pieces: Vec::new(),
            written_bytes: 0,
            flushed_bytes: 0,
            starved: 0,
        }
    }

    /// There was no room; `for_ever` where waiting will not make any, as it looks. An error once it
    /// has looked so for long: the tier's disk is full of what is not ours.
    fn note_no_room(&mut self, for_ever: bool) -> Result<()> {
        self.starved = if for_ever { self.starved + 1 } else { 0 };
        if self.starved < STARVED_MAX {
            return Ok(());
        }
        let text = "the fast tier has no room for new records, and nothing more can leave it; free \
                    space there, or raise its capacity";
        Err(Error::new(ErrorKind::OutOfSpace, text))
    }

    /// Takes the next piece from the memtable; false where there is none.
    fn fill(&mut self, bytes_max: u64) -> bool {
        if !std::mem::replace(&mut self.started, true) {
            self.cursor.seek_to_first();
        }
        let mut bytes = 0;
        while let Some(entry) = self.cursor.entry() {
            // All versions of a key at once: what is live of it in slots is always the newest, and
            // a demotion between two pieces could take that and leave an older one to come.
            let goes_on = self.piece.last().is_some_and(|last| last.key[..] == *entry.key());
            let may_cut = !goes_on || planted(Planted::PieceCutsVersions);
            if bytes as u64 >= bytes_max && may_cut {
                break;
            }
            if self.retention.judge(entry.key(), entry.trailer()).0 {
                let (key, value) = (entry.key_bytes(), entry.value());
                bytes += key.len() + value.len();
                let trailer = entry.trailer();
                self.piece.push(Arrival { key, trailer, value, clean: false });
            }
            self.cursor.next();
        }
        self.flushed_bytes += bytes as u64;
        !self.piece.is_empty()
    }

    /// Writes the piece into slots, if need be of more than their share of the tier; false where
    /// there is no room.
    fn write_piece(&mut self, fast: &FastTier, may_overdraw: bool) -> Result<bool> {
        // After a failure nothing of it is of use.
        let mut written = self.written.take();
        let mut write = || fast.write_more(&mut written, &self.piece, Origin::Flush);
        let found_room = if may_overdraw { fast.overdraw(write)? } else { write()? };
        self.written = written;
        if found_room {
            self.written_pieces.push(self.piece.len());
            self.written_bytes += self.piece.iter().map(Arrival::bytes).sum::<u64>();
            self.piece.clear();
            self.starved = 0;
        }
        Ok(found_room)
    }

    /// No more may be written before what is gets synced.
    fn is_full(&self) -> bool {
        let records = self.written.as_ref().map_or(0, Written::len);
        records >= WRITTEN_RECORDS_MAX || self.written_bytes >= WRITTEN_BYTES_MAX
    }

    /// Makes what was written durable and then live; false where nothing was.
    fn settle(&mut self, fast: &FastTier) -> Result<bool> {
        let Some(written) = self.written.take() else { return Ok(false) };
        self.written_bytes = 0;
        let mut placed = written.sync(&fast.slabs)?;
        for count in std::mem::take(&mut self.written_pieces) {
            self.engine.settle_in(fast, placed.split_first(count))?;
            if planted(Planted::FloorRaisedByFirstPiece) {
                let log_floor = Some(self.frozen.next_log);
                let edit = Edit { log_floor, ..Edit::default() };
                self.engine.commit(&mut self.engine.tables.lock(), edit, None)?;
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        let engine = &self.engine;
        engine.metrics.flushed_bytes.add(self.flushed_bytes);
        engine.tempo.flushed(self.flushed_bytes);
        if planted(Planted::LogRetiredBeforeEdit) {
            engine.files.delete_files(&[self.frozen.log.number])?;
        }
        let edit = Edit { log_floor: Some(self.frozen.next_log), ..Edit::default() };
        engine.commit(&mut engine.tables.lock(), edit, Some(&self.frozen))
    }
}

impl Job for SlotFlush {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn step(&mut self) -> Result<Step> {
        let engine = Arc::clone(&self.engine);
        let Some(fast) = &engine.fast else { return Ok(Step::Done) };
        if !self.started && fast.flushes.is_held(&self.frozen) {
            engine.clock.sleep(WAIT);
            return Ok(Step::More);
        }
        if !self.started {
            // A piece makes records durable that come after others in the log, so the log must be
            // durable first: what recovery finds is a prefix of what was written, in whole batches.
            self.frozen.log.seal()?;
            engine.lend_memory(fast);
        }
        let room_bytes = fast.room.limit_bytes / PIECE_SHARE;
        let piece_bytes = room_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        if self.piece.is_empty() && !self.fill(piece_bytes) {
            self.settle(fast)?;
            self.finish()?;
            return Ok(Step::Done);
        }
        if self.is_full() {
            self.settle(fast)?;
        }
        if self.write_piece(fast, false)? || self.settle(fast)? {
            // What became live may have freed slots, for a piece that found none before.
            return Ok(Step::More);
        }
        let is_stuck = fast.room.is_stuck();
        if is_stuck && self.write_piece(fast, true)? {
            return Ok(Step::More);
        }
        engine.latch.check()?;
        self.note_no_room(is_stuck && !fast.slabs.has_held_frees())?;
        fast.room.want(self.piece.iter().map(Arrival::bytes).sum());
        engine.jobs.wake();
        engine.clock.sleep(WAIT);
        Ok(Step::More)
    }
}

impl Drop for SlotFlush {
    fn drop(&mut self) {
        self.frozen.claimed.store(false, Relaxed);
    }
}

impl Engine {
    /// Makes records live that a flush has written, and with it frees the slots of the versions
    /// that nobody can see any more.
    fn settle_in(&self, fast: &FastTier, placed: Placed) -> Result<()> {
        let arrived: Vec<_> = placed.born.iter().map(|new| (new.key.clone(), new.entry)).collect();
        let is_here = |(key, _): &(Bytes, Entry)| fast.index.get(key).is_some();
        let was_here: Vec<bool> = arrived.iter().map(is_here).collect();
        let snapshots = self.snapshots.list(|| self.visible());
        let mut tables = self.tables.lock();
        let died = fast.replaced_by(&placed.born, &snapshots);
        self.commit_placed(&mut tables, Edit::default(), placed, died)?;
        drop(tables);
        fast.room.found();
        for ((key, _), was_here) in arrived.iter().zip(was_here) {
            fast.popularity.touch_write(key_hash(key), was_here);
        }
        fast.forget_deleted(&arrived);
        Ok(())
    }

    /// Makes what was written into slots live, and frees those of `died`.
    pub fn commit_placed(
        &self,
        tables: &mut TableState,
        edit: Edit,
        placed: Placed,
        died: Vec<Died>,
    ) -> Result<()> {
        let Placed { born, reservation } = placed;
        let new_slabs = reservation.new_slabs();
        let numbers: Vec<_> = new_slabs.iter().map(|(number, _)| *number).collect();
        if let Err(error) = self.files.publish(&numbers) {
            // They may or may not be there after the next opening, with the slots of others that
            // were written at the same time.
            reservation.abandon();
            return Err(error.into());
        }
        let slots = SlotEdit { born, died, new_slabs, ..SlotEdit::default() };
        match self.commit_slots(tables, edit, &slots, None) {
            Ok(()) => {
                reservation.commit();
                Ok(())
            }
            Err(error) => {
                // The manifest may or may not have the edit.
                reservation.abandon();
                Err(error)
            }
        }
    }
}

impl FastTier {
    /// Tracks no longer the keys that `records`, which are in slots now, leave deleted.
    fn forget_deleted(&self, records: &[(Bytes, Entry)]) {
        let is_delete = |(_, entry): &&(Bytes, Entry)| entry.kind == EntryKind::Delete;
        for (key, entry) in records.iter().filter(is_delete) {
            // A newer version may have come along, which is what will be asked for.
            let newest = self.index.get(key);
            if newest.is_some_and(|newest| newest.sequence == entry.sequence) {
                self.popularity.forget(key_hash(key));
            }
        }
    }

    /// The versions in slots that nobody can see once `born`, in key order and of a key the newest
    /// first, are there. Each is replaced by the oldest of the born that is newer. Counts the
    /// copies.
    pub(super) fn replaced_by(&self, born: &[Born], snapshots: &[Sequence]) -> Vec<Died> {
        let mut died = Vec::new();
        let mut copies = 0;
        let mut versions = Vec::new();
        for (at, new) in born.iter().enumerate() {
            versions.clear();
            self.index.versions(&new.key, &mut versions);
            let newest = new.entry.sequence;
            let mut newer = newest;
            let next = born.get(at + 1).filter(|next| next.key == new.key);
            let is_replaced = |old: &&Entry| {
                old.sequence <= newest && next.is_none_or(|next| old.sequence > next.entry.sequence)
            };
            for old in versions.iter().filter(is_replaced) {
                // The same record, which recovery found in a slot and in the log.
                let same = old.sequence == new.entry.sequence;
                let seen = |snapshot: &Sequence| (old.sequence..newer).contains(snapshot);
                if same || planted(Planted::SlotReusedUnderSnapshot) || !snapshots.iter().any(seen)
                {
                    died.push(Died::new(new.key.clone(), old));
                    copies += u64::from(old.clean && !same);
                }
                newer = old.sequence;
            }
        }
        self.regulation.copies.replaced.add(copies);
        died
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{hybrid, stepped};
    use thermocline_device::FileKind;

    #[test]
    fn a_key_is_tracked_until_its_tombstone_is_flushed() {
        let db = stepped(&hybrid());
        let keys = ["deleted", "deleted and written again"];
        let tracked = || {
            let fast = db.engine().fast.as_ref().unwrap();
            keys.map(|key| fast.popularity.value(key_hash(key.as_bytes())).is_some())
        };
        keys.iter().for_each(|key| db.put(key, "value").unwrap());
        db.flush().unwrap();
        keys.iter().for_each(|key| drop(db.get(key).unwrap()));
        keys.iter().for_each(|key| db.delete(key).unwrap());
        // Keeps the tombstone before the record, so that both are flushed.
        let between = db.snapshot();
        db.put(keys[1], "another").unwrap();
        assert_eq!(tracked(), [true, true]);
        db.flush().unwrap();
        assert_eq!(tracked(), [false, true]);
        assert_eq!(db.stats().fast_tier.unwrap().records, 3, "both versions were flushed");
        drop(between);
    }

    #[test]
    fn looking_a_deleted_key_up_does_not_have_it_tracked_again() {
        let db = stepped(&hybrid());
        let tracked = || {
            let fast = db.engine().fast.as_ref().unwrap();
            fast.popularity.value(key_hash(b"key")).is_some()
        };
        let look_up = || {
            assert_eq!(db.get("key").unwrap(), None);
            assert_eq!(db.multi_get(&["key"]).unwrap(), [None]);
        };
        db.put("key", "value").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let before = db.snapshot();
        db.delete("key").unwrap();
        look_up();
        assert!(!tracked(), "its tombstone is in the memtable");
        db.flush().unwrap();
        look_up();
        assert!(!tracked(), "its tombstone is in a slot");
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert_eq!(db.stats().fast_tier.unwrap().records, 0);
        look_up();
        assert!(!tracked(), "its tombstone is in a table");
        assert_eq!(before.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }

    /// Between two pieces a demotion may take what is live of a key; an older version that came
    /// after it would be found from then on.
    #[test]
    fn all_versions_of_a_key_are_in_one_piece() {
        let db = stepped(&hybrid());
        let engine = db.engine();
        let mut snapshots = Vec::new();
        for key in ["a", "b", "c"] {
            for version in 0..4 {
                db.put(key, vec![version; 10_000]).unwrap();
                snapshots.push(db.snapshot());
            }
        }
        engine.freeze(&mut engine.leader.lock()).unwrap();
        let frozen = Arc::clone(&engine.read_state.load().frozen[0]);
        let mut flush = SlotFlush::new(engine, frozen);
        for key in ["a", "b", "c"] {
            assert!(flush.fill(PIECE_BYTES_MIN));
            let piece = std::mem::take(&mut flush.piece);
            assert_eq!(piece.len(), 4);
            assert!(piece.iter().all(|arrival| arrival.key == key));
        }
        assert!(!flush.fill(PIECE_BYTES_MIN));
    }

    /// Updates of all over the tier: hardly a run of slots is longer than one.
    #[test]
    fn manifest_and_map_keep_to_their_room_and_are_seldom_written_afresh() {
        let db = stepped(&hybrid());
        let engine = db.engine();
        let (manifest_bytes, map_bytes) =
            (engine.settings.manifest_bytes(), engine.settings.map_bytes());
        let mut random = thermocline_foundation::random::Random::new(1);
        let (mut rewrites, mut edits_bytes, mut state_bytes) = (0, 0, 0);
        let manifest = || {
            let tables = engine.tables.lock();
            (tables.manifest.number(), tables.manifest.extent().bytes)
        };
        (0..12_000u32).for_each(|key| db.put(key.to_be_bytes(), [7; 900]).unwrap());
        for _ in 0..300 {
            for _ in 0..500 {
                let key = random.below(12_000) as u32;
                db.put(key.to_be_bytes(), [8; 900]).unwrap();
            }
            let before = manifest();
            db.flush().unwrap();
            let after = manifest();
            if after.0 == before.0 {
                edits_bytes += after.1 - before.1;
            } else {
                rewrites += 1;
                state_bytes += after.1;
            }
            assert!(after.1 <= manifest_bytes, "{after:?} of {manifest_bytes}");
            let map = engine.files.usage()[0].used_by_kind[&FileKind::Map];
            assert!(map <= map_bytes, "{map} of {map_bytes}");
        }
        // An edit takes a page at least, and a flush is three of them here.
        assert!((1..=30).contains(&rewrites), "{rewrites} times");
        assert!(state_bytes * 8 < edits_bytes, "{state_bytes} written afresh of {edits_bytes}");
    }

    #[test]
    fn a_flush_of_many_pieces_syncs_each_slab_once_and_frees_what_each_piece_replaces() {
        let db = stepped(&hybrid());
        let fast = db.engine().fast.as_ref().unwrap();
        let pieces = 8;
        let piece_bytes = fast.room.limit_bytes / PIECE_SHARE;
        let syncs = |kind| db.engine().files.tiers()[0].traffic(kind).syncs;
        let sizes = [200, 400, 900, 2000, 4000];
        let write = |byte: u8| {
            let mut bytes = 0;
            for (key, size) in (0u32..).zip(sizes.into_iter().cycle()) {
                if bytes > pieces * piece_bytes {
                    return u64::from(key);
                }
                db.put(key.to_be_bytes(), vec![byte; size]).unwrap();
                bytes += size as u64;
            }
            0
        };
        for round in 1..=2 {
            let records = write(round);
            let before = [FileKind::Slab, FileKind::Manifest].map(syncs);
            db.flush().unwrap();
            let after = [FileKind::Slab, FileKind::Manifest].map(syncs);
            let slabs = fast.slabs.ids().len() as u64;
            assert!(after[0] - before[0] <= slabs, "{} of {slabs} slabs", after[0] - before[0]);
            assert!(after[1] - before[1] >= pieces, "an edit for each piece");
            let live = fast.slabs.stats().classes.iter().map(|class| class.live).sum::<u64>();
            let stats = db.stats().fast_tier.unwrap();
            assert_eq!((stats.records, live), (records, records));
            let first = db.get(0u32.to_be_bytes()).unwrap().unwrap();
            assert_eq!(first, vec![round; sizes[0]]);
        }
    }
}
