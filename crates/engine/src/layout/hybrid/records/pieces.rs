//! The records of a memtable on their way into slots, piece by piece, in key order.
//!
//! Slots are found for a piece and written. Once all pieces are, or many, or there is no room for
//! the next, each slab that they touched is synced, once, and then an edit for each piece makes it
//! live and frees the slots of the versions that it replaces, which the next pieces may take. The
//! log has all of them until the flush raises the floor, and must be durable before a piece is: a
//! piece makes records durable that come after others in the log.
//!
//! Between writing and edit only keys and places are kept; the memtable has the values.

use crate::compaction::rewrite::Retention;
use crate::error::{Error, Result};
use crate::generations::memtable::{Memtable, MemtableCursor};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::records::packing::Packing;
use crate::layout::hybrid::records::placing::{Arrival, Placed, Written};
use crate::table_set::TableSet;
use crate::table_set::slot_edit::{Added, EntryAfter, Removed, SlotEdit};
use crate::versions::Change;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::Origin;
use thermocline_foundation::{Planted, Sequence, planted, sync_site};
use thermocline_index::{Entry, EntryKind};
use thermocline_table::key_hash;

/// Bytes of keys and values of a piece: a share of the slots' room, so that a piece of a small tier
/// finds its slots soon.
const PIECE_SHARE: u64 = 32;
const PIECE_BYTES_MIN: u64 = 16 << 10;
const PIECE_BYTES_MAX: u64 = 4 << 20;

/// Bytes of a piece where slots have so much room.
pub(crate) fn piece_bytes(room_bytes: u64) -> u64 {
    (room_bytes / PIECE_SHARE).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
}

/// Most records that are written before they are synced and made live: it bounds what is known of
/// them meanwhile.
const WRITTEN_RECORDS_MAX: usize = 1 << 16;
/// Most bytes of them: a sync of more makes those of others wait long.
const WRITTEN_BYTES_MAX: u64 = 32 << 20;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Pieces {
    cursor: MemtableCursor,
    retention: Retention,
    origin: Origin,
    /// Records that wait for slots.
    waiting: Vec<Arrival>,
    /// Those that are in slots, and neither durable there nor live.
    written: Option<Written>,
    /// How many of these are in each piece.
    written_pieces: Vec<usize>,
    written_bytes: u64,
    /// Keys and values that were taken from the memtable.
    taken_bytes: u64,
}

impl Pieces {
    /// What `retention` keeps of the memtable.
    pub fn new(memtable: &Arc<Memtable>, retention: Retention, origin: Origin) -> Self {
        let mut cursor = MemtableCursor::new(Arc::clone(memtable));
        cursor.seek_to_first();
        Self {
            cursor,
            retention,
            origin,
            waiting: Vec::new(),
            written: None,
            written_pieces: Vec::new(),
            written_bytes: 0,
            taken_bytes: 0,
        }
    }

    /// Takes the next piece from the memtable, unless one waits; false where there is none.
    pub fn fill(&mut self, packing: &Packing, bytes_max: u64) -> bool {
        if !self.waiting.is_empty() {
            return true;
        }
        let mut bytes = 0;
        while let Some(entry) = self.cursor.entry() {
            // All versions of a key at once: what is live of it in slots is always the newest, and
            // a demotion between two pieces could take that and leave an older one to come.
            let goes_on = self.waiting.last().is_some_and(|last| last.key[..] == *entry.key());
            let may_cut = !goes_on || planted(Planted::PieceCutsVersions);
            if bytes as u64 >= bytes_max && may_cut {
                break;
            }
            if self.retention.judge(entry.key(), entry.trailer()).0 {
                let (key, value) = (entry.key_bytes(), entry.value());
                bytes += key.len() + value.len();
                let trailer = entry.trailer();
                let value = packing.for_slot(value);
                self.waiting.push(Arrival { key, trailer, value, clean: false });
            }
            self.cursor.next();
        }
        self.taken_bytes += bytes as u64;
        !self.waiting.is_empty()
    }

    /// Writes the piece into slots, if need be of more than their share of the tier; false where
    /// there is no room.
    pub fn write(&mut self, fast: &FastTier, may_overdraw: bool) -> Result<bool> {
        // After a failure nothing of it is of use.
        let mut written = self.written.take();
        let mut write = || fast.write_more(&mut written, &self.waiting, self.origin);
        let found_room = if may_overdraw { fast.overdraw(write)? } else { write()? };
        self.written = written;
        if found_room {
            self.written_pieces.push(self.waiting.len());
            self.written_bytes += self.waiting_bytes();
            self.waiting.clear();
        }
        Ok(found_room)
    }

    /// No more may be written before what is gets settled.
    pub fn are_many(&self) -> bool {
        let records = self.written.as_ref().map_or(0, Written::len);
        records >= WRITTEN_RECORDS_MAX || self.written_bytes >= WRITTEN_BYTES_MAX
    }

    /// Makes what was written durable and then live, with `settled` called after each piece; false
    /// where nothing was.
    pub fn settle(
        &mut self,
        hybrid: &Hybrid,
        fast: &FastTier,
        mut settled: impl FnMut() -> Result<()>,
    ) -> Result<bool> {
        let Some(written) = self.written.take() else { return Ok(false) };
        self.written_bytes = 0;
        let mut placed = sync_site("piece", || written.sync(&fast.slabs))?;
        for count in std::mem::take(&mut self.written_pieces) {
            let placed = placed.split_first(count);
            hybrid.settle_in(placed)?;
            settled()?;
        }
        Ok(true)
    }

    /// Bytes of slots that the piece wants.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting.iter().map(Arrival::bytes).sum()
    }

    /// Keys and values that were taken from the memtable.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }
}

impl Hybrid {
    /// Makes records live that a flush has written, and with it frees the slots of the versions
    /// that no reader can see any more.
    fn settle_in(&self, mut placed: Placed) -> Result<()> {
        let snapshots = self.versions.kept_readable();
        let mut tables = self.versions.tables();
        let Replaced { removed, before, kept, copies } =
            self.fast.replaced_by(&mut placed.added, &snapshots);
        let arrived: Vec<_> = placed.added.iter().map(|new| (new.key.clone(), new.entry)).collect();
        self.commit_placed(&mut tables, placed, removed, || {
            self.fast.live.lock().older_versions += kept;
            self.fast.feedback.copies.replaced.add(copies);
        })?;
        drop(tables);
        self.fast.room.found();
        for (at, ((key, now), before)) in arrived.iter().zip(before).enumerate() {
            self.fast.popularity.touch_write(key_hash(key), before.is_some());
            let is_newest = at == 0 || arrived[at - 1].0 != *key;
            if let Some(before) =
                before.filter(|before| is_newest && before.sequence < now.sequence)
            {
                self.fast.cache.forget(key, before.sequence);
            }
        }
        self.fast.forget_deleted(&arrived);
        Ok(())
    }

    /// Makes what was written into slots live, and frees those of `removed`. `count` is called as
    /// by [`crate::versions::Versions::commit_counted`]. Refused, it has changed nothing, and what
    /// was written is gone.
    pub fn commit_placed(
        &self,
        tables: &mut TableSet,
        placed: Placed,
        removed: Vec<Removed>,
        count: impl FnOnce(),
    ) -> Result<()> {
        let Placed { added, reservation } = placed;
        let new_slabs = reservation.new_slabs();
        let numbers: Vec<_> = new_slabs.iter().map(|(number, _)| *number).collect();
        let published = self.shared.files.publish(&numbers);
        let committed = published.map_err(Error::from).and_then(|()| {
            let slots = SlotEdit { added, removed, new_slabs, ..SlotEdit::default() };
            let change = Change { slots, ..Change::default() };
            self.versions.commit_counted(tables, change, count)
        });
        match &committed {
            Ok(()) => reservation.commit(),
            Err(error) if error.is_refusal() => reservation.give_back(),
            // The map or the manifest may or may not have them, with the slots of others that were
            // written at the same time.
            Err(_) => reservation.abandon(),
        }
        committed
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

    /// The versions in slots that no reader can see once the records of `added`, in key order and
    /// of a key the newest first, are there. Each is replaced by the oldest of the added that is
    /// newer, and where both are the newest of their key this one takes its place in the index.
    fn replaced_by(&self, added: &mut [Added], snapshots: &[Sequence]) -> Replaced {
        let mut replaced = Replaced::default();
        let mut versions = Vec::new();
        for at in 0..added.len() {
            let new = &added[at];
            self.index.versions(&new.key, &mut versions);
            replaced.before.push(versions.first().copied());
            let is_newest = at == 0 || added[at - 1].key != new.key;
            let mut succeeds = None;
            let newest = new.entry.sequence;
            let is_older = !is_newest || versions.first().is_some_and(|old| old.sequence > newest);
            replaced.kept += u64::from(is_older);
            let mut newer = newest;
            let next = added.get(at + 1).filter(|next| next.key == new.key);
            let is_replaced = |old: &&Entry| {
                old.sequence <= newest && next.is_none_or(|next| old.sequence > next.entry.sequence)
            };
            for old in versions.iter().filter(is_replaced) {
                // The same record, which recovery found in a slot and in the log.
                let same = old.sequence == new.entry.sequence;
                let seen = |snapshot: &Sequence| (old.sequence..newer).contains(snapshot);
                if same || planted(Planted::SlotReusedUnderSnapshot) || !snapshots.iter().any(seen)
                {
                    let mut removed = Removed::new(new.key.clone(), old);
                    if is_newest && !same && old.sequence == versions[0].sequence {
                        removed.entry = EntryAfter::Succeeded;
                        succeeds = Some(old.sequence);
                    }
                    replaced.removed.push(removed);
                    replaced.copies += u64::from(old.clean && !same);
                } else {
                    replaced.kept += 1;
                }
                newer = old.sequence;
            }
            added[at].succeeds = succeeds;
        }
        replaced
    }
}

/// What newer versions do to those that are in slots.
#[derive(Debug, Default)]
struct Replaced {
    removed: Vec<Removed>,
    /// For each of the added the newest version of its key that was there before.
    before: Vec<Option<Entry>>,
    /// How many versions more than before are not the newest of their keys; some may have been
    /// counted already.
    kept: u64,
    /// How many of the removed are copies of what tables have.
    copies: u64,
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
            let fast = &db.engine().hybrid().fast;
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
        engine.front().enter().freeze().unwrap();
        let frozen = Arc::clone(&engine.versions().current().frozen[0]);
        let retention = Retention::new(engine.versions().kept_readable(), None);
        let packing = &engine.hybrid().fast.packing;
        let mut pieces = Pieces::new(&frozen.memtable, retention, Origin::Flush);
        for key in ["a", "b", "c"] {
            assert!(pieces.fill(packing, PIECE_BYTES_MIN));
            let piece = std::mem::take(&mut pieces.waiting);
            assert_eq!(piece.len(), 4);
            assert!(piece.iter().all(|arrival| arrival.key == key));
        }
        assert!(!pieces.fill(packing, PIECE_BYTES_MIN));
    }

    #[test]
    fn a_flush_of_many_pieces_syncs_each_slab_once_and_frees_what_each_piece_replaces() {
        let db = stepped(&hybrid());
        let fast = &db.engine().hybrid().fast;
        let pieces = 8;
        let piece_bytes = piece_bytes(fast.room.limit_bytes());
        let syncs = |kind| db.engine().shared().files.tiers()[0].traffic(kind).syncs;
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

    #[test]
    fn a_record_that_is_replaced_is_in_memory_no_more() {
        let db = stepped(&hybrid());
        let cache = &db.engine().hybrid().fast.cache;
        db.put("key", "old").unwrap();
        db.flush().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "old");
        assert_eq!(cache.len(), 1);
        db.put("key", "new").unwrap();
        db.flush().unwrap();
        assert!(cache.is_empty());
        assert_eq!(db.get("key").unwrap().unwrap(), "new");
        assert_eq!(cache.len(), 1);
        db.delete("key").unwrap();
        db.flush().unwrap();
        assert!(cache.is_empty());
        assert_eq!(db.get("key").unwrap(), None);
    }
}
