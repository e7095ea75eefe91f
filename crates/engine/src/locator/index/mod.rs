//! The index of the newest record of each key, in a region of persistent memory (SLM-DB, section
//! 3.2; `thermocline_pmem::Tree`).
//!
//! ```text
//!   edit of the tables -> a new table waits -> entering.rs -> look-ups ask the index alone
//!   writer of the table -> where records lie ----^   in memory; without it the table is read
//! ```
//! 1. A table waits from the moment of its edit until all its records went through the index, by
//!    the tree's one rule: the newest trailer stays. The rule needs no order and may be repeated,
//!    so flushes, merges, bulk loads and restarts all do the same, and a crash undoes nothing.
//! 2. Of the tables that do not wait, the index names the newest record of each key; of a key that
//!    it lacks they have none, or a tombstone that hid nothing and its like. So a look-up asks the
//!    index, and the tables that wait.
//! 3. A look-up takes the tables that wait before it asks the index. What stops waiting between the
//!    two is in the index by then.
//! 4. An entry that is too new for a moment says nothing of it: then the version's tables are
//!    searched by ranges and filters.
//! 5. No edit removes a table that entries name.
//!
//! Threads: any; `tables` is replaced under the lock of the tables or of `claimed`.

mod blocks;
mod entering;
mod many;
mod opening;
mod room;
mod source;

use crate::error::{Error, Result};
use crate::jobs::Job;
use crate::shared::Shared;
use crate::table_set::handed::{HandOver, Handed};
use crate::table_set::levels::{Levels, Located};
use crate::table_set::table::Table;
use crate::versions::{Change, Switch};
use blocks::Named;
use bytes::Bytes;
use entering::EnterJob;
pub(crate) use entering::{Entering, Reserved};
use many::FoundMany;
pub(crate) use opening::require_known;
use room::Course;
use serde::{Deserialize, Serialize};
pub(crate) use source::{KeyBounds, Walk};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thermocline_foundation::sync::{ArcSwap, Mutex};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_pmem::{Entry, TableLine, Tree};
use thermocline_table::{BlockAddress, Trailer};

/// Tables that one pass enters at most.
const PASS_TABLES: usize = 8;

/// The tables of now.
#[derive(Clone, Debug, Default)]
struct Tables {
    all: BTreeMap<FileNumber, Arc<Table>>,
    /// Those that are not entered, the oldest first.
    waiting: Vec<Arc<Table>>,
}

impl Tables {
    fn waiting_records(&self) -> u64 {
        self.waiting.iter().map(|table| table.meta.entries).sum()
    }
}

/// What the index has, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IndexStats {
    /// Entries, and the keys that separate nodes.
    pub objects: u64,
    /// Bytes of the region that they and their nodes take.
    pub bytes: u64,
    /// Tables that are not entered yet, which look-ups search by ranges and filters.
    pub waiting_tables: u64,
    /// The region has no room for more entries: writes are refused but for deletes.
    pub is_full: bool,
    /// Bytes of tables that were merged for the order of their keys since the store was opened, and
    /// not for records that are dead.
    pub ordered_bytes: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct TableIndex {
    shared: Arc<Shared>,
    tree: Tree,
    tables: ArcSwap<Tables>,
    /// Waiting tables that a job enters, or is about to.
    claimed: Mutex<BTreeSet<FileNumber>>,
    /// Where the records of tables lie, as their writers say, until a job enters them.
    handed: Mutex<BTreeMap<FileNumber, Handed>>,
    hand_over: Arc<HandOver>,
    /// Tables up to this number waited when the store was opened: writers are not slowed by them.
    rebuilt: FileNumber,
    /// No tombstone was taken out of the index that is newer.
    removed: AtomicU64,
    /// Times that tombstones were taken out.
    removals: AtomicU64,
    /// Runs of scans that were begun before they are wanted.
    early_runs: AtomicUsize,
    /// Tables that were entered since the store was opened.
    entered_tables: AtomicU64,
    course: Course,
}

/// Some entries in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub tables: BTreeSet<FileNumber>,
    /// Tombstones that are in no table any more.
    pub released: Vec<(Vec<u8>, u64)>,
    /// The key behind them; none at the end.
    pub next: Option<Vec<u8>>,
}

/// The tables that are entered, each with how many entries name it.
pub(crate) type Lines = BTreeMap<FileNumber, TableLine>;

/// The answer of the index for a key.
#[derive(Debug)]
enum Known {
    Record(Named),
    /// A tombstone that no table has any more.
    Tombstone(Trailer),
    Nothing,
}

impl Known {
    fn trailer(&self) -> Option<Trailer> {
        match self {
            Self::Record(named) => Some(named.trailer),
            Self::Tombstone(trailer) => Some(*trailer),
            Self::Nothing => None,
        }
    }
}

impl TableIndex {
    /// Asks the index for `key`. None where the entry is too new to tell the moment `snapshot`.
    fn look(&self, tables: &Tables, key: &[u8], snapshot: Sequence) -> Result<Option<Known>> {
        let Some(entry) = self.tree.get(key).map_err(|error| self.named(&error))? else {
            let is_known = self.removed.load(Ordering::SeqCst) <= snapshot.0;
            return Ok(is_known.then_some(Known::Nothing));
        };
        let trailer = self.trailer(&entry)?;
        if trailer.sequence() > snapshot {
            return Ok(None);
        }
        if entry.table == FileNumber(0) {
            return Ok(Some(Known::Tombstone(trailer)));
        }
        let newer = || self.tables.load().all.get(&entry.table).cloned();
        let table = tables.all.get(&entry.table).cloned().or_else(newer);
        let address = BlockAddress { offset: entry.block_offset, len: entry.block_bytes };
        Ok(table.map(|table| Known::Record(Named { trailer, table, address })))
    }

    fn trailer(&self, entry: &Entry) -> Result<Trailer> {
        let decoded = Trailer::decode(entry.trailer);
        decoded.ok_or_else(|| Error::corrupt("the index has an entry of an unknown kind"))
    }

    /// The newest version of `key` at or before `snapshot`, with the table that has it.
    pub fn find_newest(
        &self,
        levels: &Levels,
        key: &[u8],
        snapshot: Sequence,
    ) -> Result<Option<Located>> {
        self.ask(|tables| {
            let Some(known) = self.look(tables, key, snapshot)? else {
                return super::search(levels, key, Sequence::ZERO, snapshot);
            };
            let later;
            let tables = if planted(Planted::WaitingTakenAfterIndex) {
                later = self.tables.load();
                &later
            } else {
                tables
            };
            let newer = newest_waiting(tables, key, snapshot, known.trailer(), Sequence::ZERO)?;
            match (newer, known) {
                (Some(newer), _) => Ok(Some(newer)),
                (None, Known::Record(named)) => named.read(key).map(Some),
                (None, Known::Tombstone(trailer)) => {
                    Ok(Some(Located { trailer, value: Bytes::new(), table: FileNumber(0) }))
                }
                (None, Known::Nothing) => Ok(None),
            }
        })
    }

    /// Answers with the tables of now; again, if a tombstone left the index meanwhile: it may have
    /// hidden what one of them has that waited.
    fn ask<T>(&self, answer: impl Fn(&Tables) -> Result<T>) -> Result<T> {
        loop {
            let before = self.removals.load(Ordering::SeqCst);
            let tables = self.tables.load();
            let answer = answer(&tables)?;
            if tables.waiting.is_empty() || self.removals.load(Ordering::SeqCst) == before {
                return Ok(answer);
            }
        }
    }

    /// As [`TableIndex::find_newest`] for those of `keys` at the places `at`, in one pass over the
    /// index in the order of the keys, and with one batch of reads.
    pub fn find_many(&self, keys: &[&[u8]], at: &[usize], snapshot: Sequence) -> Result<FoundMany> {
        let mut at = at.to_vec();
        at.sort_by_key(|at| keys[*at]);
        self.ask(|tables| many::find(self, tables, keys, &at, snapshot))
    }

    /// Sequence and kind of what [`TableIndex::find_newest`] finds; none may be said where it is
    /// not newer than `than`. Reads no table but those that wait and may have something newer.
    pub fn newer_trailer(
        &self,
        levels: &Levels,
        key: &[u8],
        than: Sequence,
        snapshot: Sequence,
    ) -> Result<Option<Trailer>> {
        self.ask(|tables| {
            let Some(known) = self.look(tables, key, snapshot)? else {
                let found = super::search(levels, key, than, snapshot)?;
                return Ok(found.map(|found| found.trailer));
            };
            let newer = newest_waiting(tables, key, snapshot, known.trailer(), than)?;
            Ok(newer.map(|newer| newer.trailer).or(known.trailer()))
        })
    }

    /// The newest trailer of `key` that was entered, and the table that has it, 0 for none; none
    /// where no table that was entered has the key, or the tombstone of it has gone.
    pub fn entered(&self, key: &[u8]) -> Result<Option<(Trailer, FileNumber)>> {
        let entry = self.tree.get(key).map_err(|error| self.named(&error))?;
        entry.map(|entry| Ok((self.trailer(&entry)?, entry.table))).transpose()
    }

    /// What the next `keys` entries are, from `from` on.
    pub fn pass(&self, from: &[u8], keys: usize) -> Result<Passed> {
        let (mut passed, mut left) = (Passed::default(), keys);
        for entry in self.tree.cursor(from) {
            let (key, entry) = entry.map_err(|error| self.named(&error))?;
            if left == 0 {
                passed.next = Some(key);
                break;
            }
            left -= 1;
            if entry.table > FileNumber(0) {
                passed.tables.insert(entry.table);
            } else {
                passed.released.push((key, entry.trailer));
            }
        }
        Ok(passed)
    }

    /// Tables that were entered since the store was opened.
    pub fn entered_tables(&self) -> u64 {
        self.entered_tables.load(Ordering::Relaxed)
    }

    /// See [`Lines`]. Waits for the writer of the tree, a check of the whole included.
    pub fn lines(&self) -> Lines {
        let entered = self.tree.tables().into_iter().filter(|line| line.is_entered);
        entered.map(|line| (line.number, line)).collect()
    }

    /// Tables that wait.
    pub fn waiting(&self) -> usize {
        self.tables.load().waiting.len()
    }

    /// One of the tables `numbers` waits.
    pub fn any_waits(&self, numbers: &BTreeSet<FileNumber>) -> bool {
        self.tables.load().waiting.iter().any(|table| numbers.contains(&table.meta.number))
    }

    /// The job that enters the oldest tables that wait and that no other job has. Several go in by
    /// one pass: a leaf that has keys of more than one changes once.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        if self.waiting() == 0 && self.shared.index_room.has_room(1) {
            return None;
        }
        // Before any lock: it waits for the writer of the tree.
        self.review(self.measure_room());
        let mut claimed = self.claimed.lock();
        let tables = self.tables.load();
        let is_free = |table: &&Arc<Table>| !claimed.contains(&table.meta.number);
        let free: Vec<_> = tables.waiting.iter().filter(is_free).cloned().collect();
        let chosen = self.chosen(free, PASS_TABLES);
        let numbers: Vec<_> = chosen.iter().map(|table| table.meta.number).collect();
        if numbers.is_empty() {
            return None;
        }
        claimed.extend(&numbers);
        let reserved = Reserved::new(self, numbers);
        let mut handed = self.handed.lock();
        let with_places = |table: Arc<Table>| {
            let places = handed.remove(&table.meta.number);
            (table, places)
        };
        let entering = Entering::new(self, chosen.into_iter().map(with_places).collect());
        Some(Box::new(EnterJob::new(entering, reserved)))
    }

    /// Keeps tables that are about to be added from the lane of the index: the caller enters them.
    pub fn reserve(self: &Arc<Self>, numbers: Vec<FileNumber>) -> Reserved {
        self.claimed.lock().extend(&numbers);
        Reserved::new(self, numbers)
    }

    /// All records of these tables went through the index.
    fn stop_waiting(&self, numbers: &[FileNumber]) {
        self.measure_room();
        self.change(|tables| tables.waiting.retain(|table| !numbers.contains(&table.meta.number)));
        self.entered_tables.fetch_add(numbers.len() as u64, Ordering::Relaxed);
        self.tell_writers();
        self.shared.announce();
    }

    fn change(&self, change: impl FnOnce(&mut Tables)) {
        // A lock of its own would do; this one is held for as short.
        let _claimed = self.claimed.lock();
        let mut tables = Tables::clone(&self.tables.load());
        change(&mut tables);
        self.shared.index_room.set_waiting(tables.waiting_records());
        self.tables.store(Arc::new(tables));
    }

    /// Slows writers while many tables wait, unless they wait for room.
    fn tell_writers(&self) {
        let tables = self.tables.load();
        let is_new = |table: &&Arc<Table>| table.meta.number > self.rebuilt;
        let backlog =
            if self.is_stuck() { 0 } else { tables.waiting.iter().filter(is_new).count() };
        self.shared.write_throttle.set_backlog(backlog);
    }

    /// Says that no table holds these tombstones: the edit that removes the last one may follow.
    pub fn release(&self, tombstones: &[(Vec<u8>, u64)]) -> Result<()> {
        self.tree.release(tombstones).map_err(|error| self.named(&error))
    }

    /// Takes tombstones out that hide nothing in any table.
    pub fn remove(&self, tombstones: &[(Vec<u8>, u64)]) -> Result<()> {
        let newest = tombstones.iter().map(|(_, trailer)| trailer >> 8).max();
        self.removed.fetch_max(newest.unwrap_or(0), Ordering::SeqCst);
        self.removals.fetch_add(u64::from(newest.is_some()), Ordering::SeqCst);
        self.tree.remove(tombstones).map_err(|error| self.named(&error))
    }

    /// Refuses an edit that removes a table which entries name.
    pub fn prepare(&self, change: &Change) -> Result<()> {
        if planted(Planted::IndexedBeforeEdit) {
            entering::enter_early(self, change)?;
        }
        for (_, number) in change.edit.gone() {
            let line = self.tree.table(number);
            let is_named = line.is_some_and(|line| line.live > 0);
            if is_named && !planted(Planted::TableDroppedWithEntries) {
                return Err(Error::corrupt(format!(
                    "table {number} was about to be removed while the index in persistent memory \
                     names records of it; restore the database from a checkpoint"
                )));
            }
        }
        Ok(())
    }

    /// The memory of what writers hand over.
    pub fn hand_over(&self) -> &Arc<HandOver> {
        &self.hand_over
    }

    /// Keeps what the writers of new tables have handed over. Nothing is entered before the tables
    /// wait.
    pub fn take(&self, change: &mut Change) {
        self.handed.lock().append(&mut change.handed);
    }

    /// New tables wait from here on.
    pub fn before_switch(&self, switch: &Switch<'_>) {
        let edit = &switch.change.edit;
        if edit.added.is_empty() {
            return;
        }
        let added = edit.added.iter().map(|(_, meta)| meta.number).collect::<BTreeSet<_>>();
        let is_new = |table: &&Arc<Table>| added.contains(&table.meta.number);
        let found: Vec<_> =
            switch.after.tables().map(|(_, table)| table).filter(is_new).cloned().collect();
        self.change(|tables| {
            for table in found {
                let before = tables.all.insert(table.meta.number, Arc::clone(&table));
                if before.is_none() {
                    tables.waiting.push(table);
                }
            }
        });
        self.tell_writers();
    }

    /// Readers see the tables without those that went.
    pub fn after_switch(&self, switch: &Switch<'_>) {
        let gone: Vec<_> = switch.change.edit.gone().map(|(_, number)| number).collect();
        if gone.is_empty() {
            return;
        }
        self.change(|tables| {
            tables.all.retain(|number, _| !gone.contains(number));
            tables.waiting.retain(|table| !gone.contains(&table.meta.number));
        });
        self.handed.lock().retain(|number, _| !gone.contains(number));
        for number in gone {
            if let Err(error) = self.tree.forget(number) {
                tracing::warn!(%error, "a table stays in the register of the index");
            }
        }
    }

    /// Checks all of the index.
    pub fn verify(&self) -> Result<()> {
        self.tree.check().map_err(|error| self.named(&error))
    }

    /// What the index has, and what it lacks.
    pub fn stats(&self) -> IndexStats {
        let counts = self.tree.counts();
        IndexStats {
            objects: counts.objects,
            bytes: counts.bytes,
            waiting_tables: self.waiting() as u64,
            is_full: !self.shared.index_room.has_room(1),
            ordered_bytes: self.course.ordered_bytes.load(Ordering::Relaxed),
        }
    }

    fn named(&self, error: &thermocline_device::Error) -> Error {
        Error::of_region("the index in persistent memory", error.clone())
    }
}

/// The newest version of `key` up to `snapshot` in tables that wait and have something newer than
/// `than`, if it is newer than what is `known`. The newest tables come first: they settle most.
fn newest_waiting(
    tables: &Tables,
    key: &[u8],
    snapshot: Sequence,
    known: Option<Trailer>,
    than: Sequence,
) -> Result<Option<Located>> {
    let mut newest: Option<Located> = None;
    let mut best = known;
    for table in tables.waiting.iter().rev() {
        let may_be_newer = best.is_none_or(|best| table.meta.largest_sequence >= best.sequence())
            && table.meta.largest_sequence > than;
        if !may_be_newer || !table.meta.overlaps(Some(key), Some(key)) {
            continue;
        }
        if let Some((trailer, value)) = table.get(key, snapshot)?
            && best.is_none_or(|best| trailer > best)
        {
            best = Some(trailer);
            newest = Some(Located { trailer, value, table: table.meta.number });
        }
    }
    Ok(newest)
}
