//! The index of the records of all tables: a B+-tree in the region (SLM-DB, section 3.2), written
//! by one thread and read by any, without a lock.
//!
//! ```text
//!   plan.rs     a run in the making: splits, joins, counts, sums, as copies in DRAM
//!   search.rs   readers: versions, right neighbours, dead nodes
//!   cursor.rs   entries in the order of the keys, either way
//!   check.rs    all of the tree: at opening, and when it is asked for
//!   root.rs     the root line
//! ```
//! How a run is carried out:
//! 1. Plan. New objects and nodes lie in free room, which nothing names.
//! 2. Flush them; **fence**. Write the new lines of what changes to the journal, flush; **fence**.
//!    The run is durable. One fence for both would not do: a power cut before it may keep all of
//!    the journal and lose what its lines name.
//! 3. Change the nodes, those of lower levels first, each between an odd and an even version; the
//!    register, the root; flush; **fence**. Store the number of the run; flush; **fence**.
//! 4. Mark nodes that went as dead. They, and objects that went, are reused after the readers that
//!    were under way.
//!
//! A reader between two nodes of step 3 finds all keys: a split node names its new neighbour, and a
//! node that went still has its entries until its parent no longer names it.
//!
//! Threads: any read. Those that write wait for each other; the store has one.

mod check;
mod cursor;
mod plan;
pub(crate) mod root;
mod search;

pub use cursor::{Cursor, LeafEntries};

use crate::allocation::{Allocation, Unit};
use crate::layout::{LINE_BYTES, ROOT_AT};
use crate::node::{DEAD, NODE_BYTES, VERSION_AT};
use crate::object::{Entry, KEY_BYTES_MAX};
use crate::persist::Medium;
use crate::readers::Readers;
use crate::region::{OpenedRegion, Region};
use crate::register::{Register, TableLine};
use crate::run::{self, Run};
use plan::{Finished, Plan};
use root::Root;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_foundation::{FileNumber, Planted, planted};

/// Keys of a run at most.
const RUN_KEYS_MAX: usize = 64;

/// Something that the tree names no more.
#[derive(Clone, Copy, Debug)]
struct Unlinked {
    unit: Unit,
    at: u64,
    /// Readers may have it.
    was_reachable: bool,
}

/// What a run changes besides nodes.
#[derive(Debug)]
struct Rest {
    root: Root,
    register: Vec<(FileNumber, u64, Option<TableLine>)>,
    unlinked: Vec<Unlinked>,
}

#[derive(Debug)]
struct Writer {
    root: Root,
    next_run: u64,
    lines_max: usize,
    allocation: Allocation,
    register: Register,
    /// What was unlinked in an epoch, the oldest first.
    limbo: VecDeque<(u64, Vec<Unlinked>)>,
}

/// What the index holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounts {
    /// Nodes.
    pub nodes: u64,
    /// Objects: entries and separators.
    pub objects: u64,
    /// Bytes of nodes, objects and lines of the register.
    pub bytes: u64,
    /// Bytes that are free in chunks of the index.
    pub free_bytes: u64,
    /// Tables in the register.
    pub tables: u64,
}

/// The index.
#[derive(Debug)]
pub struct Tree {
    region: Arc<Region>,
    /// The place of the root node; zero while there is none.
    root: AtomicU64,
    readers: Readers,
    writer: Mutex<Writer>,
}

impl Tree {
    /// Reads all of the index of a region that was just opened, and checks it.
    pub fn open(opened: &OpenedRegion) -> Result<Self> {
        let region = Arc::clone(&opened.region);
        let mut scanned = check::scan(&region, &opened.extents)?;
        scanned.allocation.drop_empty(region.chunks());
        let (owner, geometry) = (*region.owner(), region.identity().geometry);
        let writer = Writer {
            root: scanned.root,
            next_run: run::next_number(region.medium(), &owner, &geometry),
            lines_max: run::lines_max(geometry.journal_bytes),
            allocation: scanned.allocation,
            register: scanned.register,
            limbo: VecDeque::new(),
        };
        let root = AtomicU64::new(writer.root.node);
        Ok(Self { region, root, readers: Readers::default(), writer: Mutex::new(writer) })
    }

    /// An index without entries in place of the one that the region has, which is not read. Where
    /// this is cut off the index is damaged, and it is done again.
    pub fn renew(opened: &OpenedRegion) -> Result<Self> {
        let region = Arc::clone(&opened.region);
        let medium = region.medium();
        medium.write(ROOT_AT, &Root::EMPTY.encode(region.owner()));
        medium.fence();
        opened.extents.iter().for_each(|extent| region.chunks().free(*extent));
        Self::open(&OpenedRegion { region, arenas: Vec::new(), extents: Vec::new() })
    }

    /// The tables of the register in a region that was just opened, once all of its index was
    /// checked. Changes nothing.
    pub fn tables_of(opened: &OpenedRegion) -> Result<Vec<TableLine>> {
        let scanned = check::scan(&opened.region, &opened.extents)?;
        Ok(scanned.register.lines.values().map(|(_, line)| *line).collect())
    }

    /// The region that it is in.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Enters records of `table`, which has `entries` in all: an entry goes in if the index has
    /// none of its key, or one with a smaller trailer; an equal trailer only changes the place. The
    /// keys ascend. With `is_last` the table counts as entered afterwards. What a crash or an error
    /// interrupts may be repeated from the start.
    pub fn enter(
        &self,
        table: (FileNumber, u64),
        records: &[(Vec<u8>, Entry)],
        is_last: bool,
    ) -> Result<()> {
        self.enter_all(&[table], records, is_last)
    }

    /// As [`Tree::enter`], of several tables in one pass.
    pub fn enter_all(
        &self,
        tables: &[(FileNumber, u64)],
        records: &[(Vec<u8>, Entry)],
        is_last: bool,
    ) -> Result<()> {
        debug_assert!(records.is_sorted_by(|a, b| a.0 < b.0));
        for (key, entry) in records {
            let is_known = entry.table.0 > 0 && tables.iter().any(|it| it.0 == entry.table);
            if !is_known || !entry.fits() || key.len() > KEY_BYTES_MAX {
                let text = format!("an entry of table {} does not fit the index", entry.table);
                return Err(Error::new(ErrorKind::Invalid, text));
            }
        }
        let mut rest = records;
        loop {
            let keys = self.run(|plan, lines_max| {
                for (table, entries) in tables {
                    plan.register(*table, *entries)?;
                }
                let enter =
                    |plan: &mut Plan<'_>, (key, entry): &(Vec<u8>, Entry)| plan.enter(key, entry);
                let keys = fill(plan, rest, lines_max, enter)?;
                if is_last && keys == rest.len() {
                    tables.iter().for_each(|(table, _)| plan.mark_entered(*table));
                }
                Ok(keys)
            })?;
            rest = &rest[keys..];
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Says that no table holds these tombstones any more: entries that still have these trailers
    /// name none afterwards. The keys ascend.
    pub fn release(&self, tombstones: &[(Vec<u8>, u64)]) -> Result<()> {
        let mut rest = tombstones;
        while !rest.is_empty() {
            let release = |plan: &mut Plan<'_>, (key, trailer): &(Vec<u8>, u64)| {
                let released = Entry { trailer: *trailer, ..Entry::default() };
                if plan.has(key, *trailer)? { plan.enter(key, &released) } else { Ok(()) }
            };
            let keys = self.run(|plan, lines_max| fill(plan, rest, lines_max, release))?;
            rest = &rest[keys..];
        }
        Ok(())
    }

    /// Takes entries out that still have these trailers: tombstones that hide nothing any more. The
    /// keys ascend.
    pub fn remove(&self, records: &[(Vec<u8>, u64)]) -> Result<()> {
        let mut rest = records;
        while !rest.is_empty() {
            let remove =
                |plan: &mut Plan<'_>, (key, trailer): &(Vec<u8>, u64)| plan.remove(key, *trailer);
            let keys = self.run(|plan, lines_max| fill(plan, rest, lines_max, remove))?;
            rest = &rest[keys..];
        }
        Ok(())
    }

    /// Takes a table out of the register; an error if an entry names it.
    pub fn forget(&self, table: FileNumber) -> Result<()> {
        self.run(|plan, _| plan.forget(table))
    }

    /// The lines of the register, one for each table.
    pub fn tables(&self) -> Vec<TableLine> {
        self.writer.lock().register.lines.values().map(|(_, line)| *line).collect()
    }

    /// The line of a table; none where the register has none.
    pub fn table(&self, number: FileNumber) -> Option<TableLine> {
        self.writer.lock().register.lines.get(&number).map(|(_, line)| *line)
    }

    /// What the index holds.
    pub fn counts(&self) -> TreeCounts {
        let writer = self.writer.lock();
        let Root { nodes, objects, tables, .. } = writer.root;
        let (bytes, free_bytes) = (writer.allocation.used().1, writer.allocation.free_bytes());
        TreeCounts { nodes, objects, tables, bytes, free_bytes }
    }

    /// Checks all of the index, as an opening does; writers wait.
    pub fn check(&self) -> Result<()> {
        let writer = self.writer.lock();
        let found = check::scan(&self.region, &writer.allocation.extents())?;
        let is_same = found.root == writer.root;
        is_same.then_some(()).ok_or_else(|| check::damaged_root("it is not what was written last"))
    }

    /// Carries out one run, which `plan` makes.
    fn run<T>(&self, plan: impl FnOnce(&mut Plan<'_>, usize) -> Result<T>) -> Result<T> {
        let mut writer = self.writer.lock();
        let writer = &mut *writer;
        self.reclaim(writer);
        let Writer { root, allocation, register, lines_max, next_run, .. } = writer;
        let mut made = Plan::new(&self.region, allocation, register, *root);
        let result = match plan(&mut made, *lines_max) {
            Ok(result) => result,
            Err(error) => {
                made.give_up();
                return Err(error);
            }
        };
        if made.is_empty() {
            made.give_up();
            return Ok(result);
        }
        let finished = made.finish(*next_run);
        *next_run += 1;
        self.carry_out(writer, finished);
        Ok(result)
    }

    fn carry_out(&self, writer: &mut Writer, finished: Finished) {
        let medium = self.region.medium();
        let Finished { mut run, objects, nodes, changed, rest } = finished;
        if !planted(Planted::ObjectNotFlushed) {
            flush_objects(medium, objects);
        }
        for (at, bytes) in nodes {
            medium.write(at, &bytes[..]);
        }
        medium.fence();
        let lines: Vec<u64> = rest.register.iter().map(|(_, at, _)| *at).collect();
        let apart = Run { number: run.number, lines: run.lines.clone() };
        if planted(Planted::LiveCountOutsideRun) {
            run.lines.retain(|at, _| !lines.contains(at));
        }
        if planted(Planted::NodeBeforeJournal) {
            self.apply(&run, &changed);
        }
        run.record(medium, self.region.owner());
        if planted(Planted::RunCountedEarly) {
            run.count(medium);
        }
        self.apply(&apart, &changed);
        medium.fence();
        run.count(medium);
        // Room that this run freed may be used for anything from now on: it must not be applied
        // again.
        medium.fence();
        self.root.store(rest.root.node, Ordering::Release);
        self.settle(writer, rest);
    }

    /// Changes the lines of a run in their places, and flushes them.
    fn apply(&self, run: &Run, changed: &[(u64, Box<[u8; NODE_BYTES]>)]) {
        let medium = self.region.medium();
        for (at, bytes) in changed {
            let (words, _) = bytes.as_chunks::<8>();
            let version = u64::from_le_bytes(words[1]);
            medium.store(at + VERSION_AT, version.wrapping_sub(1));
            for (index, word) in words.iter().enumerate().filter(|(index, _)| *index != 1) {
                let (place, word) = (at + 8 * index as u64, u64::from_le_bytes(*word));
                if medium.load(place) != word {
                    medium.store(place, word);
                }
            }
            medium.store(at + VERSION_AT, version);
            for (place, _) in run.lines.range(*at..at + NODE_BYTES as u64) {
                medium.flush(*place, LINE_BYTES);
            }
        }
        let nodes: BTreeSet<u64> = changed.iter().map(|(at, _)| *at).collect();
        let is_of_node = |place: u64| {
            let node = nodes.range(..=place).next_back();
            node.is_some_and(|at| place < at + NODE_BYTES as u64)
        };
        for (place, line) in run.lines.iter().filter(|(place, _)| !is_of_node(**place)) {
            debug_assert!(*place >= ROOT_AT);
            medium.write(*place, line);
        }
    }

    /// What is true after a run.
    fn settle(&self, writer: &mut Writer, rest: Rest) {
        let Rest { root, register, unlinked } = rest;
        writer.root = root;
        for (table, at, line) in register {
            match line {
                Some(line) => writer.register.lines.insert(table, (at, line)),
                None => writer.register.lines.remove(&table),
            };
        }
        let dead = unlinked.iter().filter(|it| it.unit == Unit::Node && it.was_reachable);
        dead.for_each(|node| self.mark_dead(node.at));
        writer.limbo.push_back((self.readers.end_epoch(), unlinked));
        self.reclaim(writer);
    }

    /// Sends readers away that still come to a node which the tree has no more. The mark need not
    /// be durable.
    fn mark_dead(&self, at: u64) {
        let medium = self.region.medium();
        let version = medium.load(at + VERSION_AT);
        let mut first = medium.load(at).to_le_bytes();
        first[5] = DEAD;
        medium.store(at + VERSION_AT, version.wrapping_add(1));
        medium.store(at, u64::from_le_bytes(first));
        medium.store(at + VERSION_AT, version.wrapping_add(2));
    }

    /// Gives back what no reader can have.
    fn reclaim(&self, writer: &mut Writer) {
        let quiet = self.readers.quiet_epoch();
        while let Some((_, unlinked)) = writer.limbo.pop_front_if(|(epoch, _)| *epoch <= quiet) {
            for Unlinked { unit, at, .. } in unlinked {
                writer.allocation.give(unit, at, self.region.chunks());
            }
        }
    }
}

/// Flushes the lines of new objects, one that several share once.
fn flush_objects(medium: &Medium, mut objects: Vec<(u64, u64)>) {
    objects.sort_unstable();
    let mut flushed = 0;
    for (at, bytes) in objects {
        let (first, end) = (at / LINE_BYTES * LINE_BYTES, at + bytes);
        let first = first.max(flushed);
        if first < end {
            medium.flush(first, end - first);
            flushed = end.next_multiple_of(LINE_BYTES);
        }
    }
}

/// Does `step` for records from the first on, as many as a run has room for; how many.
fn fill<T>(
    plan: &mut Plan<'_>,
    records: &[T],
    lines_max: usize,
    step: impl Fn(&mut Plan<'_>, &T) -> Result<()>,
) -> Result<usize> {
    for (index, record) in records.iter().take(RUN_KEYS_MAX).enumerate() {
        // One key has room in any journal; a run of more is cut.
        if index > 0 && !plan.has_room(lines_max) {
            return Ok(index);
        }
        step(plan, record)?;
    }
    Ok(records.len().min(RUN_KEYS_MAX))
}
