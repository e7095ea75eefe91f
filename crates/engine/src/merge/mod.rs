//! Merging sorted sources into one order: key ascending, newest version first.
//!
//! Sources are memtables, single tables (of a level that may overlap) and whole disjoint levels. A
//! binary heap of source indexes has the source with the next entry on top. The same merge serves
//! scans, either way, and compactions. Errors of a source surface at the step that met them and end
//! the merge: a read error must never look like the end of the data. Only a damaged slot does not
//! end it: its record has its place in the order and no value ([`Merge::damage`]).
//!
//! What the levels of a scan must read before its first record they read together: a scan pays for
//! the slowest read of a batch and not for one read a level. That batch comes after the other
//! sources have been positioned, which read no table.
//!
//! ```text
//!   slots, memtables      positioned
//!   levels                begun: each goes as far as memory leads, and says what it waits for
//!     index partitions    those not in memory, one batch with the windows already known
//!     windows of data     the rest, one batch
//! ```

pub(crate) mod level_cursor;
pub(crate) mod source;
pub(crate) mod target;

use crate::error::{Error, Result};
use bytes::Bytes;
pub(crate) use level_cursor::{LevelCursor, Tables};
pub(crate) use source::{RecordSource, Source};
use std::cmp::Ordering;
pub(crate) use target::Target;
use thermocline_device::read_batch;
use thermocline_foundation::FileNumber;
use thermocline_table::{Trailer, compare};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    /// Indexes of the sources that have a current entry; a binary heap by `before`.
    heap: Vec<usize>,
    forward: bool,
    /// It was put somewhere since it was made for a movement that was under way.
    positioned: bool,
}

impl Merge {
    pub fn new(sources: Vec<Source>) -> Self {
        Self { heap: Vec::with_capacity(sources.len()), sources, forward: true, positioned: true }
    }

    /// A merge that belongs to a movement which positions it, whichever way it goes.
    pub fn unpositioned(sources: Vec<Source>) -> Self {
        Self { positioned: false, ..Self::new(sources) }
    }

    /// The entry at the current position.
    pub fn current(&self) -> Option<(&[u8], Trailer)> {
        self.sources[*self.heap.first()?].current()
    }

    /// The value at the current position, shared with where it lies; empty for a delete.
    pub fn value(&self) -> Bytes {
        self.heap.first().map_or_else(Bytes::new, |top| self.sources[*top].value())
    }

    /// The table that has the current entry; none where none has it.
    pub fn table(&self) -> Option<FileNumber> {
        self.sources[*self.heap.first()?].table()
    }

    /// Why there is no value at the current position: the record's slot is damaged.
    pub fn damage(&self) -> Option<&Error> {
        self.sources[*self.heap.first()?].damage()
    }

    /// The value at the current position, to be looked at and not kept.
    pub fn value_slice(&self) -> &[u8] {
        self.heap.first().map_or(&[], |top| self.sources[*top].value_slice())
    }

    /// Moves all sources, and with them the merge. The direction is that of the target.
    pub fn position(&mut self, to: Target<'_>) -> Result<()> {
        self.heap.clear();
        self.forward = to.is_forward();
        self.positioned = true;
        self.position_sources(to)?;
        let with_entry = |index: &usize| self.sources[*index].current().is_some();
        self.heap.extend((0..self.sources.len()).filter(with_entry));
        for slot in (0..self.heap.len() / 2).rev() {
            self.sift_down(slot);
        }
        Ok(())
    }

    /// Moves all sources; those that wait for a read get it in one batch with the others.
    fn position_sources(&mut self, to: Target<'_>) -> Result<()> {
        let mut waiting = Vec::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            waiting.extend(source.begin(to)?.map(|awaited| (index, awaited)));
        }
        while !waiting.is_empty() {
            let reads: Vec<_> = waiting.iter().map(|(_, awaited)| awaited.read_at()).collect();
            let arrived = read_batch(&reads);
            for ((index, awaited), read) in std::mem::take(&mut waiting).into_iter().zip(arrived) {
                let awaited = self.sources[index].go_on(to, (awaited, read))?;
                waiting.extend(awaited.map(|awaited| (index, awaited)));
            }
        }
        Ok(())
    }

    /// To the next entry in the direction of the last positioning.
    pub fn step(&mut self) -> Result<()> {
        let Some(&top) = self.heap.first() else { return Ok(()) };
        if let Err(error) = self.sources[top].step(self.forward) {
            self.heap.clear();
            return Err(error);
        }
        if self.sources[top].current().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Records have left a source for tables that the merge does not have; it must begin again.
    pub fn is_stale(&self) -> bool {
        self.sources.iter().any(Source::is_stale)
    }

    /// Steps go towards larger keys.
    pub fn is_forward(&self) -> bool {
        self.forward
    }

    /// It must be positioned before it is stepped.
    pub fn is_unpositioned(&self) -> bool {
        !self.positioned
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let order = match (self.sources[a].current(), self.sources[b].current()) {
            (Some((a_key, a_trailer)), Some((b_key, b_trailer))) => {
                compare(a_key, a_trailer, b_key, b_trailer)
            }
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        order == if self.forward { Ordering::Less } else { Ordering::Greater }
    }

    fn sift_down(&mut self, mut slot: usize) {
        loop {
            let left = 2 * slot + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.before(self.heap[right], self.heap[left])
            {
                right
            } else {
                left
            };
            if !self.before(self.heap[child], self.heap[slot]) {
                return;
            }
            self.heap.swap(slot, child);
            slot = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::jobs::{Stepper, Workers};
    use crate::support::hooked::{Call, HookedDevices};
    use crate::support::one_tier;
    use crate::{Db, Environment, ErrorKind};
    use std::path::Path;
    use std::sync::Arc;
    use thermocline_device::{Error, FileKind, MemoryDevices};
    use thermocline_foundation::random::mix;
    use thermocline_foundation::sync::Mutex;

    const KEYS: usize = 600;

    /// Reads of tables: sizes of batches, and how many there were in all.
    #[derive(Debug, Default)]
    struct Reads {
        batches: Vec<usize>,
        all: usize,
        /// Reads that pass before one fails.
        pass: Option<usize>,
    }

    fn key(number: usize) -> Vec<u8> {
        format!("key {number:04}").into_bytes()
    }

    /// Not to be compressed, so that a page has few of them.
    fn value(number: usize) -> Vec<u8> {
        (0..50).flat_map(|word| mix((number as u64) << 16 | word).to_be_bytes()).collect()
    }

    /// A store of three runs that overlap everywhere, two of level 0 above one below, all open and
    /// nothing of them in the cache.
    fn three_runs() -> (Db, Arc<Mutex<Reads>>) {
        let reads = Arc::new(Mutex::new(Reads::default()));
        let (called, handed) = (Arc::clone(&reads), Arc::clone(&reads));
        let hook = move |call: Call, _: &Path, name: &str| {
            if call != Call::Read || !name.ends_with(".table") {
                return Ok(());
            }
            let mut reads = called.lock();
            reads.all += 1;
            let fails = reads.pass == Some(0);
            reads.pass = reads.pass.map(|pass| pass.saturating_sub(1));
            let kind = thermocline_device::ErrorKind::Io;
            if fails { Err(Error::new(kind, "the test's device fails")) } else { Ok(()) }
        };
        let memory = Arc::new(MemoryDevices::default());
        let devices = HookedDevices::new(memory, Arc::new(hook));
        let devices = devices.batches(Arc::new(move |reads| {
            if reads > 0 {
                handed.lock().batches.push(reads);
            }
        }));
        let environment = Environment {
            devices: Arc::new(devices),
            workers: Workers::Stepped(Arc::new(Stepper::new(1))),
            ..Environment::default()
        };
        let db = environment.create(Path::new("/home"), &one_tier()).unwrap();
        for run in 0..3 {
            let of_run = (0..KEYS).filter(|number| number % 3 == run);
            of_run.for_each(|number| db.put(key(number), value(number)).unwrap());
            db.flush().unwrap();
            if run == 0 {
                db.compact_range(None, None, &mut |_| {}).unwrap();
            }
        }
        assert_eq!(db.scan().into_iter().count(), KEYS);
        let runs: Vec<_> = db.stats().levels.iter().map(|level| level.tables).collect();
        assert_eq!((runs[0], runs.iter().sum::<usize>()), (2, 3), "{runs:?}");
        db.engine().shared().cache.clear();
        *reads.lock() = Reads::default();
        (db, reads)
    }

    /// The first record that is found, and what was read for it.
    fn first(db: &Db, reads: &Mutex<Reads>, from: usize) -> (Vec<u8>, Vec<usize>, usize) {
        let mut scan = db.scan().from(key(from)).limit(1).into_iter();
        let found = scan.next().unwrap().unwrap().0.to_vec();
        let Reads { batches, all, .. } = std::mem::take(&mut *reads.lock());
        (found, batches, all)
    }

    #[test]
    fn a_scan_over_three_runs_makes_its_first_reads_in_one_batch() {
        let (db, reads) = three_runs();
        let cold = first(&db, &reads, 100);
        assert_eq!(cold, (key(100), vec![3, 3], 6), "partitions, then windows");
        let warm = first(&db, &reads, 400);
        assert_eq!(warm, (key(400), vec![3], 3), "partitions are in memory");
        let again = first(&db, &reads, 400);
        assert_eq!(again, (key(400), vec![], 0), "blocks are, too");
    }

    #[test]
    fn a_cursor_that_jumps_or_turns_reads_in_one_batch() {
        let (db, reads) = three_runs();
        let mut cursor = db.cursor();
        cursor.seek_to_first().unwrap();
        assert_eq!(std::mem::take(&mut reads.lock().batches), [3, 3]);
        cursor.seek_for_prev(&key(300)).unwrap();
        assert_eq!((cursor.key(), reads.lock().batches.remove(0)), (&key(300)[..], 3));
        db.engine().shared().cache.clear();
        *reads.lock() = Reads::default();
        cursor.next().unwrap();
        assert_eq!(cursor.key(), key(301));
        assert!(reads.lock().batches.iter().all(|batch| *batch > 1), "{reads:?}");
    }

    #[test]
    fn an_error_of_one_read_of_a_batch_is_reported_with_its_place() {
        let (db, reads) = three_runs();
        for pass in 0..6 {
            db.engine().shared().cache.clear();
            reads.lock().pass = Some(pass);
            let mut scan = db.scan().from(key(100)).into_iter();
            let error = scan.next().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            let text = error.to_string();
            assert!(text.contains("cannot read ") && text.contains(" at "), "{text}");
            assert!(text.contains(".table (tier 0, "), "{text}");
            assert!(scan.next().is_none(), "after an error a scan ends");
            reads.lock().pass = None;
            let found: Vec<_> = db.scan().from(key(100)).into_iter().map(Result::unwrap).collect();
            assert_eq!(found.len(), KEYS - 100);
        }
    }

    #[test]
    fn tables_that_are_deleted_under_a_cursor_stay_readable() {
        let (db, reads) = three_runs();
        let tables = || {
            let files = db.engine().shared().files.files().into_iter();
            files.filter(|file| matches!(file.kind, FileKind::Table { .. })).count()
        };
        let mut cursor = db.cursor();
        cursor.seek(&key(200)).unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        db.settle().unwrap();
        assert_eq!(tables(), 4, "the cursor's, and the one that they became");
        db.engine().shared().cache.clear();
        reads.lock().batches.clear();
        cursor.seek_to_first().unwrap();
        assert_eq!(reads.lock().batches, [3], "it has the partitions");
        for number in 0..KEYS {
            assert_eq!((cursor.key(), &cursor.value()[..]), (&key(number)[..], &value(number)[..]));
            cursor.next().unwrap();
        }
        assert!(!cursor.valid());
        drop(cursor);
        db.settle().unwrap();
        assert_eq!(tables(), 1);
    }
}
