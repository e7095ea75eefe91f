//! What a forked child may do to the files that its parent has open: nothing, and without waiting.
#![cfg(feature = "forking")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;
use thermocline_device::drivers::forking::start_child;
use thermocline_device::drivers::{Batches, DirectDriver, PosixDriver, host_files};
use thermocline_device::{
    Buffer, Driver, ErrorKind, File, FileContext, FileKind, FillFirst, Operation, Origin, ReadAt,
    Request, SystemDevices, TierSpec, TieredFiles, read_batch,
};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

const TABLE: FileContext =
    FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Flush };

/// An empty directory beside the build's output, which is on a disk more often than `/tmp` is.
fn scratch() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// The call is refused, and says what it is to be done instead.
fn is_refused<T>(what: &str, result: thermocline_device::Result<T>) -> Result<(), String> {
    let Err(error) = result else { return Err(format!("{what} is done")) };
    let text = error.to_string();
    let says = text.contains("forked from it") && text.contains("open it here");
    is(error.kind() == ErrorKind::Locked && says, &format!("{what}: {text}"))
}

fn pages(file: &File) -> Vec<ReadAt<'_>> {
    (0..40).map(|page| ReadAt { file, offset: page * 4096, len: 4096 }).collect()
}

fn create(path: &Path, driver: &str) -> Option<TieredFiles> {
    let capacity = ByteSize::gib(1);
    let tier = TierSpec { path: path.join("tier"), capacity, driver: driver.to_owned() };
    let devices = SystemDevices::default();
    let home = path.join("home");
    match TieredFiles::create(&devices, &home, &[tier], Arc::new(FillFirst)) {
        Ok(files) => Some(files),
        // No direct I/O here, which other tests are about.
        Err(error) if error.kind() == ErrorKind::Invalid => None,
        Err(error) => panic!("{error}"),
    }
}

fn open(path: &Path) -> thermocline_device::Result<TieredFiles> {
    let devices = SystemDevices::default();
    TieredFiles::open(&devices, &path.join("home"), None, Arc::new(FillFirst), false)
}

#[test]
fn a_child_is_refused_every_change_and_read_and_drops_all_without_harm() {
    for driver in ["posix", "direct"] {
        let place = scratch();
        let Some(files) = create(place.path(), driver) else { continue };
        let file = files.create_file(TABLE, 40 * 4096).unwrap();
        let bytes: Vec<u8> = (0..40u8).flat_map(|page| [page; 4096]).collect();
        file.write(0, Buffer::copy_of(&bytes)).1.unwrap();
        files.publish(&[file.number()]).unwrap();
        // Queues, and threads where the driver has them, are there from here on.
        assert!(read_batch(&pages(&file)).iter().all(Result::is_ok));
        let pending = file.start_read(0, 4096);
        let (files, file) = (Arc::new(files), Arc::new(file));
        let (files_of_child, file_of_child) = (Arc::clone(&files), Arc::clone(&file));
        // The child has copies of everything, and drops them all.
        let mut everything = Some((files, file, pending));
        let child = start_child(|| {
            let (files, file) = (files_of_child, file_of_child);
            is_refused("a change", files.create_file(TABLE, 0))?;
            is_refused("publishing", files.publish(&[file.number()]))?;
            is_refused("opening a file", files.open_file(file.number()))?;
            is_refused("closing", files.close(&[]))?;
            is_refused("a read", file.read(0, 10))?;
            is_refused("a batch of reads", read_batch(&pages(&file)).remove(7))?;
            is_refused("a write", file.write(0, Buffer::zeroed(4096)).1)?;
            is_refused("a sync", file.sync())?;
            is_refused("a new length", file.truncate(0))?;
            is_refused("more room", file.allocate(1 << 20))?;
            is_refused("a stream of writes", file.start_writes(2))?;
            is_refused("a sync of names", files.tiers()[0].sync_directory())?;
            files.leave_to_owner();
            drop((files, file, everything.take()));
            is(open(place.path()).is_err_and(|e| e.kind() == ErrorKind::Locked), "it is unlocked")
        });
        assert_eq!(child.wait(), Ok(()), "{driver}");
        assert_eq!(open(place.path()).unwrap_err().kind(), ErrorKind::Locked);
        let (files, file, pending) = everything.take().unwrap();
        assert_eq!(*pending.wait().unwrap(), bytes[..4096]);
        for (page, read) in read_batch(&pages(&file)).into_iter().enumerate() {
            assert_eq!(*read.unwrap(), [page as u8; 4096], "{driver}");
        }
        files.close(&[]).unwrap();
        drop((files, file));
        drop(open(place.path()).unwrap());
    }
}

/// Nor does it wait for what its parent's threads hold while they close files and open others.
#[test]
fn a_child_is_refused_files_that_are_closed() {
    let place = scratch();
    let files = create(place.path(), "posix").unwrap();
    let add = |_| {
        let file = files.create_file(TABLE, 4096).unwrap();
        file.write(0, Buffer::copy_of(&[5; 4096])).1.unwrap();
        file
    };
    let made: Vec<Arc<File>> = (0..6).map(add).collect();
    files.set_open_files_max(2);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = || {
            while !ended.load(Relaxed) {
                for file in &made {
                    assert_eq!(*file.read(0, 4096).unwrap(), [5; 4096]);
                    file.write(0, Buffer::copy_of(&[5; 4096])).1.unwrap();
                }
            }
        };
        scope.spawn(work);
        scope.spawn(work);
        let outcomes: Vec<_> = (0..20)
            .map(|_| {
                let child = start_child(|| {
                    for file in &made {
                        is_refused("a read", file.read(0, 10))?;
                        is_refused("a write", file.write(0, Buffer::zeroed(4096)).1)?;
                        is_refused("a stream of writes", file.start_writes(2))?;
                        is_refused("a sync", file.sync())?;
                        is(file.len().is_ok_and(|len| len == 4096), "it has another length")?;
                    }
                    is_refused("a deletion", files.delete_files(&[made[0].number()]))
                });
                child.wait()
            })
            .collect();
        ended.store(true, Relaxed);
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    });
    assert!(files.open_file_counts().reopened > 0);
}

#[test]
fn a_child_drops_queues_that_its_parent_waits_on_and_takes_nothing_from_them() {
    for batches in [Some(Batches::Ring), Some(Batches::Threads), None] {
        let place = scratch();
        let driver: Box<dyn Driver> = match batches {
            None => Box::new(PosixDriver::open(place.path()).unwrap()),
            Some(batches) => match DirectDriver::open(place.path(), batches) {
                Ok(driver) => Box::new(driver),
                Err(_) => continue,
            },
        };
        let file = driver.create("file").unwrap();
        let operation =
            Operation::Write { offset: 0, buffer: Buffer::copy_of(&[5; 8 * 4096]), durable: false };
        driver.execute(&file, operation).result.unwrap();
        let mut queue = driver.queue(8).unwrap();
        let read = |tag: u64| {
            let buffer = Buffer::zeroed(4096);
            Request {
                tag,
                file: file.clone(),
                operation: Operation::Read { offset: tag * 4096, buffer },
            }
        };
        queue.submit(&mut (0..8).map(read).collect());
        let queue = Box::new(queue);
        let mut here = Some((queue, driver));
        let child = start_child(|| {
            drop(here.take());
            Ok(())
        });
        assert_eq!(child.wait(), Ok(()), "{batches:?}");
        let (mut queue, driver) = here.take().unwrap();
        let mut done = Vec::new();
        queue.reap(8, &mut done);
        assert!(done.iter().all(|done| done.buffer.iter().all(|byte| *byte == 5)), "{batches:?}");
        drop((queue, driver));
    }
}

/// Waits for a file of that name, which another process makes.
fn await_file(path: &Path) -> Result<(), String> {
    for _ in 0..3000 {
        if host_files::read(path, 10).is_ok() {
            return Ok(());
        }
        SystemClock::new().sleep(Duration::from_millis(10));
    }
    Err(format!("{} was not made within 30 s", path.display()))
}

/// Waits until another process has removed that file.
fn await_end_of(path: &Path) -> Result<(), String> {
    for _ in 0..3000 {
        if host_files::read(path, 10).is_err() {
            return Ok(());
        }
        SystemClock::new().sleep(Duration::from_millis(10));
    }
    Err(format!("{} was not removed within 30 s", path.display()))
}

/// A store whose process ended while a child of it lives is refused for as long as that holds on to
/// it, and the refusal says so.
#[test]
fn a_lock_that_a_child_inherited_is_told_and_ends_when_the_child_leaves_it() {
    let place = scratch();
    let at = |name: &str| place.path().join(name);
    create(place.path(), "posix").unwrap().close(&[]).unwrap();
    let process = start_child(|| {
        let files = open(place.path()).map_err(|error| error.to_string())?;
        // Runs on after its parent, which ends without giving anything back.
        let _child = start_child(|| {
            await_file(&at("leave"))?;
            files.leave_to_owner();
            host_files::write_text(&at("left"), "").map_err(|error| error.to_string())?;
            await_end_of(&at("left"))
        });
        // As a process that is killed leaves it.
        std::mem::forget(files);
        Ok(())
    });
    let number = process.process_id();
    assert_eq!(process.wait(), Ok(()));
    let text = open(place.path()).unwrap_err().to_string();
    assert!(text.contains(&format!("process {number}, which has ended")), "{text}");
    assert!(text.contains("forked from it"), "{text}");
    host_files::write_text(&at("leave"), "").unwrap();
    await_file(&at("left")).unwrap();
    drop(open(place.path()).unwrap());
}

#[test]
fn a_refused_child_names_the_process_and_the_user_that_hold_the_store() {
    let place = scratch();
    let driver = PosixDriver::open(place.path()).unwrap();
    let own = std::process::id();
    for reads in [false, true] {
        let held = match reads {
            false => Some(driver.lock("LOCK").unwrap()),
            true => driver.lock_shared("LOCK").unwrap(),
        };
        assert!(held.is_some());
        let child = start_child(|| {
            let error = PosixDriver::open(place.path()).and_then(|driver| driver.lock("LOCK"));
            let text = error.map(drop).unwrap_err().to_string();
            let how = if reads { " for reading" } else { "" };
            let told = text.contains(&format!("is locked: process {own} ("))
                && text.contains(&format!(", user root) has the store open{how};"));
            is(told || !is_root(), &text)?;
            is(text.contains(&format!("process {own} (")), &text)
        });
        assert_eq!(child.wait(), Ok(()));
        drop(held);
    }
}

fn is_root() -> bool {
    let status = host_files::read(Path::new("/proc/self/status"), 1 << 20).unwrap();
    String::from_utf8_lossy(&status).lines().any(|line| line.starts_with("Uid:\t0\t0\t"))
}

/// What a child lets go of, its parent still holds; and what the parent lets go of is free,
/// although the child still has a copy.
#[test]
fn a_parent_gives_its_lock_back_while_a_child_has_a_copy() {
    let place = scratch();
    let driver = PosixDriver::open(place.path()).unwrap();
    let mut held = Some(driver.lock("LOCK").unwrap());
    let dropped = start_child(|| {
        drop(held.take());
        Ok(())
    });
    assert_eq!(dropped.wait(), Ok(()));
    assert_eq!(driver.lock("LOCK").unwrap_err().kind(), ErrorKind::Locked);
    let end = place.path().join("end");
    let child = start_child(|| await_file(&end));
    drop(held);
    drop(driver.lock("LOCK").unwrap());
    host_files::write_text(&end, "").unwrap();
    assert_eq!(child.wait(), Ok(()));
}
