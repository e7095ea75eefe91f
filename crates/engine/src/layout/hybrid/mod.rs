//! The fast tier of the preset `hybrid`: records in slots, the index that finds them, and what is
//! known of how hot they are (PrismDB, section 4).
//!
//! ```text
//!   memtable ──flush.rs──> slots ──compaction/demotion.rs──> tables
//!                           ^ │                                │
//!                  spill.rs │ v sweep.rs                       │
//!                          memory <─────────promotion.rs───────┘  clean copies
//!
//!   pieces.rs   what a flush or an opening writes into slots
//!   packing.rs  how slots and memory keep values
//!   lookup.rs   memtables, index and slots, tables       cursor.rs   the same, in key order
//!   damage.rs   which answers are sure although slots were damaged at opening
//!   room.rs     when the tier is full, and what leaves first; regulation.rs the rules for it
//!   budget.rs   what may be written to the slow tier
//!   sweep.rs    slots are taken from copies that memory has, or that nobody asks for
//!   spill.rs    copies that memory gives up get slots, or are forgotten; waiting.rs what waits
//!   memory.rs   how much memory records get
//!   plan.rs     what of this is done next; single_step.rs jobs of one step
//!   report.rs   what statistics say of the rules and of demotions
//! ```
//! Memory holds records too (`cache`). A copy that is there needs no slot: it has an entry in the
//! index that names none, so that memory and slots together hold more than either.
//!
//! A write is in log and memtable first, as in every preset, so that many updates of a hot record
//! cost one write of a slot.
//!
//! Invariants:
//! 1. Of two versions of a key, one in a slot and one in a table, the slot has the newer, or both
//!    are the same record (then the slot is a *clean* copy). The exception are bulk loads: a table
//!    with an `ingested_at` may be newer than a slot, which look-ups compare and demotions end.
//! 2. Which slots are live is said by the manifest, in the same edit that adds and removes tables;
//!    bytes of other slots are never looked at. So a record is in exactly one place that counts.
//! 3. The index changes only under the hybrid's `tables` lock, after the edit is durable: records
//!    that are added enter before the memtable goes, records that are demoted leave after readers
//!    can see the tables. Entries without a slot are of clean copies only; where memory has given
//!    such a record up, tables are asked for it as if there were no entry.
//! 4. A slot is given to another record only after the edit that freed it is durable. Readers hold
//!    no pins: who reads a slot that was given away meanwhile sees that key or sequence do not fit,
//!    holds frees and asks the index again.

mod copies;
pub(crate) mod demotion;
mod held;
mod memory;
mod plan;
pub(crate) mod records;
mod regulation;
pub(crate) mod report;
mod single_step;
mod space;
#[cfg(test)]
mod tiny_records;

use crate::error::Result;
use crate::generations::Frozen;
use crate::jobs::Job;
use crate::layout::hybrid::copies::promotion::Promotions;
use crate::layout::hybrid::copies::spill::Spill;
use crate::layout::hybrid::memory::Memory;
use crate::layout::hybrid::records::damage::Damage;
use crate::layout::hybrid::records::flush::FlushGate;
use crate::layout::hybrid::records::flush::SlotFlush;
use crate::layout::hybrid::records::live::LiveRecords;
use crate::layout::hybrid::records::lookup::entry_kind;
use crate::layout::hybrid::records::packing::{Packing, Stored};
use crate::layout::hybrid::regulation::Regulation;
use crate::layout::hybrid::single_step::Work;
use crate::layout::hybrid::space::backoff::SlowRoom;
use crate::layout::hybrid::space::room::Room;
use crate::locator::Locator;
use crate::locator::copies::Tended;
use crate::locator::copies::{Demand, IndexCopies};
use crate::shared::Shared;
use crate::shared::totals::Tally;
use crate::table_set::claims::Claims;
use crate::table_set::manifest::Edit;
use crate::table_set::slot_edit::Added;
use crate::table_set::slot_edit::EntryAfter;
use crate::table_set::slot_edit::Removed;
use crate::table_set::slot_edit::SlotEdit;
use crate::versions::Change;
use crate::versions::Current;
use crate::versions::Follower;
use crate::versions::Switch;
use crate::versions::Versions;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thermocline_device::Origin;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};
use thermocline_index::{Entry, FastIndex, RecordCache};
use thermocline_popularity::Popularity;
use thermocline_slab::{
    LiveSlots, Record, RecordKind as SlotKind, Reservation, SlabChange, SlabId, Slabs, SlotAddress,
    record_bytes,
};
use thermocline_table::{RecordKind, Trailer, key_hash};

/// Share of all keys that popularity knows at least, where the settings do not say (PrismDB,
/// section 7), and of how few keys.
const TRACKED_PERCENT: u32 = 20;
const TRACKED_MIN: u64 = 1 << 10;
/// Beyond that it knows more only while it takes no more than this share of what records, blocks
/// and the index have, at so many bytes a key.
const TRACKER_SHARE: u64 = 8;
const TRACKER_KEY_BYTES: u64 = 12;

/// Makes a copy of a table's index that is missing, or ends those that must go.
const INDEX_COPY: Work = Work {
    name: "copy of a table's index",
    claim: |fast| &fast.copying.is_running,
    run: Hybrid::tend_index_copies,
};

/// What the jobs of this layout hold.
#[derive(Debug)]
pub(crate) struct Hybrid {
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    pub locator: Locator,
    pub fast: Arc<FastTier>,
}

impl Hybrid {
    /// The job that writes a frozen memtable into slots.
    pub fn flush_job(self: &Arc<Self>, frozen: Arc<Frozen>) -> Box<dyn Job> {
        Box::new(SlotFlush::new(self, frozen))
    }

    /// Makes a copy of a table's index that is missing, or ends those that must go.
    fn tend_index_copies(&self) -> Result<()> {
        let Tended { ended, made } = self.locator.tend(&self.versions.current_full().levels);
        if ended || made {
            // There may be more to do, and the slots may have to leave more room or less.
            let _tables = self.versions.tables();
            self.fast.divide_memory_anew(self.versions.cell());
        }
        if ended {
            self.fast.room_was_made();
        }
        Ok(())
    }

    /// The most useful job that can begin now, claimed by this call.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        plan::plan_fast_tier(self)
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct FastTier {
    pub shared: Arc<Shared>,
    /// The slots that hold records, as the manifest says.
    pub live: Mutex<LiveRecords>,
    pub slabs: Arc<Slabs>,
    pub index: Arc<FastIndex>,
    /// What was damaged when the store was opened.
    pub damage: Damage,
    /// Records in memory: of slots, and copies of what tables have.
    pub cache: RecordCache,
    pub packing: Packing,
    pub spill: Spill,
    pub popularity: Box<dyn Popularity>,
    pub promotions: Promotions,
    pub regulation: Regulation,
    pub flushes: FlushGate,
    pub room: Room,
    pub slow_room: SlowRoom,
    pub memory: Memory,
    pub copying: Arc<IndexCopies>,
    /// Slots that demotions gave away before their edits: a planted bug.
    pub freed_early: Mutex<BTreeSet<SlotAddress>>,
}

/// A record on its way into a slot.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub key: Bytes,
    pub trailer: Trailer,
    /// As the slot is to have it.
    pub value: Stored,
    /// A table has the same record.
    pub clean: bool,
}

impl FastTier {
    /// Divides memory anew between records, blocks of tables and what is known of keys.
    pub(crate) fn divide_memory_anew(&self, current: &Current) {
        let settings = &self.shared.settings;
        let levels = &current.get().levels;
        let share = settings.division().cache_bytes;
        let (mut entries, mut table_bytes, mut pinned_bytes) = (0, 0, 0);
        let mut demand = Demand::default();
        for (_, table) in levels.tables() {
            entries += table.meta.entries;
            table_bytes += table.meta.bytes;
            pinned_bytes += table.pinned_bytes();
            demand.add(table, settings);
        }
        self.room.note_tables(table_bytes);
        self.regulation.table_entries.store(entries, Relaxed);
        let partition_bytes = demand.partition_bytes;
        let fast_keys = self.index.len();
        let keys = fast_keys + entries;
        let (share_percent, is_set) = match settings.hybrid.tracker_percent {
            0 => (TRACKED_PERCENT, false),
            percent => (percent, true),
        };
        let share_of_keys = (keys * u64::from(share_percent) / 100).max(TRACKED_MIN);
        self.regulation.share_of_keys.store(share_of_keys, Relaxed);
        // What is not tracked is cold. Where fast tier and memory have room for more, the rest of
        // them is whoever came; and to choose who stays, some more must be known than stay.
        // A clock that is never full forgets nothing, so not all; and where nothing has left there
        // is nobody to choose.
        let beyond = (fast_keys + fast_keys / 4).min(keys - keys / 5);
        let beyond = beyond.min(share / TRACKER_SHARE / TRACKER_KEY_BYTES);
        let tracked = match is_set || entries == 0 {
            true => share_of_keys,
            false => share_of_keys.max(beyond),
        };
        let capacity = self.popularity.capacity() as u64;
        if tracked > capacity + capacity / 8 || tracked < capacity / 2 {
            self.popularity.set_capacity(tracked as usize);
        }
        let known_bytes = self.index.memory_bytes() + self.popularity.bytes() as u64;
        let left = share.saturating_sub(pinned_bytes + known_bytes).max(share / 8);
        let blocks = (partition_bytes + partition_bytes / 4 + left / 16).min(left / 2);
        // Every edit comes here, and a change takes all locks of the cache, for which readers wait.
        let cache = &self.shared.cache;
        if blocks.abs_diff(cache.capacity_bytes()) > blocks / 64 {
            cache.set_capacity(blocks);
        }
        self.share_memory(current, left.saturating_sub(cache.capacity_bytes()));
        self.copying.reckon(demand, |bytes| self.slabs.set_limit_bytes(bytes));
    }
}

impl Follower for FastTier {
    fn prepare(&self, change: &mut Change) -> Result<()> {
        let mut live = self.live.lock();
        change.edit.slabs = self.changes(&live.slots, &change.slots);
        live.follow(&mut change.edit)
    }

    fn before_switch(&self, switch: &Switch<'_>) -> Result<()> {
        self.arrive(&switch.change.slots);
        Ok(())
    }

    fn after_switch(&self, switch: &Switch<'_>) {
        self.depart(&switch.change.slots);
    }

    fn whole(&self, edit: &mut Edit) {
        self.live.lock().whole(edit);
    }

    fn count(&self, tally: &mut Tally) {
        self.tally(tally);
    }

    fn levels_changed(&self, current: &Current, _claims: &Claims) {
        self.divide_memory_anew(current);
    }

    fn memtable_grows(&self, current: &Current, active_bytes: u64) {
        if self.memory.is_short_for_active(active_bytes) {
            self.lend_memory_beside(current, active_bytes);
        }
    }

    fn memtable_was_frozen(&self) {
        self.memory.active_was_frozen();
    }
}

/// Records that are durable in slots, before an edit makes them live.
#[derive(Debug)]
pub(crate) struct Placed {
    pub added: Vec<Added>,
    pub reservation: Reservation,
}

/// Records that were written into slots, batch by batch, and are neither durable there nor live.
#[derive(Debug)]
pub(crate) struct Written {
    added: Vec<Added>,
    reservation: Reservation,
    /// Slabs to be synced.
    touched: BTreeSet<SlabId>,
}

impl Written {
    /// Makes the records durable where they are, still dead: each slab is synced once.
    pub fn sync(self, slabs: &Slabs) -> Result<Placed> {
        let touched: Vec<_> = self.touched.into_iter().collect();
        sync_site("slots", || slabs.sync(&touched))?;
        Ok(Placed { added: self.added, reservation: self.reservation })
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.added.len()
    }
}

impl Placed {
    /// Splits the first `count` records off, which are to become live before the rest.
    fn split_first(&mut self, count: usize) -> Self {
        let rest = self.added.split_off(count);
        let added = std::mem::replace(&mut self.added, rest);
        Self { added, reservation: self.reservation.split_first(count) }
    }
}

impl FastTier {
    /// Writes records, in key order, into free slots and makes them durable there, still dead. None
    /// where there is no room for all of them.
    pub fn write(&self, records: &[Arrival], origin: Origin) -> Result<Option<Placed>> {
        let mut written = None;
        if !self.write_more(&mut written, records, origin)? {
            return Ok(None);
        }
        written.map(|written| written.sync(&self.slabs)).transpose()
    }

    /// Writes records, in key order, into free slots, together with what is in `written` already.
    /// Says no, with nothing changed, where there is no room for all of them.
    pub fn write_more(
        &self,
        written: &mut Option<Written>,
        records: &[Arrival],
        origin: Origin,
    ) -> Result<bool> {
        let sizes: Vec<u32> = records.iter().map(|record| record.bytes() as u32).collect();
        let first = if let Some(written) = written {
            if !written.reservation.extend(&sizes, origin)? {
                return Ok(false);
            }
            written.len()
        } else {
            let allocated = self.slabs.allocate_all(&sizes, origin)?;
            let Some(reservation) = allocated else { return Ok(false) };
            *written = Some(Written { added: Vec::new(), reservation, touched: BTreeSet::new() });
            0
        };
        let Some(written) = written else { return Ok(false) };
        let slots: Vec<SlotAddress> =
            written.reservation.slots()[first..].iter().flatten().copied().collect();
        let to_write: Vec<_> =
            slots.iter().zip(records).map(|(slot, record)| (*slot, record.as_record())).collect();
        written.touched.extend(self.slabs.write(&to_write)?);
        written.added.extend(records.iter().zip(&slots).zip(&sizes).map(
            |((record, slot), bytes)| Added {
                key: record.key.clone(),
                entry: record.entry(*slot, *bytes),
                succeeds: None,
            },
        ));
        Ok(true)
    }

    /// The changes of the slabs that `edit` makes, by file.
    pub fn changes(&self, live: &LiveSlots, edit: &SlotEdit) -> Vec<SlabChange> {
        type Slots = Vec<(u32, Sequence)>;
        let mut by_file: BTreeMap<FileNumber, (Slots, Slots)> = BTreeMap::new();
        // A new slab serves everybody from now on, also where no record of it was needed after all.
        for (file, _) in &edit.new_slabs {
            by_file.entry(*file).or_default();
        }
        let file = |slot: SlotAddress| self.slabs.file_number(slot.slab).unwrap_or_default();
        for new in &edit.added {
            let slot = SlotAddress::unpack(new.entry.slot);
            by_file.entry(file(slot)).or_default().0.push((slot.slot, new.entry.sequence));
        }
        for old in &edit.removed {
            let Some(slot) = old.slot else { continue };
            by_file.entry(file(slot)).or_default().1.push((slot.slot, old.sequence));
        }
        let shape = |file| edit.new_slabs.iter().find(|(new, _)| *new == file);
        let changes = by_file.iter().map(|(file, (added, removed))| {
            live.change(*file, shape(*file).map(|(_, shape)| *shape), added, removed)
        });
        changes.chain(edit.dropped.iter().map(|file| SlabChange::removal(*file))).collect()
    }

    /// The edit is durable: lets the records that were added be found, in the place of what they
    /// succeed. Call before readers lose what had them.
    pub fn arrive(&self, edit: &SlotEdit) {
        let records = edit.added.iter().map(|new| (&new.key, new.entry, new.succeeds));
        self.index.succeed_many(&records.collect::<Vec<_>>());
        if let Some(buckets) = &self.regulation.buckets {
            for new in edit.added.iter().filter(|new| !new.entry.clean) {
                buckets.insert_fast(&new.key, key_hash(&new.key), new.entry.record_bytes);
            }
        }
    }

    /// Takes the dead that nothing succeeded from the index, and gives the slots of all away. Call
    /// after readers can see what has them now.
    pub fn depart(&self, edit: &SlotEdit) {
        if edit.removed.is_empty() {
            return;
        }
        let is_born = |old: &Removed| {
            // The same record has another place: its entry names that already.
            let place = |new: &Added| {
                new.key.cmp(&old.key).then_with(|| old.sequence.cmp(&new.entry.sequence))
            };
            edit.added.binary_search_by(place).is_ok()
        };
        let (mut lifted, mut gone) = (Vec::new(), Vec::new());
        for old in &edit.removed {
            match old.entry {
                EntryAfter::Succeeded => {}
                _ if is_born(old) => {}
                EntryAfter::Lifted => lifted.push((&old.key, Entry::in_memory(old.sequence))),
                EntryAfter::Gone => gone.push((&old.key, old.sequence)),
            }
        }
        if edit.departs {
            self.index.announce_departures();
        }
        self.index.insert_many(&lifted, |_, _| {});
        for (key, entry) in &lifted {
            self.cache.unback(key, entry.sequence);
        }
        self.index.remove_many(&gone, |_, _| {});
        for (key, sequence) in &gone {
            self.cache.forget(key, *sequence);
        }
        if let Some(buckets) = self.regulation.buckets.as_ref().filter(|_| edit.departs) {
            let is_dirty = |key| self.index.get(key).is_some_and(|now| !now.clean);
            for old in edit.removed.iter().filter(|old| !is_dirty(&old.key)) {
                buckets.remove_fast(&old.key, key_hash(&old.key));
            }
        }
        let mut slots: Vec<_> = edit.removed.iter().filter_map(|old| old.slot).collect();
        if planted(Planted::SlotsFreedBeforeEdit) {
            // The bug is that they are free too early, not that they are freed twice.
            let mut freed = self.freed_early.lock();
            slots.retain(|slot| !freed.remove(slot));
        }
        self.slabs.free(&slots);
    }
}

impl Arrival {
    /// Bytes that it takes of its slot.
    pub fn bytes(&self) -> u64 {
        record_bytes(self.key.len(), self.value.bytes.len())
    }

    fn as_record(&self) -> Record<'_> {
        let kind = match self.trailer.kind() {
            RecordKind::Put => SlotKind::Put,
            RecordKind::Delete => SlotKind::Delete,
        };
        let Stored { bytes, packed } = &self.value;
        Record {
            key: &self.key,
            value: bytes,
            packed: *packed,
            sequence: self.trailer.sequence(),
            kind,
            clean: self.clean,
        }
    }

    fn entry(&self, slot: SlotAddress, record_bytes: u32) -> Entry {
        let kind = entry_kind(self.trailer.kind());
        let (sequence, clean) = (self.trailer.sequence(), self.clean);
        Entry { slot: slot.pack(), sequence, kind, clean, record_bytes }
    }
}
