//! Opening the fast tier: the index is made again from the slots that the manifest says are live
//! (PrismDB, section 6).
//!
//! Slabs are read whole, several at a time. A live slot that is not intact, or that holds an older
//! record than the manifest's sum says, is damage; bytes of other slots are never looked at, so
//! nothing that was freed can come back. Where there is damage all slots are looked at once more,
//! one by one, and the store opens for reading only (`damage.rs`). Logs are replayed afterwards
//! into memory, and from there written to slots like any flush, before the store is open.

use crate::compaction::rewrite::Retention;
use crate::error::{Error, ErrorKind, Result};
use crate::generations::memtable::Memtable;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::copies::promotion::Promotions;
use crate::layout::hybrid::copies::spill::Spill;
use crate::layout::hybrid::feedback::Feedback;
use crate::layout::hybrid::memory::Memory;
use crate::layout::hybrid::records::damage::{Damage, older_versions_of};
use crate::layout::hybrid::records::flush::{FlushGate, no_room};
use crate::layout::hybrid::records::live::LiveRecords;
use crate::layout::hybrid::records::lookup::{entry_kind, kind_of};
use crate::layout::hybrid::records::packing::Packing;
use crate::layout::hybrid::records::pieces::{Pieces, piece_bytes};
use crate::layout::hybrid::rules::rule_set::RuleSet;
use crate::layout::hybrid::space::backoff::SlowTierBackoff;
use crate::layout::hybrid::space::room::Room;
use crate::locator::copies::IndexCopies;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::table_set::restored::Restored;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_device::Origin;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use thermocline_foundation::threads;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};
use thermocline_index::{Entry, FastIndex, RecordCache};
use thermocline_popularity::{ClockTracker, SHARDS};
use thermocline_slab::{
    DamagedHeader, LiveSlots, SLAB_BYTES_MAX, SLAB_BYTES_MIN, SlabId, SlabLive, Slabs, Slot,
    SlotAddress,
};
use thermocline_table::key_hash;

/// Slabs that a fast tier is divided into, about, where all records are of a few sizes.
const SLABS: u64 = 64;
/// And where they are of so many sizes that most sizes of slot have one slab: about twice as many
/// as there are sizes that such a slab has room for.
const SLABS_MAX: u64 = 256;

/// Most threads that read slabs.
const SCANS_MAX: usize = 8;

impl FastTier {
    /// Opens the slabs and reads what is live in them.
    pub fn open(shared: &Arc<Shared>, restored: &mut Restored) -> Result<Self> {
        let (settings, clock) = (&shared.settings, &shared.clock);
        if shared.files.tiers().len() < 2 {
            return Err(Error::invalid(
                "the preset hybrid wants a fast tier and a slow one; add one (tiers add), or \
                 choose the preset leveled",
            ));
        }
        let (slabs, index, damage) = read_slabs(shared, restored)?;
        let live = LiveRecords::new(restored);
        let limit_bytes = shared.tier0.divided_bytes();
        slabs.set_limit_bytes(limit_bytes);
        shared.files.placement().set_slab_bytes(limit_bytes);
        let rules = RuleSet::of(&settings.hybrid, &shared.experiments);
        let feedback = Feedback::new(settings, &rules, clock);
        if let Some(buckets) = &feedback.buckets {
            index.for_each(Bound::Unbounded, Bound::Unbounded, |key, entry| {
                if !entry.clean {
                    buckets.insert_fast(key, key_hash(key), entry.record_bytes);
                }
            });
        }
        Ok(Self {
            shared: Arc::clone(shared),
            rules,
            live: Mutex::new(live),
            slabs,
            index,
            damage,
            cache: RecordCache::new(settings.division().cache_bytes / 2),
            packing: Packing::new(settings),
            spill: Spill::new(&shared.jobs, settings.memory.0),
            popularity: ClockTracker::new(1 << 10, SHARDS),
            promotions: Promotions::new(settings.memory.0),
            feedback,
            flushes: FlushGate::default(),
            room: Room::new(shared, &rules),
            slow_tier_backoff: SlowTierBackoff::default(),
            memory: Memory::new(settings),
            copying: Arc::new(IndexCopies::new(shared)),
            freed_early: Mutex::default(),
        })
    }
}

/// Opens the slabs and reads what is live in them.
fn read_slabs(
    shared: &Shared,
    restored: &mut Restored,
) -> Result<(Arc<Slabs>, Arc<FastIndex>, Damage)> {
    let live = &restored.slots;
    let room_bytes = shared.tier0.divided_bytes();
    let slab_bytes = (room_bytes / SLABS).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
    let (slabs, met) = Slabs::open_damaged(Arc::clone(&shared.files), slab_bytes, live)?;
    slabs.set_slab_bytes_min(room_bytes / SLABS_MAX);
    let mut damage = Damage::default();
    for DamagedHeader { error, is_long_enough, .. } in met {
        match is_long_enough {
            // The manifest says what a header page does, and nothing else needs it.
            true => tracing::error!(%error, "a slab goes on without its header page"),
            false => damage.add([error.into()], None),
        }
    }
    let mut index = Arc::new(FastIndex::new());
    let found = live.iter().filter_map(|(file, slab)| Some((slabs.id_of(file)?, slab.clone())));
    let scan = Scan {
        live: found.collect(),
        slabs: Arc::clone(&slabs),
        index: Arc::clone(&index),
        next: AtomicUsize::new(0),
        failed: Mutex::new(None),
    };
    match scan.run(shared.jobs.are_stepped()) {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
            index = salvage(&slabs, live, restored.last_sequence, &mut damage)?;
        }
        scanned => scanned?,
    }
    damage.weigh(&index, restored.older_versions);
    if damage.reason().is_none() && restored.older_versions != Some(0) {
        restored.older_versions = Some(older_versions_of(&index));
    }
    Ok((slabs, index, damage))
}

/// An index of the records that are proved, where not all slots are as they should be.
fn salvage(
    slabs: &Slabs,
    live: &LiveSlots,
    newest: Sequence,
    damage: &mut Damage,
) -> Result<Arc<FastIndex>> {
    let index = Arc::new(FastIndex::new());
    for (file, slab) in live.iter() {
        let Some(id) = slabs.id_of(file) else { continue };
        let mut keep = |address, slot: &Slot| (slot.key().to_vec(), entry_of(address, slot));
        let salvage = slabs.salvage(id, slab, newest, &mut keep)?;
        for (key, entry) in salvage.proved {
            index.insert(&key, entry);
        }
        damage.add(salvage.damage.into_iter().map(Error::from), salvage.newest_missing);
    }
    Ok(index)
}

/// The index's entry of a record in a slot.
fn entry_of(address: SlotAddress, slot: &Slot) -> Entry {
    Entry {
        slot: address.pack(),
        sequence: slot.sequence(),
        kind: entry_kind(kind_of(slot)),
        clean: slot.is_clean(),
        record_bytes: slot.record_bytes() as u32,
    }
}

/// Gives a database to the preset `leveled`: clean copies in slots are dropped, for tables have
/// these records too. Refused where a slot has a record that no table has.
pub(crate) fn drop_copies(shared: &Shared, restored: &mut Restored) -> Result<()> {
    if restored.slots.is_empty() {
        return Ok(());
    }
    let (_, index, damage) = read_slabs(shared, restored)?;
    damage.reason().map_or(Ok(()), Err)?;
    let Restored { manifest, levels, slots, log_floor, last_sequence, .. } = restored;
    let (totals, durable_sequence) = (&restored.totals, restored.durable_sequence);
    let only_here = index.len() - index.clean_records();
    if only_here > 0 {
        return Err(Error::invalid(format!(
            "{only_here} records of this database are in slabs, which the preset leveled of \
             settings.toml does not read; open it with the preset hybrid, and compact all of it \
             before changing the preset"
        )));
    }
    let numbers: Vec<_> = slots.iter().map(|(number, _)| number).collect();
    *slots = LiveSlots::default();
    if shared.files.is_read_only() {
        return Ok(());
    }
    let whole = || Edit {
        totals: Some(totals.clone()),
        durable_sequence: Some(durable_sequence),
        ..Edit::of_state(levels.snapshot(), slots, *log_floor, *last_sequence)
    };
    let edit = Edit { live_slots: Some(LiveSlots::default()), ..Edit::default() };
    manifest.commit(&edit, whole)?;
    Ok(shared.files.delete_files(&numbers)?)
}

/// The reading of all slabs at opening.
#[derive(Debug)]
struct Scan {
    slabs: Arc<Slabs>,
    live: Vec<(SlabId, SlabLive)>,
    index: Arc<FastIndex>,
    /// The next slab to read.
    next: AtomicUsize,
    failed: Mutex<Option<Error>>,
}

impl Scan {
    /// Reads all slabs, with threads of its own unless the store's work `is_stepped`.
    fn run(self, is_stepped: bool) -> Result<()> {
        let more = match is_stepped {
            false => threads::available().min(SCANS_MAX).min(self.live.len()),
            true => 0,
        };
        let shared = Arc::new(self);
        let spawn = |_| {
            let scan = Arc::clone(&shared);
            threads::spawn("thermocline-scan", move || scan.work())
        };
        let helpers: Vec<_> = (1..more).map(spawn).filter_map(std::result::Result::ok).collect();
        shared.work();
        for helper in helpers {
            if helper.join().is_err() {
                return Err(Error::new(ErrorKind::Io, "a thread that read slabs panicked"));
            }
        }
        shared.failed.lock().take().map_or(Ok(()), Err)
    }

    /// Reads slabs until none is left or one failed.
    fn work(&self) {
        while let Some((id, slab)) = self.live.get(self.next.fetch_add(1, Relaxed)) {
            let scanned = self.slabs.scan(*id, slab, &mut |address, slot| {
                self.index.insert(slot.key(), entry_of(address, slot));
            });
            if let Err(error) = scanned {
                self.failed.lock().get_or_insert(error.into());
                return;
            }
        }
    }
}

impl Hybrid {
    /// Writes what `logs` had into slots and makes it live, piece by piece, and then raises the log
    /// floor with `edit`. The slots may take more than their share, where there is no room for a
    /// piece, until demotions have made it: no writer waits for them yet.
    pub fn settle_replayed(
        &self,
        logs: &[FileNumber],
        memtable: Option<&Arc<Memtable>>,
        edit: Edit,
    ) -> Result<()> {
        let memtable = memtable.filter(|memtable| memtable.count() > 0);
        if let Some(memtable) = memtable {
            // What was read of them may be in the system's memory only. Lost with it, it must not
            // leave a piece behind that came later than the rest.
            if !planted(Planted::ReplayedLogsNotSynced) {
                let sync = |log: &FileNumber| self.shared.files.open_file(*log)?.sync();
                sync_site("replayed-logs", || logs.iter().try_for_each(sync))?;
            }
            // No snapshot survives a restart, so of each key only the newest version matters.
            let retention = Retention::new(vec![Sequence::MAX], None);
            let mut pieces = Pieces::new(memtable, retention, Origin::Recovery);
            while pieces.fill(&self.fast.packing, piece_bytes(self.fast.room.limit_bytes())) {
                self.write_replayed(&mut pieces)?;
            }
            pieces.settle(self, &self.fast, || Ok(()))?;
        }
        self.versions.commit(&mut self.versions.tables(), edit)
    }

    /// Writes a piece, into slots that those before it freed if there are no others.
    fn write_replayed(&self, pieces: &mut Pieces) -> Result<()> {
        if pieces.are_many() {
            pieces.settle(self, &self.fast, || Ok(()))?;
        }
        let is_written = pieces.write(&self.fast, false)?
            || (pieces.settle(self, &self.fast, || Ok(()))? && pieces.write(&self.fast, false)?)
            || pieces.write(&self.fast, true)?;
        if is_written {
            return Ok(());
        }
        Err(no_room(&self.shared.files, "the records of the logs"))
    }
}

#[cfg(test)]
mod tests {
    use super::SCANS_MAX;
    use crate::jobs::Workers;
    use crate::support::hooked::{Call, HookedDevices};
    use crate::support::{hybrid, stepped_environment, tier};
    use crate::{ByteSize, Db, Environment, Settings};
    use std::collections::HashSet;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use thermocline_device::{FileInfo, FileKind, TierIndex};
    use thermocline_foundation::random::mix;
    use thermocline_foundation::sync::{Condvar, Mutex};
    use thermocline_foundation::threads;

    fn put(db: &Db, keys: std::ops::Range<u64>) {
        for key in keys {
            db.put(key.to_be_bytes(), vec![key as u8; 100 + key as usize * 37]).unwrap();
        }
        db.flush().unwrap();
    }

    fn files(db: &Db) -> Vec<(u64, u64)> {
        let slabs = db.engine().hybrid().fast.slabs.stats();
        slabs.classes.iter().map(|class| (class.slabs, class.file_bytes)).collect()
    }

    #[test]
    fn a_database_whose_slabs_were_all_of_one_length_opens_and_goes_on_with_shorter_ones() {
        let environment = stepped_environment();
        let home = Path::new("/home");
        let db = environment.create(home, &hybrid()).unwrap();
        let slabs = &db.engine().hybrid().fast.slabs;
        slabs.set_slab_bytes_min(slabs.classes().slab_bytes());
        let length = slabs.classes().slab_bytes();
        put(&db, 0..50);
        let made = files(&db);
        assert!(made.len() > 10);
        // Whole slots, so a little less.
        assert!(
            made.iter().all(|(count, bytes)| (length * 9 / 10..=length).contains(&(bytes / count)))
        );
        db.close().unwrap();
        let db = environment.open(home).unwrap();
        assert_eq!(files(&db), made);
        put(&db, 50..100);
        let now = files(&db);
        let count = |files: &[(u64, u64)]| files.iter().map(|(count, _)| count).sum::<u64>();
        let is_short = |(count, bytes): &&(u64, u64)| bytes / count < length / 2;
        let shorter: u64 = now.iter().filter(is_short).map(|(count, _)| count).sum();
        assert!(shorter > 3 && shorter == count(&now) - count(&made), "{now:?}");
        db.close().unwrap();
        let db = environment.open(home).unwrap();
        for key in 0..100u64 {
            let value = db.get(key.to_be_bytes()).unwrap().unwrap();
            assert_eq!(value, vec![key as u8; 100 + key as usize * 37]);
        }
    }

    /// What updates replay takes the slots of what they replace, piece by piece.
    #[test]
    fn an_opening_of_a_full_tier_after_updates_keeps_to_its_share() {
        let environment = stepped_environment();
        let home = Path::new("/home");
        let tiers = vec![tier("/fast", 16), tier("/slow", 256)];
        let (memory, table_size) = (ByteSize::mib(16), ByteSize::mib(1));
        let settings = Settings { tiers, memory, table_size, ..hybrid() };
        let db = environment.create(home, &settings).unwrap();
        // In no order, so that a range has few of those that came last.
        let name = |key: u64| mix(key).to_be_bytes();
        let put = |keys: std::ops::Range<u64>, byte: u8| {
            keys.for_each(|key| db.put(name(key), [byte; 1000]).unwrap());
        };
        let free_bytes = || {
            let fast = db.stats().fast_tier.unwrap();
            fast.limit_bytes - fast.live_bytes
        };
        put(0..40_000, 7);
        let mut keys = 40_000;
        while free_bytes() > 1 << 20 {
            put(keys..keys + 50, 7);
            keys += 50;
            db.flush().unwrap();
            assert!(keys < 200_000, "the fast tier does not fill: {} are free", free_bytes());
        }
        // Updates nearly only, so that hardly more seems to come than a piece.
        let mut flushes = 0;
        while flushes < 16 || free_bytes() > 1_400_000 {
            put(keys - 300..keys + 30, 7);
            keys += 30;
            flushes += 1;
            db.flush().unwrap();
            assert!(flushes < 1000, "{} are free", free_bytes());
        }
        let replayed_bytes = || {
            let state = db.engine().versions().current();
            let frozen = state.frozen.iter().map(|frozen| frozen.memtable.bytes());
            frozen.sum::<u64>() + state.active.bytes()
        };
        let mut updated = 0;
        while updated < 300 || replayed_bytes() < free_bytes() {
            put(keys - updated - 1..keys - updated, 9);
            updated += 1;
            assert!(updated < 9000, "{} would go to {}", replayed_bytes(), free_bytes());
        }
        db.close().unwrap();
        let db = environment.open(home).unwrap();
        let fast = db.stats().fast_tier.unwrap();
        assert!(fast.slab_bytes <= fast.limit_bytes, "{fast:?}");
        let on_slow = |file: &FileInfo| file.kind == FileKind::Slab && file.tier != TierIndex(0);
        assert!(!db.engine().shared().files.files().iter().any(on_slow));
        for key in 0..keys {
            let byte = if key < keys - updated { 7 } else { 9 };
            assert_eq!(db.get(name(key)).unwrap().unwrap(), vec![byte; 1000]);
        }
    }

    /// Where threads that read slabs wait for each other.
    #[derive(Debug, Default)]
    struct Meeting {
        met: Mutex<Met>,
        one_came: Condvar,
    }

    #[derive(Debug, Default)]
    struct Met {
        /// 0 where no thread waits.
        expected: usize,
        /// Slabs whose header was read, each by the thread that opens it.
        opened: HashSet<String>,
        /// Threads that came; none of them has gone on, so each is another.
        came: usize,
        is_given_up: bool,
    }

    impl Meeting {
        /// Holds the calling thread, which is about to read from a slab, until all have come.
        fn pass(&self, name: &str) {
            let mut met = self.met.lock();
            let is_over = met.is_given_up || met.came == met.expected;
            if is_over || !name.ends_with(".slab") || met.opened.insert(name.to_owned()) {
                return;
            }
            met.came += 1;
            self.one_came.notify_all();
            while met.came < met.expected && !met.is_given_up {
                // The wait is long only where a thread never comes.
                let waited = self.one_came.wait_for(&mut met, Duration::from_secs(20));
                met.is_given_up |= waited.timed_out();
            }
        }
    }

    #[test]
    fn slabs_are_read_side_by_side_at_opening() {
        let meeting = Arc::new(Meeting::default());
        let passed = Arc::clone(&meeting);
        let hook = Arc::new(move |call, _: &Path, name: &str| {
            if call == Call::Read {
                passed.pass(name);
            }
            Ok(())
        });
        let environment = stepped_environment();
        let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
        let environment = Environment { devices, ..environment };
        let db = environment.create(Path::new("/home"), &hybrid()).unwrap();
        put(&db, 0..50);
        let slabs: u64 = files(&db).iter().map(|(count, _)| count).sum();
        db.close().unwrap();
        let expected = threads::available().min(SCANS_MAX).min(slabs as usize);
        assert!(slabs > SCANS_MAX as u64);
        meeting.met.lock().expected = expected;
        let environment = Environment { workers: Workers::Threads, ..environment };
        let db = environment.open(Path::new("/home")).unwrap();
        let met = std::mem::take(&mut *meeting.met.lock());
        assert_eq!(met.came, expected, "threads at once, of {slabs} slabs");
        assert_eq!(db.stats().fast_tier.unwrap().records, 50);
    }
}
