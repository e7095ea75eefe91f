//! Copies of tables' indexes on the fast tier: which tables get one, and the room for them
//! (PrismDB, section 4.1: index and filter of each table are on the fast tier, memory is their
//! cache).
//!
//! ```text
//!   tables change, the cache is divided anew ──> wanted? room for them is taken from the slots
//!                                                  │
//!   a job, one copy at a time: table ──tail──> file on tier 0 <──reads of partitions── look-ups
//!                                                  │
//!   its table ends, it was wrong, or memory holds all partitions after all ──> deleted
//! ```
//! A copy is worth its room only where memory does not hold the partitions of all tables: then a
//! look-up reads them, and without a copy from the slow tier, beside the block that it is after. By
//! default ([`IndexCopies::Auto`]) the copies are made when the block cache gets less than it asks
//! for, and go when it could have a good deal more.
//!
//! Invariants:
//! 1. Nothing that happens to a copy fails a read or stops writes: a copy that cannot be made is
//!    not there, and after [`ATTEMPTS_MAX`] of them the table goes without one.
//! 2. Slots and copies together keep to the room that is for slots: the slots give it up first, and
//!    a copy is made when there is room. Copies get a quarter of it at most.
//! 3. A copy has one owner, the reader of its table, from which it is taken by who deletes it.
//!
//! Threads: one job makes and ends copies; who commits an edit says what is wanted.

use crate::error::Result;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::single_step::Work;
use crate::settings::Settings;
use crate::settings::hybrid::IndexCopies;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_device::{
    Error, ErrorKind, FileContext, FileKind, Origin, Result as DeviceResult, TierIndex,
};
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_table::{TableReader, TailCounts};

/// Times that a copy of a table is made or tried to be made.
const ATTEMPTS_MAX: u32 = 3;

/// Share of the slots' room that copies may take.
const ROOM_SHARE: u64 = 4;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct IndexCopying {
    setting: IndexCopies,
    pub counts: Arc<TailCounts>,
    wanted: AtomicBool,
    /// A table may lack its copy, or have one that must go.
    look: AtomicBool,
    is_running: AtomicBool,
    /// Copies that were given up, as of the last look.
    failures_seen: AtomicU64,
}

/// What the tables of now would take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Of the block cache, all their partitions.
    pub partition_bytes: u64,
    /// Of the fast tier, all their tails.
    pub tail_bytes: u64,
    /// Of the fast tier, the copies that there are.
    pub copied_bytes: u64,
}

impl Demand {
    /// Adds a table.
    pub fn add(&mut self, table: &Table, settings: &Settings) {
        let (block_bytes, filter_bits) = (settings.block_size.0, settings.filter_bits_per_key);
        self.partition_bytes += table.partition_bytes(block_bytes, filter_bits);
        self.tail_bytes += table.tail_bytes(block_bytes, filter_bits);
        self.copied_bytes += table.copy_bytes().unwrap_or(0);
    }
}

impl IndexCopying {
    /// No copies yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            setting: settings.hybrid.index_copies,
            counts: Arc::default(),
            wanted: AtomicBool::new(false),
            look: AtomicBool::new(false),
            is_running: AtomicBool::new(false),
            failures_seen: AtomicU64::new(0),
        }
    }

    /// Copies are wanted, where the block cache of `cache_bytes` is to hold these partitions. They
    /// go on being wanted, or not, in between.
    fn decide(&self, partition_bytes: u64, cache_bytes: u64) -> bool {
        let wanted = match self.setting {
            IndexCopies::Always => true,
            IndexCopies::Never => false,
            // What the cache is given where there is memory enough: a quarter more than they take.
            IndexCopies::Auto if cache_bytes < partition_bytes + partition_bytes / 4 => true,
            IndexCopies::Auto if cache_bytes > partition_bytes + partition_bytes / 2 => false,
            IndexCopies::Auto => self.wanted.load(Relaxed),
        };
        let before = self.wanted.swap(wanted, Relaxed);
        if wanted || before {
            self.look.store(true, Relaxed);
        }
        wanted
    }

    /// There may be room for a copy that found none.
    pub fn look_again(&self) {
        if self.wanted.load(Relaxed) {
            self.look.store(true, Relaxed);
        }
    }

    /// There may be something to do.
    pub fn is_due(&self) -> bool {
        let failures = self.counts.failed.get();
        self.look.load(Relaxed) || failures > self.failures_seen.load(Relaxed)
    }
}

impl FastTier {
    /// Decides anew whether copies are wanted, and takes room for them from the slots.
    pub fn reckon_index_copies(&self, demand: Demand) {
        let cache_bytes = self.shared.cache.capacity_bytes();
        let wanted = self.copying.decide(demand.partition_bytes, cache_bytes);
        let most_bytes = self.room.whole_bytes / ROOM_SHARE;
        let wanted_bytes = if wanted { demand.tail_bytes.min(most_bytes) } else { 0 };
        self.leave_room(wanted_bytes.max(demand.copied_bytes));
        // Who overdraws may have what is not used yet.
        let left_bytes = self.room.whole_bytes.saturating_sub(demand.copied_bytes);
        self.shared.placement.set_slab_bytes(left_bytes);
    }
}

/// Makes a copy that is missing, or ends those that must go.
pub(crate) const INDEX_COPY: Work = Work {
    name: "copy of a table's index",
    claim: |fast| &fast.copying.is_running,
    run: Hybrid::tend_index_copies,
};

impl Hybrid {
    fn tend_index_copies(&self) -> Result<()> {
        let copying = &self.fast.copying;
        copying.look.store(false, Relaxed);
        copying.failures_seen.store(copying.counts.failed.get(), Relaxed);
        let levels = Arc::clone(&self.versions.current().levels);
        let ended = self.end_index_copies(&levels);
        let made = copying.wanted.load(Relaxed) && self.make_index_copy(&levels);
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

    /// Deletes copies that were wrong, and all where none are wanted.
    fn end_index_copies(&self, levels: &Levels) -> bool {
        let wanted = self.fast.copying.wanted.load(Relaxed);
        let goes = |reader: &&Arc<TableReader>| {
            let failure = reader.copy_failure();
            if let Some(error) = &failure {
                tracing::warn!(%error, "a copy of a table's index is given up; the table is read");
            }
            !wanted || failure.is_some()
        };
        let readers = levels.tables().filter_map(|(_, table)| table.opened());
        let numbers = readers.filter(goes).filter_map(|reader| reader.take_copy());
        let ended = numbers.map(|number| self.delete_index_copy(number)).count();
        ended > 0
    }

    /// Makes the first copy that is missing and for which there is room; false where none could be
    /// made.
    fn make_index_copy(&self, levels: &Levels) -> bool {
        let lacks = |table: &Table| !table.has_copy() && table.copy_attempts() < ATTEMPTS_MAX;
        for (_, table) in levels.tables().filter(|(_, table)| lacks(table)) {
            let made = table.reader().map_err(|error| {
                Error::new(ErrorKind::Io, format!("its table cannot be opened: {error}"))
            });
            let made = made.and_then(|reader| self.copy_index(reader));
            match made {
                Ok(true) => {
                    table.copy_attempted();
                    return true;
                }
                Ok(false) => {}
                // The slots have not left the room yet, or somebody was faster.
                Err(error) if error.kind() == ErrorKind::OutOfSpace => return false,
                Err(error) => {
                    table.copy_attempted();
                    let table = table.meta.number;
                    tracing::warn!(%table, %error, "a table has no copy of its index on tier 0");
                }
            }
        }
        false
    }

    /// Copies the index of a table; not where the table is on the fast tier itself.
    fn copy_index(&self, reader: &TableReader) -> DeviceResult<bool> {
        if reader.file().tier() == TierIndex(0) {
            return Ok(false);
        }
        let bytes = reader.tail_bytes();
        if !self.has_room_for_index_copy(bytes) {
            return Err(Error::new(ErrorKind::OutOfSpace, "slots have the room"));
        }
        let context = FileContext { kind: FileKind::TableIndex, origin: Origin::Migration };
        let file = self.shared.files.create_file(context, bytes)?;
        let number = file.number();
        let copied = reader.copy_tail(file, &self.fast.copying.counts);
        copied.inspect_err(|_| self.delete_index_copy(number)).map(|()| true)
    }

    /// Slots, copies of indexes and one of so many bytes keep to the room.
    fn has_room_for_index_copy(&self, bytes: u64) -> bool {
        let (mut copies_bytes, mut slabs_bytes) = (0, 0);
        for file in self.shared.files.files().iter().filter(|file| file.tier == TierIndex(0)) {
            match file.kind {
                FileKind::TableIndex => copies_bytes += file.bytes,
                FileKind::Slab => slabs_bytes += file.bytes,
                _ => {}
            }
        }
        let copies_bytes = copies_bytes + bytes;
        let whole_bytes = self.fast.room.whole_bytes;
        copies_bytes <= whole_bytes / ROOM_SHARE && copies_bytes + slabs_bytes <= whole_bytes
    }

    /// A copy that stays is in nobody's way but for its room, and goes at the next opening.
    fn delete_index_copy(&self, number: FileNumber) {
        if let Err(error) = self.shared.files.delete_files(&[number]) {
            tracing::warn!(%number, %error, "a copy of a table's index stays until reopening");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Stepper, Workers};
    use crate::support::hooked::{Call, HookedDevices};
    use crate::support::{hybrid, stepped_environment, tier};
    use crate::{ByteSize, Db, Environment, HybridSettings, Promotion};
    use std::path::Path;
    use thermocline_device::{Buffer, MemoryDevices};
    use thermocline_foundation::random::mix;

    const HOME: &str = "/home";
    const KEYS: u64 = 4000;

    /// Nothing moves up, so that look-ups go to tables.
    fn settings(index_copies: IndexCopies) -> Settings {
        let promotion = Promotion::None;
        let hybrid_settings = HybridSettings { index_copies, promotion, ..Default::default() };
        Settings {
            hybrid: hybrid_settings,
            memory: ByteSize::mib(1),
            table_size: ByteSize::mib(1),
            ..hybrid()
        }
    }

    fn name(key: u64) -> [u8; 8] {
        mix(key).to_be_bytes()
    }

    fn value(key: u64, round: u8) -> Vec<u8> {
        let words = (0..125).flat_map(|word| mix(key << 16 | word).to_be_bytes());
        words.chain([round]).collect()
    }

    fn load(db: &Db, round: u8) {
        (0..KEYS).for_each(|key| db.put(name(key), value(key, round)).unwrap());
        db.compact_range(None, None, &mut |_| {}).unwrap();
        db.settle().unwrap();
    }

    /// A store whose records are all in tables of the slow tier.
    fn store(environment: &Environment, index_copies: IndexCopies) -> Db {
        let db = environment.create(Path::new(HOME), &settings(index_copies)).unwrap();
        load(&db, 1);
        assert_eq!(db.stats().fast_tier.unwrap().records, 0);
        db
    }

    fn tables(db: &Db) -> u64 {
        db.stats().levels.iter().map(|level| level.tables as u64).sum()
    }

    fn copies(db: &Db) -> Vec<FileNumber> {
        let files = db.engine().shared.files.files().into_iter();
        files.filter(|file| file.kind == FileKind::TableIndex).map(|file| file.number).collect()
    }

    fn figures(db: &Db) -> (u64, u64, u64) {
        let fast = db.stats().fast_tier.unwrap();
        (fast.index_copies, fast.index_copy_reads, fast.failed_index_copies)
    }

    fn check(db: &Db, round: u8) {
        for key in 0..KEYS {
            assert_eq!(db.get(name(key)).unwrap().unwrap(), value(key, round));
            assert!(db.get(name(key + KEYS)).unwrap().is_none());
        }
    }

    /// Reads of the slow tier for each look-up of some keys that are there and some that are not,
    /// where the block cache holds nothing.
    fn slow_reads(db: &Db) -> (f64, f64) {
        check(db, 1);
        db.engine().shared.cache.set_capacity(0);
        let of = |keys: std::ops::Range<u64>| {
            let reads = || db.engine().shared.files.tiers()[1].traffic_total().reads;
            let (count, before) = (keys.end - keys.start, reads());
            keys.for_each(|key| drop(db.get(name(key)).unwrap()));
            (reads() - before) as f64 / count as f64
        };
        (of(0..KEYS), of(KEYS..2 * KEYS))
    }

    #[test]
    fn with_copies_a_key_costs_one_slow_read_and_an_absent_key_none_whatever_memory_holds() {
        let db = store(&stepped_environment(), IndexCopies::Always);
        assert!(tables(&db) > 2);
        assert_eq!(figures(&db).0, tables(&db));
        let (present, absent) = slow_reads(&db);
        assert_eq!(present, 1.0);
        // Of a hundred absent keys about one passes the filter.
        assert!(absent < 0.03, "{absent}");
        assert!(figures(&db).1 > 3 * KEYS && figures(&db).2 == 0);

        let db = store(&stepped_environment(), IndexCopies::Never);
        assert_eq!((figures(&db).0, copies(&db).len()), (0, 0));
        let (present, absent) = slow_reads(&db);
        assert_eq!(present, 3.0);
        assert!((1.0..1.06).contains(&absent), "{absent}");
    }

    #[test]
    fn a_damaged_copy_is_not_served_and_made_anew_a_few_times() {
        let db = store(&stepped_environment(), IndexCopies::Always);
        for round in 1..=ATTEMPTS_MAX {
            let before = copies(&db);
            assert_eq!(before.len() as u64, tables(&db));
            for number in &before {
                let file = db.engine().shared.files.open_file(*number).unwrap();
                let bytes = file.len().unwrap() as usize;
                assert!(file.write(0, Buffer::zeroed(bytes)).1.is_ok());
            }
            db.engine().shared.cache.set_capacity(0);
            check(&db, 1);
            assert_eq!(figures(&db).2, u64::from(round) * tables(&db));
            db.settle().unwrap();
            assert!(copies(&db).iter().all(|number| !before.contains(number)));
        }
        assert!(copies(&db).is_empty() && figures(&db).0 == 0, "enough is enough");
        check(&db, 1);
        db.put("key", "value").unwrap();
        assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    }

    #[test]
    fn a_copy_ends_with_its_table() {
        let db = store(&stepped_environment(), IndexCopies::Always);
        let before = copies(&db);
        load(&db, 2);
        let after = copies(&db);
        assert!(after.len() as u64 == tables(&db) && figures(&db).0 == tables(&db));
        assert!(after.iter().all(|number| !before.contains(number)));
        check(&db, 2);
    }

    #[test]
    fn an_opening_removes_all_copies_and_makes_them_anew_where_they_are_wanted() {
        let environment = stepped_environment();
        let db = store(&environment, IndexCopies::Always);
        let before = copies(&db);
        db.close().unwrap();
        let db = environment.open(Path::new(HOME)).unwrap();
        assert!(copies(&db).is_empty());
        let on_tier = || db.engine().shared.files.tiers()[0].driver().list().unwrap();
        assert!(!on_tier().iter().any(|entry| entry.name.ends_with(".index")));
        check(&db, 1);
        db.settle().unwrap();
        assert_eq!(copies(&db).len(), before.len());
        assert_eq!(slow_reads(&db).0, 1.0);
        db.close().unwrap();
        let never = settings(IndexCopies::Never);
        let db = environment.open_with(Path::new(HOME), &never).unwrap();
        db.settle().unwrap();
        assert!(copies(&db).is_empty());
        check(&db, 1);
    }

    #[test]
    fn a_fast_tier_that_refuses_copies_fails_nothing() {
        for refused in [Call::Create, Call::Write] {
            let hook = move |call, _: &Path, name: &str| match name.ends_with(".index") {
                true if call == refused => Err(Error::new(ErrorKind::Io, "the test refuses")),
                _ => Ok(()),
            };
            let memory = Arc::new(MemoryDevices::default());
            let environment = Environment {
                devices: Arc::new(HookedDevices::new(memory, Arc::new(hook))),
                workers: Workers::Stepped(Arc::new(Stepper::new(1))),
                ..Environment::default()
            };
            let db = store(&environment, IndexCopies::Always);
            assert!(copies(&db).is_empty() && figures(&db).0 == 0);
            check(&db, 1);
            load(&db, 2);
            check(&db, 2);
        }
    }

    #[test]
    fn slots_leave_room_to_copies_and_both_keep_to_what_is_for_slots() {
        let environment = stepped_environment();
        let tiers = vec![tier("/fast", 4), tier("/slow", 256)];
        // Large partitions beside small records.
        let filter_bits_per_key = 32;
        let settings =
            |setting| Settings { tiers: tiers.clone(), filter_bits_per_key, ..settings(setting) };
        let db = environment.create(Path::new(HOME), &settings(IndexCopies::Never)).unwrap();
        for key in 0..60_000 {
            db.put(name(key), [key as u8; 60]).unwrap();
        }
        db.settle().unwrap();
        let fast = db.stats().fast_tier.unwrap();
        let whole_bytes = fast.limit_bytes;
        assert!(fast.slab_bytes > whole_bytes * 9 / 10, "{fast:?}");
        db.close().unwrap();
        let always = settings(IndexCopies::Always);
        let db = environment.open_with(Path::new(HOME), &always).unwrap();
        for key in 0..20_000 {
            db.put(name(key), [key as u8; 60]).unwrap();
            let fast = &db.stats().tiers[0];
            assert!(fast.used_bytes <= fast.capacity_bytes, "{fast:?}");
        }
        db.flush().unwrap();
        db.settle().unwrap();
        let fast = db.stats().fast_tier.unwrap();
        assert!(fast.index_copies == tables(&db) && fast.index_copy_bytes > 100_000, "{fast:?}");
        assert!(fast.limit_bytes + fast.index_copy_bytes <= whole_bytes, "{fast:?}");
        assert!(fast.slab_bytes <= fast.limit_bytes, "{fast:?}");
    }

    #[test]
    fn copies_are_wanted_while_memory_does_not_hold_all_partitions() {
        let of = |setting| IndexCopying::new(&settings(setting));
        let auto = of(IndexCopies::Auto);
        assert!(!auto.decide(100, 1000) && !auto.is_due());
        assert!(!auto.decide(100, 130), "between the two it stays as it is");
        assert!(auto.decide(100, 120) && auto.is_due());
        assert!(auto.decide(100, 130));
        assert!(!auto.decide(100, 151) && auto.is_due(), "those that are there are to go");
        assert!(of(IndexCopies::Always).decide(0, 1000));
        assert!(!of(IndexCopies::Never).decide(1000, 0));
    }
}
