//! Background work makes way for writes of the log: what reaches the driver meanwhile.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod watched;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use thermocline_device::{
    Buffer, File, FileContext, FileKind, FillFirst, Operation, Origin, ReadAt, TierSpec,
    TieredFiles, background, read_batch,
};
use thermocline_foundation::ByteSize;
use watched::{WatchedDevices, Watcher};

const KIB: usize = 1 << 10;

/// What the tier was asked for.
#[derive(Debug, Default)]
struct Seen {
    /// Lengths of reads and writes, in the order of their arrival.
    lens: Vec<usize>,
    /// Most that a queue was given at once.
    most_at_once: usize,
    /// Durable writes wait until this is false.
    is_held: bool,
    /// Durable writes that have arrived.
    durable: usize,
}

/// Notes what a tier is asked for, and can hold up durable writes.
#[derive(Debug, Default)]
struct Notes {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Notes {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_all();
    }

    /// Lengths of what has arrived since the last call.
    fn arrived(&self) -> Vec<usize> {
        std::mem::take(&mut self.seen.lock().unwrap().lens)
    }
}

impl Watcher for Notes {
    fn see(&self, operation: &Operation) {
        let mut seen = self.seen.lock().unwrap();
        match operation {
            Operation::Read { buffer, .. } => seen.lens.push(buffer.len()),
            Operation::Write { durable: true, .. } => {
                seen.durable += 1;
                self.changed.notify_all();
                drop(self.changed.wait_while(seen, |seen| seen.is_held).unwrap());
            }
            Operation::Write { buffer, .. } => seen.lens.push(buffer.len()),
            Operation::Sync => {}
        }
    }

    fn see_batch(&self, requests: usize) {
        self.change(|seen| seen.most_at_once = seen.most_at_once.max(requests));
    }
}

/// Files on one tier, and the tier's notes.
struct Scene {
    files: TieredFiles,
    tier: Arc<Notes>,
}

impl Scene {
    fn new() -> Self {
        let (tier, path) = (Arc::new(Notes::default()), Path::new("/tier"));
        let notes = Arc::clone(&tier);
        let devices = WatchedDevices::new(4 * KIB, move |_| Arc::clone(&notes) as _);
        let capacity = ByteSize::mib(64);
        let spec = TierSpec { path: path.to_owned(), capacity, driver: "memory".to_owned() };
        let policy = Arc::new(FillFirst);
        let files = TieredFiles::create(&devices, Path::new("/home"), &[spec], policy).unwrap();
        tier.arrived();
        Self { files, tier }
    }

    fn file(&self, kind: FileKind) -> Arc<File> {
        let context = FileContext { kind, origin: Origin::Flush };
        let file = self.files.create_file(context, 0).unwrap();
        self.tier.arrived();
        file
    }

    fn table(&self) -> Arc<File> {
        self.file(FileKind::Table { level: 0 })
    }

    /// Runs `body` while a durable write of `log` is under way.
    fn while_flying<T>(&self, log: &File, body: impl FnOnce() -> T) -> T {
        self.tier.change(|seen| seen.is_held = true);
        let before = self.tier.seen.lock().unwrap().durable;
        std::thread::scope(|threads| {
            let flying = threads.spawn(|| log.write_durably(0, Buffer::zeroed(4 * KIB)).1);
            let seen = self.tier.seen.lock().unwrap();
            drop(self.tier.changed.wait_while(seen, |seen| seen.durable == before).unwrap());
            let result = body();
            self.tier.change(|seen| seen.is_held = false);
            flying.join().unwrap().unwrap();
            result
        })
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at) as u8).collect()
}

#[test]
fn a_table_is_written_and_read_in_pieces_while_a_log_write_flies_and_whole_otherwise() {
    let scene = Scene::new();
    let (log, table) = (scene.file(FileKind::Log), scene.table());
    let content = pattern(200 * KIB);
    let write = || table.write(4096, Buffer::copy_of(&content)).1.unwrap();
    let read = || assert_eq!(*table.read(4096, content.len()).unwrap(), content[..]);
    let (whole, pieces) = (vec![200 * KIB], vec![64 * KIB, 64 * KIB, 64 * KIB, 8 * KIB]);

    let scope = background();
    write();
    assert_eq!(scene.tier.arrived(), whole, "no log is written");
    scene.while_flying(&log, || {
        write();
        assert_eq!(scene.tier.arrived(), pieces);
        read();
        assert_eq!(scene.tier.arrived(), pieces);
        let ahead = table.start_read(4096, content.len());
        assert_eq!(scene.tier.arrived(), [0; 0], "read when it is wanted");
        assert_eq!(*ahead.wait().unwrap(), content[..]);
        assert_eq!(scene.tier.arrived(), pieces);
    });
    read();
    assert_eq!(scene.tier.arrived(), pieces, "the log may be written again");
    read();
    assert_eq!(scene.tier.arrived(), whole);
    drop(scope);

    scene.while_flying(&log, read);
    assert_eq!(scene.tier.arrived(), whole, "a caller waits for this one");
    scene.files.set_log_first(false);
    let _scope = background();
    scene.while_flying(&log, read);
    assert_eq!(scene.tier.arrived(), whole, "switched off");
}

#[test]
fn batches_and_streams_go_four_at_a_time() {
    let scene = Scene::new();
    let (log, table) = (scene.file(FileKind::Log), scene.table());
    let content = pattern(400 * KIB);
    let at = |index: usize| index * 32 * KIB;
    let slice = |index: usize| &content[at(index)..][..32 * KIB];
    let stream = |count: usize| {
        let mut stream = table.start_writes(64).unwrap();
        let part = |index| (at(index) as u64, Buffer::copy_of(slice(index)));
        stream.write_all((0..count).map(part).collect(), 1 << 20).unwrap();
        stream.write(at(count) as u64, Buffer::copy_of(&content[at(count)..])).unwrap();
        stream.finish().unwrap();
    };
    let most = || {
        let mut most = 0;
        scene.tier.change(|seen| most = std::mem::take(&mut seen.most_at_once));
        most
    };
    let batch = || {
        let read = |index| ReadAt { file: &table, offset: at(index) as u64, len: 32 * KIB };
        let mut reads: Vec<_> = (0..9).map(read).collect();
        reads.push(ReadAt { file: &table, offset: 0, len: 200 * KIB });
        let found = read_batch(&reads);
        found[..9].iter().enumerate().for_each(|(index, found)| {
            assert_eq!(**found.as_ref().unwrap(), *slice(index));
        });
        assert_eq!(**found[9].as_ref().unwrap(), content[..200 * KIB]);
    };
    let _scope = background();
    stream(9);
    assert_eq!(most(), 9);
    batch();
    assert_eq!(most(), 10);
    scene.while_flying(&log, || {
        scene.tier.arrived();
        stream(6);
        let mut expected = vec![32 * KIB; 6];
        // What is left of 400 KiB after six pieces.
        expected.extend([64 * KIB, 64 * KIB, 64 * KIB, 16 * KIB]);
        assert_eq!((most(), scene.tier.arrived()), (4, expected));
        batch();
        let mut expected = vec![32 * KIB; 9];
        expected.extend([64 * KIB, 64 * KIB, 64 * KIB, 8 * KIB]);
        assert_eq!((most(), scene.tier.arrived()), (4, expected));
    });
    assert_eq!(*table.read(0, content.len()).unwrap(), content[..]);
}

#[test]
fn logs_of_background_work_and_journals_make_no_way_and_get_none() {
    let scene = Scene::new();
    let (log, manifest) = (scene.file(FileKind::Log), scene.file(FileKind::Manifest));
    let table = scene.table();
    let scope = background();
    let write = |file: &File| file.write(0, Buffer::zeroed(128 * KIB)).1.unwrap();
    scene.while_flying(&log, || {
        write(&manifest);
        write(
            &scene
                .files
                .create_file(FileContext { kind: FileKind::Log, origin: Origin::Flush }, 0)
                .unwrap(),
        );
    });
    assert_eq!(scene.tier.arrived(), [128 * KIB; 2]);
    write(&table);
    assert_eq!(scene.tier.arrived(), [64 * KIB; 2], "after the log write");
    log.sync().unwrap();
    log.write_durably(0, Buffer::zeroed(4096)).1.unwrap();
    write(&table);
    assert_eq!(scene.tier.arrived(), [128 * KIB], "no caller waited for that");
    drop(scope);
    log.sync().unwrap();
    let _scope = background();
    write(&table);
    assert_eq!(scene.tier.arrived(), [64 * KIB; 2], "a sync is a log write, too");
}
