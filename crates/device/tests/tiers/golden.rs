//! The durable formats, byte for byte. `THERMOCLINE_BLESS=1` writes the files anew; a difference is
//! a new version.

use crate::journal::{file_on, frames_of};
use crate::support::{specs, tier_path};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::Extent;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::file_cache::{CacheLife, CacheLives, CachedBlock, Layout, Seal, Sealed};
use thermocline_device::file_map::{FileMap, MapChange, MapEntry, MapState};
use thermocline_device::identity::{Identity, InstanceId};
use thermocline_device::tiered_files::{Home, RegionRecord};
use thermocline_device::{Driver, ErrorKind, File, FileKind, Journal, Operation, Tier, TierIndex};
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::{ByteSize, DatabaseId, FileNumber, Place};

const DATABASE: DatabaseId = DatabaseId([7; 16]);
const INSTANCE: InstanceId = InstanceId([9; 16]);

#[allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
fn assert_golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == bytes, "{name} is not written as it was");
    golden
}

pub fn bytes_of(driver: &dyn Driver, name: &str) -> Vec<u8> {
    let file = driver.open(name).unwrap();
    let buffer = thermocline_device::Buffer::zeroed(file.len().unwrap() as usize);
    driver.execute(&file, Operation::Read { offset: 0, buffer }).buffer.to_vec()
}

/// The frames of a journal; what is reserved behind them is zero.
pub fn written_of(driver: &dyn Driver, name: &str, journal: &Journal) -> Vec<u8> {
    let mut bytes = bytes_of(driver, name);
    assert_eq!(journal.file_bytes(), bytes.len() as u64);
    let reserved = bytes.split_off(journal.len_bytes() as usize);
    assert!(!reserved.is_empty() && reserved.iter().all(|byte| *byte == 0));
    bytes
}

pub fn with_bytes(name: &str, bytes: &[u8]) -> MemoryDriver {
    let driver = MemoryDriver::new();
    let file = driver.create(name).unwrap();
    let buffer = thermocline_device::Buffer::copy_of(bytes);
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
    driver
}

#[test]
fn journal_is_as_documented() {
    let driver = MemoryDriver::new();
    let mut journal = Journal::create(Arc::new(file_on(&driver, true))).unwrap();
    let payloads = [b"cold water sinks".to_vec(), Vec::new(), vec![0xA5; 4500]];
    payloads.iter().for_each(|payload| journal.append(payload).unwrap());
    let golden = assert_golden("journal-v1.bin", &written_of(&driver, "journal", &journal));
    assert_eq!(golden.len(), 4 * 4096);
    let (frames, end) = frames_of(&with_bytes("journal", &golden)).unwrap();
    assert_eq!(frames, payloads);
    assert!(!end.torn);
}

#[test]
fn tier_identity_is_as_documented() {
    let identity = Identity {
        database: DATABASE,
        instance: INSTANCE,
        tier: TierIndex(1),
        tiers: 3,
        generation: 258,
    };
    let driver = MemoryDriver::new();
    identity.create(&driver).unwrap();
    let golden = assert_golden("tier-identity-v1.bin", &bytes_of(&driver, "TIER"));
    assert_eq!(Identity::read(&with_bytes("TIER", &golden), "TIER").unwrap(), identity);
}

#[test]
fn database_home_is_as_documented() {
    let mut tiers = specs(2);
    tiers[0].path = "/db/tier-0".into();
    tiers[1].path = "/mnt/a \"quoted\" name".into();
    let (database, instance) = (DATABASE, INSTANCE);
    let (closed, region, left, cache_life) = (BTreeMap::new(), None, None, None);
    let generation = 12;
    let home = Home { database, instance, generation, tiers, closed, region, left, cache_life };
    let text = home.text(Path::new("/db")).unwrap();
    let golden = assert_golden("database-home-v1.toml", text.as_bytes());
    let text = String::from_utf8(golden).unwrap();
    assert_eq!(Home::parse(&text, Path::new("/db"), "DATABASE").unwrap(), home);
    let moved = Home::parse(&text, Path::new("/elsewhere"), "DATABASE").unwrap();
    assert_eq!(moved.tiers[0].path, Path::new("/elsewhere/tier-0"), "paths below home move along");
    // As closing leaves it.
    let extents = [("map", 7, 8192), ("manifest", 9, 4096)]
        .map(|(kind, number, bytes)| (kind.to_owned(), Extent { number, bytes }));
    let closed = Home { closed: extents.into(), ..home };
    let text = closed.text(Path::new("/db")).unwrap();
    let golden = assert_golden("database-home-closed-v1.toml", text.as_bytes());
    let text = String::from_utf8(golden).unwrap();
    assert_eq!(Home::parse(&text, Path::new("/db"), "DATABASE").unwrap(), closed);
    // As an opening with a cache of blocks has it.
    let cached = Home { cache_life: Some(0x00C0_FFEE), ..closed.clone() };
    let text = cached.text(Path::new("/db")).unwrap();
    let golden = assert_golden("database-home-cache-v1.toml", text.as_bytes());
    let text = String::from_utf8(golden).unwrap();
    assert_eq!(Home::parse(&text, Path::new("/db"), "DATABASE").unwrap(), cached);
    // While the list of tiers changes, what it is to be, and the tier that goes.
    let left = Some(specs(3).swap_remove(2));
    let changing = Home { generation: 13, left, ..closed };
    let text = changing.text(Path::new("/db")).unwrap();
    let golden = assert_golden("database-home-changing-v1.toml", text.as_bytes());
    let text = String::from_utf8(golden).unwrap();
    assert_eq!(Home::parse(&text, Path::new("/db"), "CHANGING").unwrap(), changing);
}

#[test]
fn database_home_with_a_region_is_as_documented() {
    let region = RegionRecord {
        path: "/db/store.region".into(),
        size: ByteSize::gib(64),
        driver: "mapped".to_owned(),
        generation: 5,
        is_clean: true,
    };
    let mut tiers = specs(1);
    tiers[0].path = "/db/tier-0".into();
    let (database, instance) = (DATABASE, INSTANCE);
    let (closed, region, left, cache_life) = (BTreeMap::new(), Some(region), None, None);
    let generation = 12;
    let home = Home { database, instance, generation, tiers, closed, region, left, cache_life };
    let path = Path::new("/db");
    let golden = assert_golden("database-home-v2.toml", home.text(path).unwrap().as_bytes());
    let text = String::from_utf8(golden).unwrap();
    assert_eq!(Home::parse(&text, path, "DATABASE").unwrap(), home);
    let moved = Home::parse(&text, Path::new("/elsewhere"), "DATABASE").unwrap();
    assert_eq!(moved.region.unwrap().path, Path::new("/elsewhere/store.region"));
    // Format 1 has none, and a format that is not known yet is refused.
    let sealed = |text: &str| {
        let body = &text[..text.rfind("# checksum").unwrap()];
        let place = Place { database: DatabaseId::default(), file: FileNumber(0), offset: 0 };
        format!("{body}# checksum {:08x}\n", checksum(&place, body.as_bytes()))
    };
    let error = |text: &str| Home::parse(&sealed(text), path, "DATABASE").unwrap_err();
    let older = error(&text.replace("format = 2", "format = 1"));
    assert!(older.to_string().contains("format 1 has no region"), "{older}");
    let newer = error(&text.replace("format = 2", "format = 3"));
    assert_eq!(newer.kind(), ErrorKind::NewerFormat);
}

#[test]
fn cache_file_is_as_documented() {
    let driver = MemoryDriver::new();
    let file = |driver: &MemoryDriver| {
        let (handle, shared) = (driver.open("cache").unwrap(), Arc::new(driver.clone()));
        let kind = FileKind::BlockCache;
        File::new(DATABASE, FileNumber(5), kind, TierIndex(0), shared, handle)
    };
    driver.create("cache").unwrap();
    let written = file(&driver);
    // A directory of two pages.
    let mut blocks = Vec::new();
    let mut end = 0;
    for number in 0..171u64 {
        let len = 20 + number as u32 % 3;
        let position = Layout::Packed.place(end, len.into());
        let (table, offset) = (FileNumber(12 + number / 100), 6144 * number);
        blocks.push(CachedBlock { table, offset, position, len });
        end = position + u64::from(len);
    }
    let end = end.next_multiple_of(4096);
    let bytes: Vec<u8> = (0..end).map(|at| at as u8).collect();
    written.write(0, thermocline_device::Buffer::copy_of(&bytes)).1.unwrap();
    let numbers_below = FileNumber(77);
    let seal = Seal { instance: INSTANCE, generation: 258, life: 0xC0FFEE, numbers_below };
    let sealed = Sealed::write(&written, end, seal, &blocks).unwrap();
    let golden = assert_golden("cache-file-v1.bin", &bytes_of(&driver, "cache"));
    let read = file(&with_bytes("cache", &golden));
    assert_eq!(Sealed::read(&read).unwrap(), sealed);
    assert_eq!((sealed.seal, sealed.directory, sealed.entries), (seal, end, 171));
    assert_eq!(sealed.blocks(&read).unwrap(), blocks);
    assert_eq!(golden.len() as u64, end + Sealed::overhead_bytes(171));
    // A later version, the checksum made right.
    let mut newer = golden;
    let at = newer.len() - 4096;
    newer[at + 8] = 2;
    let sum = checksum(&read.place(at as u64), &newer[at..at + 4092]);
    newer[at + 4092..].copy_from_slice(&sum.to_le_bytes());
    let error = Sealed::read(&file(&with_bytes("cache", &newer))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
}

#[test]
fn list_of_cache_lives_is_as_documented() {
    let mut lives = CacheLives::default();
    for (generation, life, number) in [(2, 0xC0FFEE, 1024), (258, u64::MAX, 5000)] {
        lives.begin(CacheLife { generation, life, numbers_below: FileNumber(number) });
    }
    let golden = assert_golden("cache-lives-v1.txt", lives.text(DATABASE).as_bytes());
    let text = String::from_utf8(golden).unwrap();
    assert_eq!(CacheLives::parse(&text, DATABASE), lives);
    assert_eq!(lives.lives().len(), 2);
}

fn tier(driver: &MemoryDriver) -> Arc<Tier> {
    Arc::new(Tier::new(TierIndex(0), specs(1).remove(0), Arc::new(driver.clone())))
}

#[test]
fn file_map_is_as_documented() {
    let driver = MemoryDriver::new();
    let mut map = FileMap::create(DATABASE, &tier(&driver), MapState::default()).unwrap();
    let [table, log] = [(); 2].map(|()| map.allocate_number().unwrap());
    let entry = |kind, tier, bytes| MapEntry { kind, tier: TierIndex(tier), bytes };
    map.commit(&[
        MapChange::Add(table, entry(FileKind::Table { level: 2 }, 0, 70_000)),
        MapChange::Add(log, entry(FileKind::Log, 0, 4096)),
    ])
    .unwrap();
    map.commit(&[MapChange::Move(table, TierIndex(1))]).unwrap();
    map.commit(&[MapChange::Reclassify(table, FileKind::Table { level: 3 })]).unwrap();
    map.commit(&[MapChange::Remove(log), MapChange::Reserve(FileNumber(5000))]).unwrap();
    let written = written_of(&driver, "00000001.map", map.journal());
    let golden = assert_golden("file-map-v1.bin", &written);
    let copy = with_bytes("00000001.map", &golden);
    let read = FileMap::open(DATABASE, &tier(&copy), 2, vec![FileNumber(1)], true).unwrap();
    assert_eq!(read.state(), map.state());
    assert_eq!(read.state().files[&table], entry(FileKind::Table { level: 3 }, 1, 70_000));
    assert_eq!(read.next(), FileNumber(5000));
    let error = FileMap::open(DATABASE, &tier(&copy), 1, vec![FileNumber(1)], true).unwrap_err();
    crate::support::assert_says(&error, &["tier 1 of 1", tier_path(0).to_str().unwrap()]);
}
