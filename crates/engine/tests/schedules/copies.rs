//! Copies of the cache of blocks leave for a table that finds no room, while the cache's own work
//! takes up files of an earlier opening, fills others and evicts: each file is counted once, or is
//! gone.

use super::support::*;
use crate::shared::tier0::Account;
use crate::{
    Admission, ByteSize, Compression, Db, Durability, FastCacheSettings, FastCacheStats,
    PlacementChoice, Preset, Settings, WriteBatch,
};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::placement::WATERMARK_PERCENT;
use thermocline_device::{Devices, File, FileContext, FileKind, Origin, TierUsage};
use thermocline_foundation::random::entropy;

/// Blocks, of a value each; more than the files that the cache has room for.
const KEYS: u64 = 40;
/// Three of these fill the batch that is written at once, and nine a file.
const VALUE_BYTES: usize = 4800;
const FILE_BYTES: u64 = 64 << 10;
/// Files that the cache has room for.
const FILES: u64 = 3;
const TABLE: FileContext =
    FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Flush };

/// All tables on the slow tier, and a cache of small files.
fn settings() -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        placement: PlacementChoice::LogOnly,
        block_size: ByteSize::kib(4),
        compression: vec![Compression::None],
        fast_cache: FastCacheSettings {
            capacity: ByteSize::mib(1).into(),
            admission: Admission::Always,
            file_size: ByteSize(FILE_BYTES),
            batch: ByteSize::kib(16),
            ..FastCacheSettings::default()
        },
        ..super::support::settings()
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Reads past the cache in memory.
fn read(db: &Db, keys: impl Iterator<Item = u64>) {
    for wanted in keys {
        assert_eq!(db.get(key(wanted)).unwrap().map(|value| number(&value)), Some(wanted));
    }
}

fn usage(db: &Db, tier: usize) -> TierUsage {
    db.engine().shared().files.usage().swap_remove(tier)
}

/// What tables may still take of a tier, copies left out, by the files that are there.
fn left_bytes(db: &Db, tier: usize) -> u64 {
    let usage = usage(db, tier);
    let copies_bytes = usage.used_by_kind.get(&FileKind::BlockCache).copied().unwrap_or(0);
    let usable_bytes = usage.capacity_bytes * WATERMARK_PERCENT / 100;
    usable_bytes - (usage.used_bytes - copies_bytes)
}

/// What of that the namespace keeps for the file map.
fn kept_bytes(db: &Db) -> u64 {
    let (files, left_bytes) = (&db.engine().shared().files, left_bytes(db, 0));
    let mut kept_bytes = 0;
    loop {
        if let Ok(file) = files.create_file(TABLE, left_bytes - kept_bytes) {
            files.delete_files(&[file.number()]).unwrap();
            return kept_bytes;
        }
        kept_bytes += 16 << 10;
    }
}

fn cache(db: &Db) -> FastCacheStats {
    db.stats().fast_cache.unwrap()
}

/// A table that is never written and takes so many bytes.
fn table(db: &Db, bytes: u64) -> Arc<File> {
    db.engine().shared().files.create_file(TABLE, bytes).unwrap()
}

/// Leaves no room on the slow tier, and on the fast one what [`FILES`] take beside all that comes
/// before the cache.
fn fill(db: &Db) -> [Arc<File>; 2] {
    let slow = table(db, left_bytes(db, 1));
    let (settings, tier0) = (db.settings(), &db.engine().shared().tier0);
    let usable_bytes = settings.tiers[0].capacity.0 * WATERMARK_PERCENT / 100;
    let before_bytes = tier0.grant(Account::Logs)
        + tier0.grant(Account::Journals)
        + settings.division().memtable_bytes;
    let fast = table(db, usable_bytes - before_bytes - FILES * FILE_BYTES);
    assert_eq!((slow.tier().0, fast.tier().0), (1, 0));
    [slow, fast]
}

/// The cache, the namespace and the directory have the same copies.
fn require_accounted(db: &Db, devices: &FragileDevices) {
    let cache = cache(db);
    let files = db.engine().shared().files.files().into_iter();
    let copies: Vec<_> = files.filter(|file| file.kind == FileKind::BlockCache).collect();
    let bytes: u64 = copies.iter().map(|file| file.bytes).sum();
    assert_eq!((copies.len() as u64, bytes), (cache.files, cache.used_bytes), "{cache:?}");
    let fast = devices.home(Path::new(TIERS[0])).unwrap().list().unwrap().into_iter();
    let names = fast.filter(|entry| entry.name.ends_with(".cache")).count();
    assert_eq!(names, copies.len(), "files of the cache on the tier");
    assert!(cache.used_bytes <= cache.room_bytes + FILE_BYTES, "{cache:?}");
    assert_eq!(cache.failed, 0, "{cache:?}");
}

fn copies_leave_beside_upkeep() {
    let devices = Arc::default();
    let mut db = create_with(&devices, &settings());
    for number in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(key(number), value(number, VALUE_BYTES));
        db.write_with(batch, Durability::Buffered).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    db.engine().shared().cache.set_capacity(0);
    let mut fillers = fill(&db);
    let kept_bytes = kept_bytes(&db);
    read(&db, 0..KEYS / 2);
    if entropy() % 2 == 0 {
        drop(fillers);
        db.close().unwrap();
        db = open(&devices);
        db.engine().shared().cache.set_capacity(0);
        fillers = fill(&db);
    }
    let reader = {
        let db = db.clone();
        spawn(move || read(&db, (KEYS / 2..KEYS).chain(0..KEYS / 2)))
    };
    // Beside one file of the cache there is room for it, and not beside two.
    let bytes = left_bytes(&db, 0) - kept_bytes - FILE_BYTES;
    let files = &db.engine().shared().files;
    for _ in 0..2 {
        let guest = match files.create_file(TABLE, bytes) {
            Ok(guest) => guest,
            Err(error) => {
                // A log has come.
                let left_bytes = left_bytes(&db, 0);
                assert!(left_bytes < bytes + kept_bytes, "{error}: {left_bytes} bytes are left");
                break;
            }
        };
        assert_eq!(guest.tier().0, 0);
        let usage = usage(&db, 0);
        assert!(usage.used_bytes <= usage.capacity_bytes, "{usage:?}");
        let number = guest.number();
        drop(guest);
        files.delete_files(&[number]).unwrap();
        yield_now();
    }
    join([reader]);
    db.settle().unwrap();
    require_accounted(&db, &devices);
    read(&db, 0..KEYS);
    db.settle().unwrap();
    require_accounted(&db, &devices);
    drop(fillers);
    db.close().unwrap();
}

#[test]
fn copies_that_leave_beside_upkeep_are_counted_once_or_gone() {
    check(1000, copies_leave_beside_upkeep);
}

/// The tester tested: a file that is lost, or counted though it is gone, is found.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_copies_that_leave_without_the_lock_of_upkeep() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let bug = Planted::CopiesLeaveUnlocked;
    let found = std::panic::catch_unwind(|| with(bug, || check(2000, copies_leave_beside_upkeep)));
    assert!(found.is_err(), "2000 schedules do not show {}", bug.name());
}
