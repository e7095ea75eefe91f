//! The log's writer under chosen schedules: see `thermocline_foundation::sync::schedules`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::{Durability, LogHeader, LogReader, LogSettings, LogWriter, ReplayEnd};
use std::sync::Arc;
use thermocline_device::driver::{
    Completion, DirectoryLock, Driver, Entry, Handle, Operation, Queue, Space,
};
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Buffer, Error, ErrorKind, File, FileKind, Result, TierIndex};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::schedules::check;
use thermocline_foundation::threads::{self, JoinHandle};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};

/// A directory in memory that counts syncs and may fail one.
#[derive(Debug)]
struct CountingDriver {
    inner: MemoryDriver,
    /// Begun, ended, and the number of the one that fails.
    syncs: Mutex<(u32, u32)>,
    failing: u32,
    /// What loss of power would leave of the log: its bytes when the last sync began that ended.
    kept: Mutex<Vec<u8>>,
}

impl CountingDriver {
    fn bytes_of(&self, file: &Handle) -> Vec<u8> {
        let buffer = Buffer::zeroed(file.len().unwrap() as usize);
        let read = self.inner.execute(file, Operation::Read { offset: 0, buffer });
        read.buffer[..read.result.unwrap()].to_vec()
    }
}

impl Driver for CountingDriver {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn describe(&self) -> String {
        "counting".to_owned()
    }

    fn alignment(&self) -> usize {
        1
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.inner.create(name)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.inner.open(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.inner.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(name)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.inner.queue(depth)
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        if !matches!(operation, Operation::Sync) {
            return self.inner.execute(file, operation);
        }
        self.syncs.lock().0 += 1;
        let bytes = self.bytes_of(file);
        let mut syncs = self.syncs.lock();
        syncs.1 += 1;
        let failed = syncs.1 == self.failing;
        drop(syncs);
        let done = self.inner.execute(file, operation);
        if failed {
            let error = Error::new(ErrorKind::Io, "the device failed");
            return Completion { result: Err(error), ..done };
        }
        *self.kept.lock() = bytes;
        done
    }
}

fn log_file(driver: Arc<dyn Driver>, handle: Handle) -> Arc<File> {
    let (database, number) = (DatabaseId([7; 16]), FileNumber(1));
    Arc::new(File::new(database, number, FileKind::Log, TierIndex(0), driver, handle))
}

/// The log that loss of power would leave now.
fn after_power_cut(driver: &CountingDriver) -> Arc<File> {
    let left = MemoryDriver::new();
    let handle = left.create("log").unwrap();
    let buffer = Buffer::copy_of(&driver.kept.lock());
    left.execute(&handle, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
    log_file(Arc::new(left), handle)
}

/// A log on a device whose sync number `failing` fails; 0 for none.
fn log(failing: u32) -> (Arc<CountingDriver>, Arc<File>, Arc<LogWriter>) {
    let inner = MemoryDriver::new();
    let (syncs, kept) = (Mutex::new((0, 0)), Mutex::default());
    let driver = Arc::new(CountingDriver { inner, syncs, failing, kept });
    let handle = driver.create("log").unwrap();
    let file = log_file(Arc::clone(&driver) as Arc<dyn Driver>, handle);
    let header = LogHeader { stream: 0, previous: None, first_sequence: Sequence(1) };
    let settings = LogSettings { segment_bytes: 0, growth_bytes: 4096, buffer_bytes: 4096 };
    let writer = LogWriter::create(Arc::clone(&file), header, settings).unwrap();
    (driver, file, Arc::new(writer))
}

fn payload(sequence: u64) -> Vec<u8> {
    // Some records are longer than both buffers together.
    let len = if sequence % 3 == 0 { 10_000 } else { 100 };
    vec![sequence as u8; len]
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads::spawn("test", body).unwrap()
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

/// Sequences of a log, whose payloads must be theirs.
fn replay(file: &File) -> (Vec<u64>, ReplayEnd) {
    let mut sequences = Vec::new();
    let summary = LogReader::replay(file, &mut |first, _, bytes| {
        assert!(*bytes == payload(first.0)[..], "record {first} is whole");
        sequences.push(first.0);
        Ok(())
    });
    (sequences, summary.unwrap().end)
}

#[test]
fn committed_records_are_as_durable_as_asked_and_all_are_found_in_order() {
    check(5000, || {
        let (driver, file, writer) = log(0);
        let next = Arc::new(Mutex::new(1));
        let committers = (0..3).map(|committer| {
            let (writer, next) = (Arc::clone(&writer), Arc::clone(&next));
            spawn(move || {
                for _ in 0..2 {
                    let mut next = next.lock();
                    let sequence = *next;
                    *next += 1;
                    let position = writer.append(Sequence(sequence), 1, &payload(sequence));
                    drop(next);
                    let position = position.unwrap();
                    if committer == 0 {
                        writer.commit(position, Durability::Buffered).unwrap();
                        assert!(writer.written_sequence() >= Sequence(sequence));
                    } else {
                        writer.commit(position, Durability::Sync).unwrap();
                        assert!(writer.durable_sequence() >= Sequence(sequence));
                    }
                }
            })
        });
        let committers: Vec<_> = committers.collect();
        join(committers);
        let syncs = *driver.syncs.lock();
        assert!(syncs.0 == syncs.1 && syncs.1 <= 1 + 4, "at most a sync each: {syncs:?}");
        writer.seal().unwrap();
        assert_eq!(replay(&file).0, (1..=6).collect::<Vec<_>>());
    });
}

#[test]
fn sealing_while_others_commit_loses_nothing_and_marks_the_end() {
    check(5000, || {
        let (_, file, writer) = log(0);
        let append = |sequence| writer.append(Sequence(sequence), 1, &payload(sequence)).unwrap();
        let positions: Vec<_> = (1..=4).map(append).collect();
        let committers = [1, 3].map(|at| {
            let (writer, position) = (Arc::clone(&writer), positions[at]);
            spawn(move || writer.commit(position, Durability::Sync).unwrap())
        });
        let sealers = (0..2).map(|_| {
            let writer = Arc::clone(&writer);
            spawn(move || {
                writer.seal().unwrap();
                assert_eq!(writer.durable_sequence(), Sequence(4));
            })
        });
        let sealers: Vec<_> = sealers.collect();
        join(committers);
        join(sealers);
        assert_eq!(replay(&file), ((1..=4).collect(), ReplayEnd::Sealed));
    });
}

#[test]
fn a_failed_sync_reaches_every_thread_and_none_waits_for_ever() {
    check(5000, || {
        // The first sync is of the log's header.
        let (driver, _, writer) = log(2);
        let next = Arc::new(Mutex::new(1));
        let committers = (0..3).map(|_| {
            let (writer, next) = (Arc::clone(&writer), Arc::clone(&next));
            spawn(move || {
                let mut next = next.lock();
                let sequence = *next;
                let position = writer.append(Sequence(sequence), 1, &payload(sequence));
                *next += 1;
                drop(next);
                let done = position.and_then(|at| writer.commit(at, Durability::Sync));
                assert_eq!(done.unwrap_err().kind(), ErrorKind::Io);
            })
        });
        let committers: Vec<_> = committers.collect();
        join(committers);
        assert!(writer.append(Sequence(9), 1, b"late").is_err());
        assert!(writer.seal().is_err());
        assert_eq!(driver.syncs.lock().1, 2, "a failed sync is not tried again");
        assert_eq!(writer.durable_sequence(), Sequence::ZERO);
    });
}

/// Three records of three threads; two are perhaps written during a sync of the first.
fn promises_outlive_loss_of_power() {
    let (driver, _, writer) = log(0);
    let next = Arc::new(Mutex::new(1));
    let committers = (0..3).map(|committer| {
        let (driver, writer) = (Arc::clone(&driver), Arc::clone(&writer));
        let next = Arc::clone(&next);
        spawn(move || {
            let mut next = next.lock();
            let sequence = *next;
            *next += 1;
            let position = writer.append(Sequence(sequence), 1, &payload(sequence)).unwrap();
            drop(next);
            if committer > 0 {
                writer.commit(position, Durability::Buffered).unwrap();
            }
            writer.commit(position, Durability::Sync).unwrap();
            let (found, _) = replay(&after_power_cut(&driver));
            assert!(found.contains(&sequence), "{sequence} was promised, {found:?} are left");
        })
    });
    let committers: Vec<_> = committers.collect();
    join(committers);
}

#[test]
fn a_sync_promises_only_what_was_written_before_it_began() {
    check(5000, promises_outlive_loss_of_power);
}

/// The tester tested: the schedules above find a writer that promises more.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_a_sync_that_counts_what_was_written_while_it_ran() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let bug = Planted::SyncCountsLaterWrites;
    let found =
        std::panic::catch_unwind(|| with(bug, || check(5000, promises_outlive_loss_of_power)));
    assert!(found.is_err(), "5000 schedules do not show it");
}
