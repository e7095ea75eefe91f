//! Files that are forgotten and not gone yet: within each deletion others fill the tiers until they
//! refuse, and what lies there stays within their capacities. And files that cannot be deleted.

use crate::hooked::{Call, HookedDevices};
use crate::support::*;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;
use thermocline_device::tiered_files::GivesWay;
use thermocline_device::{
    Devices, Error, ErrorKind, FileContext, FileInfo, FileKind, MemoryDevices, Origin, Placement,
    Result, TierIndex, TierState, TieredFiles,
};
use thermocline_foundation::{ByteSize, FileNumber};

const CAPACITY: u64 = 4 << 20;
/// Of a file beside which there is no room for another.
const LEN: usize = 2_500_000;
/// Of what others fill the tiers with.
const PIECE: u64 = 64 << 10;

/// How long a thread waits for another before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

fn create_small(devices: &dyn Devices, tiers: usize) -> TieredFiles {
    let mut specs = specs(tiers);
    specs.iter_mut().for_each(|spec| spec.capacity = ByteSize(CAPACITY));
    TieredFiles::create(devices, &home(), &specs, policy()).unwrap()
}

/// Directories of which each call is seen by `hook` before.
fn hooked(
    memory: &MemoryDevices,
    hook: impl Fn(Call, &Path, &str) -> Result<()> + Send + Sync + 'static,
) -> HookedDevices {
    HookedDevices::new(Arc::new(memory.clone()), Arc::new(hook))
}

/// Bytes of the files on a tier whose names end so.
fn bytes_there(memory: &MemoryDevices, tier: usize, end: &str) -> u64 {
    let entries = memory.home(&tier_path(tier)).unwrap().list().unwrap();
    entries.iter().filter(|entry| entry.name.ends_with(end)).map(|entry| entry.len).sum()
}

fn is_full<T>(made: Result<T>) -> bool {
    made.err().is_some_and(|error| error.kind() == ErrorKind::OutOfSpace)
}

#[test]
fn a_deleted_file_has_its_room_until_its_name_has_gone() {
    let (arrived, arrivals) = mpsc::channel();
    let (open_gate, opened) = mpsc::channel();
    let opened = Mutex::new(opened);
    let devices = hooked(&MemoryDevices::new(), move |call, _, name| {
        if call == Call::Delete && name.ends_with(".table") {
            arrived.send(()).unwrap();
            opened.lock().recv_timeout(PATIENCE).expect("the gate is opened");
        }
        Ok(())
    });
    let files = create_small(&devices, 1);
    let numbers: Vec<_> = (0..3).map(|_| add(&files, TABLE, 1_200_000).unwrap()).collect();
    let used_bytes = || files.usage()[0].used_bytes;
    let before = used_bytes();
    std::thread::scope(|scope| {
        // Dropped where an assertion fails, so that the other thread ends, too.
        let open_gate = open_gate;
        scope.spawn(|| files.delete_files(&numbers[..2]).unwrap());
        for gone in [0, 1] {
            arrivals.recv_timeout(PATIENCE).expect("a file is deleted");
            assert_eq!(before - used_bytes(), gone * 1_200_000);
            assert!(is_full(files.create_file(TABLE, 2_000_000)), "{gone} of two are gone");
            assert!(is_full(files.promise_bytes(numbers[2], 3_000_000)));
            assert!(numbers[..2].iter().all(|number| !files.has_file(*number)));
            open_gate.send(()).unwrap();
        }
    });
    assert_eq!(before - used_bytes(), 2_400_000);
    files.promise_bytes(numbers[2], 1_500_000).unwrap();
    files.create_file(TABLE, 2_000_000).unwrap();
}

/// Two tiers that are filled within each deletion of a file.
struct Filled {
    memory: MemoryDevices,
    files: Arc<OnceLock<TieredFiles>>,
    /// Renaming fails.
    keeps_names: Arc<AtomicBool>,
    /// The most that was on each, and how often they were filled.
    most: Arc<[AtomicU64; 2]>,
    times: Arc<AtomicU64>,
}

impl Filled {
    fn new() -> Self {
        let (memory, files) = (MemoryDevices::new(), Arc::new(OnceLock::<TieredFiles>::new()));
        let (most, times) = (Arc::<[AtomicU64; 2]>::default(), Arc::<AtomicU64>::default());
        let keeps_names = Arc::<AtomicBool>::default();
        let of_hook =
            (memory.clone(), files.clone(), keeps_names.clone(), most.clone(), times.clone());
        let devices = hooked(&memory, move |call, _, name| {
            let (memory, files, keeps_names, most, times) = &of_hook;
            if call == Call::Rename && name.ends_with(".log") && keeps_names.load(SeqCst) {
                return Err(Error::new(ErrorKind::Io, "names are kept"));
            }
            let is_data = name.ends_with(".table") || name.ends_with(".log");
            if let Some(files) = files.get()
                && call == Call::Delete
                && is_data
            {
                fill_up(files);
                times.fetch_add(1, SeqCst);
                for (tier, most) in most.iter().enumerate() {
                    most.fetch_max(bytes_there(memory, tier, ""), SeqCst);
                }
            }
            Ok(())
        });
        files.set(create_small(&devices, 2)).unwrap();
        Self { memory, files, keeps_names, most, times }
    }

    fn files(&self) -> &TieredFiles {
        self.files.get().unwrap()
    }

    /// The tiers were filled so often, and never had more than their capacities.
    fn assert_within(&self, times: u64) {
        assert_eq!(self.times.load(SeqCst), times);
        for most in self.most.iter().map(|most| most.load(SeqCst)) {
            assert!(most <= CAPACITY, "{most} bytes");
        }
    }
}

/// Makes files until there is no room.
fn fill_up(files: &TieredFiles) {
    for round in 0.. {
        assert!(round < 200, "files of 64 KiB fill 8 MiB: none was refused");
        match files.create_file(TABLE, PIECE) {
            Ok(file) => file.allocate(PIECE).unwrap(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                return;
            }
        }
    }
}

#[test]
fn no_file_gets_the_room_of_one_that_is_being_deleted() {
    let filled = Filled::new();
    let number = add(filled.files(), TABLE, LEN).unwrap();
    filled.files().delete_files(&[number]).unwrap();
    filled.assert_within(1);
    assert!(filled.files().create_file(TABLE, LEN as u64).is_ok(), "it is deleted");
}

/// The first deletion is that of what an earlier copy may have left.
#[test]
fn no_file_gets_the_room_of_one_that_has_moved_before_its_old_copy_is_gone() {
    let filled = Filled::new();
    let number = add(filled.files(), TABLE, LEN).unwrap();
    filled.files().migrate(number, TierIndex(1), &mut |_| {}).unwrap();
    filled.assert_within(2);
    assert_content(filled.files(), number, LEN);
}

#[test]
fn no_file_gets_the_room_of_the_copy_of_one_that_was_deleted_while_it_moved() {
    let filled = Filled::new();
    let files = filled.files();
    let number = add(files, TABLE, LEN).unwrap();
    let mut delete = |_| {
        let _only_the_first_time = files.delete_files(&[number]);
    };
    let error = files.migrate(number, TierIndex(1), &mut delete).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    filled.assert_within(3);
    assert_eq!(bytes_there(&filled.memory, 1, ".table"), files.usage()[1].used_bytes);
}

#[test]
fn no_file_gets_the_room_of_one_that_was_begun_in_vain_before_it_is_gone() {
    let filled = Filled::new();
    let begin = |file: &Arc<thermocline_device::File>| {
        file.allocate(LEN as u64)?;
        Err::<(), _>(Error::new(ErrorKind::OutOfSpace, "the device has no more"))
    };
    assert!(is_full(filled.files().create_begun(TABLE, LEN as u64, begin)));
    filled.assert_within(1);
}

#[test]
fn no_file_gets_the_room_of_a_log_that_could_not_be_renamed_before_it_is_gone() {
    let filled = Filled::new();
    let number = add(filled.files(), LOG, LEN).unwrap();
    filled.keeps_names.store(true, SeqCst);
    filled.files().recycle(number, LOG).unwrap_err();
    filled.assert_within(1);
    assert_eq!(bytes_there(&filled.memory, 0, ".log"), 0);
    assert!(filled.files().create_file(TABLE, LEN as u64).is_ok(), "it is gone");
}

/// Two tiers from which no file whose name ends so is deleted while the flag is set.
fn stuck(end: &'static str) -> (MemoryDevices, HookedDevices, Arc<AtomicBool>) {
    let (memory, is_stuck) = (MemoryDevices::new(), Arc::<AtomicBool>::default());
    let of_hook = Arc::clone(&is_stuck);
    let devices = hooked(&memory, move |call, _, name| {
        match call == Call::Delete && name.ends_with(end) && of_hook.load(SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "the device deletes nothing")),
            false => Ok(()),
        }
    });
    (memory, devices, is_stuck)
}

#[test]
fn a_file_that_cannot_be_deleted_counts_until_an_opening_has_deleted_it() {
    let (_, devices, is_stuck) = stuck(".table");
    let mut files = create_small(&devices, 1);
    let number = add(&files, TABLE, LEN).unwrap();
    is_stuck.store(true, SeqCst);
    files.delete_files(&[number]).unwrap();
    for opening in 0..2 {
        assert!(!files.has_file(number) && files.files().is_empty());
        let used_by_kind = &files.usage()[0].used_by_kind;
        assert_eq!(used_by_kind[&TABLE.kind], LEN as u64, "opening {opening}");
        assert!(is_full(files.create_file(TABLE, LEN as u64)), "opening {opening}");
        drop(files);
        files = open(&devices).unwrap();
    }
    is_stuck.store(false, SeqCst);
    drop(files);
    let files = open(&devices).unwrap();
    assert_eq!(files.usage()[0].used_by_kind.get(&TABLE.kind), None);
    files.create_file(TABLE, LEN as u64).unwrap();
}

/// As where a user deletes copies of the cache by hand.
#[test]
fn a_file_that_is_gone_already_counts_no_more() {
    let memory = MemoryDevices::new();
    let files = create_small(&memory, 1);
    let number = add(&files, TABLE, LEN).unwrap();
    memory.home(&tier_path(0)).unwrap().delete(&format!("{number}.table")).unwrap();
    files.delete_files(&[number]).unwrap();
    assert_eq!(files.usage()[0].used_by_kind.get(&TABLE.kind), None);
    files.create_file(TABLE, LEN as u64).unwrap();
}

/// A policy that names a tier which is not there.
#[derive(Debug)]
struct Nowhere;

impl Placement for Nowhere {
    fn name(&self) -> &'static str {
        "nowhere"
    }

    fn place(&self, _: FileContext, _: u64, _: &[TierState]) -> Option<TierIndex> {
        Some(TierIndex(200))
    }

    fn misplaced(&self, _: &[FileInfo], _: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        Vec::new()
    }
}

#[test]
fn a_file_for_a_tier_that_is_not_there_is_refused() {
    let memory = MemoryDevices::new();
    let files = TieredFiles::create(&memory, &home(), &specs(2), Arc::new(Nowhere)).unwrap();
    assert!(is_full(files.create_file(TABLE, 10)));
}

#[test]
fn an_old_copy_that_cannot_be_deleted_counts_until_the_file_has_moved_back_over_it() {
    const SHORT: usize = 1_000_000;
    let (memory, devices, is_stuck) = stuck(".table");
    let files = create_small(&devices, 2);
    let number = add(&files, TABLE, SHORT).unwrap();
    let used =
        || [0, 1].map(|at| files.usage()[at].used_by_kind.get(&TABLE.kind).map_or(0, |b| *b));
    let there = || [0, 1].map(|tier| bytes_there(&memory, tier, ".table"));
    // What an earlier copy may have left is deleted before.
    files.migrate(number, TierIndex(1), &mut |_| is_stuck.store(true, SeqCst)).unwrap();
    assert_eq!((used(), there()), ([SHORT as u64; 2], [SHORT as u64; 2]));
    is_stuck.store(false, SeqCst);
    files.migrate(number, TierIndex(0), &mut |_| {}).unwrap();
    assert_eq!((used(), there()), ([SHORT as u64, 0], [SHORT as u64, 0]));
    files.delete_files(&[number]).unwrap();
    assert_eq!((used(), there()), ([0; 2], [0; 2]));
}

#[test]
fn file_maps_that_cannot_be_deleted_count() {
    let (memory, devices, is_stuck) = stuck(".map");
    let files = create_small(&devices, 1);
    files.set_map_room_bytes(64 << 10);
    is_stuck.store(true, SeqCst);
    for _ in 0..100 {
        let gone = add(&files, TABLE, 10).unwrap();
        files.delete_files(&[gone]).unwrap();
    }
    let maps = names(&memory, &tier_path(0)).iter().filter(|name| name.ends_with(".map")).count();
    assert!(maps > 1, "it was written afresh");
    let used_bytes = files.usage()[0].used_by_kind[&FileKind::Map];
    assert_eq!(used_bytes, bytes_there(&memory, 0, ".map"));
    let free_bytes = CAPACITY * 95 / 100 - used_bytes;
    assert!(is_full(files.create_file(TABLE, free_bytes)), "the next one has its room as well");
}

/// Copies of which none leaves; they were asked so often.
#[derive(Debug, Default)]
struct Copies(AtomicU64);

impl GivesWay for Copies {
    fn leave(&self, _bytes: u64) -> bool {
        self.0.fetch_add(1, SeqCst);
        false
    }
}

/// The cache is at it, and a caller that asks it waits for what it does.
#[test]
fn a_file_for_which_copies_leave_already_asks_for_them_all_the_same() {
    let files = Arc::new(OnceLock::<TieredFiles>::new());
    let of_hook = Arc::clone(&files);
    let devices = hooked(&MemoryDevices::new(), move |call, _, name| {
        if call == Call::Delete && name.ends_with(".cache") {
            let files = of_hook.get().unwrap();
            assert!(is_full(files.create_file(TABLE, LEN as u64)));
        }
        Ok(())
    });
    let files = files.get_or_init(|| create_small(&devices, 1));
    let copies = Arc::new(Copies::default());
    files.set_giving_way(Arc::downgrade(&copies) as Weak<dyn GivesWay>);
    let context = FileContext { kind: FileKind::BlockCache, origin: Origin::CacheFill };
    let number: FileNumber = files.create_file(context, LEN as u64).unwrap().number();
    files.delete_files(&[number]).unwrap();
    assert_eq!(copies.0.load(SeqCst), 1);
    files.create_file(TABLE, LEN as u64).unwrap();
}
