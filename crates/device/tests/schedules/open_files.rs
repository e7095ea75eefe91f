//! Files that are closed and opened again under chosen schedules.

use super::{LEN, TABLE, add, content, create, join, names, spawn};
use crate::driver::{Completion, DirectoryLock, Driver, Entry, Handle, Operation, Queue, Space};
use crate::drivers::MemoryDriver;
use crate::file::Location;
use crate::open_files::OpenFiles;
use crate::tier::Tier;
use crate::{
    Buffer, Error, ErrorKind, File, FileContext, FileKind, MemoryDevices, Origin, Result, TierIndex,
};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::SeqCst};
use thermocline_foundation::sync::schedules::check;
use thermocline_foundation::{DatabaseId, FileNumber};

const SLAB: FileContext = FileContext { kind: FileKind::Slab, origin: Origin::Flush };

#[test]
fn files_closed_read_written_moved_and_deleted_at_once_are_whole() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let files = create(&devices);
        let (table, slab) = (add(&files, TABLE), add(&files, SLAB));
        let passing = add(&files, TABLE);
        files.set_open_files_max(1);
        let reader = {
            let (table, passing) = (Arc::clone(&table), Arc::clone(&passing));
            spawn(move || {
                for file in [&table, &passing, &table] {
                    let pending = file.start_read(100, 5000);
                    assert!(*file.read(0, LEN).unwrap() == content(file.number())[..]);
                    assert!(*pending.wait().unwrap() == content(file.number())[100..5100]);
                }
            })
        };
        let writer = {
            let slab = Arc::clone(&slab);
            spawn(move || {
                for round in 1..3u8 {
                    slab.write(512, Buffer::copy_of(&[round; 512])).1.unwrap();
                    slab.sync().unwrap();
                    assert!(*slab.read(512, 512).unwrap() == [round; 512]);
                }
            })
        };
        files.migrate(table.number(), TierIndex(1), &mut |_| {}).unwrap();
        files.delete_files(&[passing.number()]).unwrap();
        join([reader, writer]);
        assert_eq!(names(&devices, 0, ".table"), [""; 0]);
        assert!(*passing.read(0, LEN).unwrap() == content(passing.number())[..]);
        assert!(*table.read(0, LEN).unwrap() == content(table.number())[..]);
        assert!(*slab.read(0, 512).unwrap() == content(slab.number())[..512]);
        drop((passing, table, slab));
        assert_eq!(files.open_file_counts().open, 0, "each was counted once");
    });
}

/// A device that fails one sync, and tells it to the call that comes first, as Linux does.
#[derive(Debug)]
struct TellsOnce {
    inner: MemoryDriver,
    fails: AtomicBool,
}

impl Driver for TellsOnce {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn alignment(&self) -> usize {
        self.inner.alignment()
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
        if matches!(operation, Operation::Sync) && self.fails.swap(false, SeqCst) {
            let error = Error::new(ErrorKind::Io, "the device failed");
            return Completion { tag: 0, result: Err(error), buffer: Buffer::default() };
        }
        self.inner.execute(file, operation)
    }
}

#[test]
fn a_failed_sync_is_told_to_the_caller_though_a_closing_heard_of_it_first() {
    check(2000, || {
        let inner = MemoryDriver::new();
        let handle = inner.create("00000001.slab").unwrap();
        let driver = Arc::new(TellsOnce { inner, fails: AtomicBool::new(true) });
        let location = Location::open(Arc::new(Tier::detached(TierIndex(0), driver)), handle);
        let open_files = Arc::new(OpenFiles::default());
        let (database, number) = (DatabaseId([7; 16]), FileNumber(1));
        let extent = Arc::default();
        let file = File::at(database, number, FileKind::Slab, location, extent, &open_files);
        open_files.enroll(&file);
        file.write(0, Buffer::copy_of(&[7; 512])).1.unwrap();
        let closer = spawn(move || open_files.set_bound(1));
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::Io);
        join([closer]);
        assert!(file.read(0, 512).unwrap()[..] == [7; 512]);
    });
}
