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
//! default ([`Setting::Auto`]) the copies are made when the block cache gets less than it asks
//! for, and go when it could have a good deal more.
//!
//! Invariants:
//! 1. Nothing that happens to a copy fails a read or stops writes: a copy that cannot be made is
//!    not there, and after [`ATTEMPTS_MAX`] of them the table goes without one.
//! 2. Slots and copies together keep to the room that is for slots: the slots give it up first, and
//!    a copy is made when there is room. Copies get a quarter of it at most.
//! 3. A copy has one owner, the reader of its table, from which the thread that deletes it takes
//!    it.
//!
//! Threads: one job makes and ends copies; the commit of an edit decides what is wanted.

use crate::error::ErrorKind as EngineErrorKind;
use crate::settings::Settings;
use crate::settings::hybrid::IndexCopies as Setting;
use crate::shared::Shared;
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
pub(super) const ATTEMPTS_MAX: u32 = 3;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct IndexCopies {
    shared: Arc<Shared>,
    pub counts: Arc<TailCounts>,
    wanted: AtomicBool,
    /// A table may lack its copy, or have one that must go.
    look: AtomicBool,
    /// A job is at it.
    pub is_running: AtomicBool,
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

impl IndexCopies {
    /// No copies yet.
    pub fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            counts: Arc::default(),
            wanted: AtomicBool::new(false),
            look: AtomicBool::new(false),
            is_running: AtomicBool::new(false),
            failures_seen: AtomicU64::new(0),
        }
    }

    /// Copies are wanted, where the block cache of `cache_bytes` is to hold these partitions. They
    /// go on being wanted, or not, in between.
    pub(super) fn decide(&self, partition_bytes: u64, cache_bytes: u64) -> bool {
        let wanted = match self.shared.settings.hybrid.index_copies_of_variant() {
            Setting::Always => true,
            Setting::Never => false,
            // What the cache is given where there is memory enough: a quarter more than they take.
            Setting::Auto if cache_bytes < partition_bytes + partition_bytes / 4 => true,
            Setting::Auto if cache_bytes > partition_bytes + partition_bytes / 2 => false,
            Setting::Auto => self.wanted.load(Relaxed),
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

    /// Decides anew whether copies are wanted, and takes room for them from the slots, whose new
    /// limit `set` hears of.
    pub fn reckon(&self, demand: Demand, set: impl FnOnce(u64)) {
        let cache_bytes = self.shared.cache.capacity_bytes();
        let wanted = self.decide(demand.partition_bytes, cache_bytes);
        let wanted_bytes = if wanted { demand.tail_bytes } else { 0 };
        let tier0 = &self.shared.tier0;
        tier0.want_copies(wanted_bytes, demand.copied_bytes, set);
        // An overdraft may have what is not used yet.
        let left_bytes = tier0.divided_bytes().saturating_sub(demand.copied_bytes);
        self.shared.placement.set_slab_bytes(left_bytes);
    }

    /// Makes a copy that is missing, or ends those that must go.
    pub fn tend(&self, levels: &Levels) -> Tended {
        self.look.store(false, Relaxed);
        self.failures_seen.store(self.counts.failed.get(), Relaxed);
        let ended = self.end(levels);
        let made = self.wanted.load(Relaxed) && self.make(levels);
        Tended { ended, made }
    }

    /// Deletes copies that were wrong, and all where none are wanted.
    fn end(&self, levels: &Levels) -> bool {
        let wanted = self.wanted.load(Relaxed);
        let goes = |reader: &&Arc<TableReader>| {
            let failure = reader.copy_failure();
            if let Some(error) = &failure {
                tracing::warn!(%error, "a copy of a table's index is given up; the table is read");
            }
            !wanted || failure.is_some()
        };
        let readers = levels.tables().filter_map(|(_, table)| table.opened());
        let numbers = readers.filter(goes).filter_map(|reader| reader.take_copy());
        let ended = numbers.map(|number| self.delete(number)).count();
        ended > 0
    }

    /// Makes the first copy that is missing and for which there is room; false where none could be
    /// made.
    fn make(&self, levels: &Levels) -> bool {
        let lacks = |table: &Table| !table.has_copy() && table.copy_attempts() < ATTEMPTS_MAX;
        for (_, table) in levels.tables().filter(|(_, table)| lacks(table)) {
            let made = table.reader().map_err(|error| {
                let kind = match error.kind() {
                    EngineErrorKind::TooManyOpenFiles => ErrorKind::TooManyOpenFiles,
                    _ => ErrorKind::Io,
                };
                Error::new(kind, format!("its table cannot be opened: {error}"))
            });
            let made = made.and_then(|reader| self.copy(reader));
            match made {
                Ok(true) => {
                    table.copy_attempted();
                    return true;
                }
                Ok(false) => {}
                // The slots have not left the room yet, or another file was faster.
                Err(error) if error.kind() == ErrorKind::OutOfSpace => return false,
                // No attempt: the next look tries again.
                Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => return false,
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
    fn copy(&self, reader: &TableReader) -> DeviceResult<bool> {
        if reader.file().tier() == TierIndex(0) {
            return Ok(false);
        }
        let bytes = reader.tail_bytes();
        if !self.has_room_for(bytes) {
            return Err(Error::new(ErrorKind::OutOfSpace, "slots have the room"));
        }
        let context = FileContext { kind: FileKind::TableIndex, origin: Origin::Migration };
        let file = self.shared.files.create_file(context, bytes)?;
        let number = file.number();
        let copied = reader.copy_tail(file, &self.counts);
        copied.inspect_err(|_| self.delete(number)).map(|()| true)
    }

    /// Slots, copies of indexes and one of so many bytes keep to the room.
    fn has_room_for(&self, bytes: u64) -> bool {
        let (mut copies_bytes, mut slots_bytes) = (0, 0);
        for file in self.shared.files.files().iter().filter(|file| file.tier == TierIndex(0)) {
            match file.kind {
                FileKind::TableIndex => copies_bytes += file.bytes,
                FileKind::Slab => slots_bytes += file.bytes,
                _ => {}
            }
        }
        self.shared.tier0.has_room_for_copies(copies_bytes + bytes, slots_bytes)
    }

    /// A copy that stays is in the way of nothing but for its room, and goes at the next opening.
    fn delete(&self, number: FileNumber) {
        if let Err(error) = self.shared.files.delete_files(&[number]) {
            tracing::warn!(%number, %error, "a copy of a table's index stays until reopening");
        }
    }
}

/// What became of copies, or nothing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tended {
    pub ended: bool,
    pub made: bool,
}
