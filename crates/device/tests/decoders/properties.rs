//! What must hold for any bytes in the files of the namespace: journal, file map, tier identity,
//! home file, links and `HOME` of a host's directory, profiles of devices, and the words that name
//! drivers. Each property returns whether it accepted the input.
//!
//! The `sealed_` forms put right checksums on the bytes first, so that what lies behind them is
//! reached; the plain forms show that damage is found. All files are those of the golden files'
//! database.

use std::path::Path;
use std::sync::Arc;
use thermocline_device::drivers::{MemoryDriver, Profile};
use thermocline_device::file_cache::{CacheLives, Sealed};
use thermocline_device::file_map::FileMap;
use thermocline_device::hosts::{HostSettings, SCHEME};
use thermocline_device::identity::{FILE_NAME, Identity};
use thermocline_device::names::{HomeFile, LinkText};
use thermocline_device::profile::parse_fio;
use thermocline_device::tiered_files::{HOME_FILE_NAME, Home};
use thermocline_device::{
    Buffer, Curve, Driver, DriverSpec, File, FileKind, Journal, Operation, Result, Tier, TierIndex,
    TierProfile, TierSpec,
};
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::{ByteSize, DatabaseId, FileNumber, Place};

const DATABASE: DatabaseId = DatabaseId([7; 16]);
/// The golden map.
const MAP: FileNumber = FileNumber(1);
/// The golden journal.
const JOURNAL: FileNumber = FileNumber(3);
/// The golden cache file.
const CACHE: FileNumber = FileNumber(5);

fn directory_with(name: &str, bytes: &[u8]) -> MemoryDriver {
    let driver = MemoryDriver::new();
    let file = driver.create(name).expect("the directory is empty");
    let buffer = Buffer::copy_of(bytes);
    let written = driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false });
    written.result.expect("memory takes it");
    driver
}

fn journal_file(bytes: &[u8]) -> Arc<File> {
    let driver = Arc::new(directory_with("journal", bytes));
    let handle = driver.open("journal").expect("it was just made");
    Arc::new(File::new(DATABASE, JOURNAL, FileKind::Manifest, TierIndex(0), driver, handle))
}

/// The frames that a reading finds, with flipped bits turned back where it `mends`.
fn frames(file: &File, mends: bool) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    let visit = |payload: &[u8]| {
        frames.push(payload.to_vec());
        Ok(())
    };
    let end = match mends {
        true => Journal::read_mended(file, visit)?,
        false => Journal::read(file, visit)?,
    };
    assert_eq!(end.frames, frames.len() as u64);
    assert!(end.len_bytes <= file.len()?.next_multiple_of(4096), "frames beyond the end");
    Ok(frames)
}

/// A journal: opening agrees with reading, mending changes nothing of a whole one, and what is
/// appended follows what was there.
pub fn journal(data: &[u8]) -> bool {
    let file = journal_file(data);
    let read = frames(&file, true);
    let whole = frames(&file, false);
    if let Ok(whole) = &whole {
        assert!(read.as_ref().is_ok_and(|read| read == whole), "{whole:?} but mended {read:?}");
    }
    let opened = Journal::open(Arc::clone(&file), |_| Ok(()));
    assert_eq!(read.is_ok(), opened.is_ok(), "{read:?} but {opened:?}");
    let (Ok(mut expected), Ok(mut journal)) = (read, opened) else {
        return false;
    };
    for payload in [&[][..], &[0xC3; 5000]] {
        journal.append(payload).expect("the journal was opened");
        expected.push(payload.to_vec());
    }
    assert!(frames(&file, true).expect("what was appended is whole") == expected);
    // A flip in a frame stays in the file; one behind the last frame may be written over.
    if whole.is_ok() {
        assert!(frames(&file, false).expect("nothing is damaged") == expected);
    }
    true
}

/// As [`journal`], behind the checksums.
pub fn sealed_journal(data: &[u8]) -> bool {
    journal(&seal_journal(data, JOURNAL))
}

fn open_map(driver: &MemoryDriver) -> Result<FileMap> {
    let (path, capacity) = ("/db/tier-0".into(), ByteSize::gib(1));
    let spec = TierSpec { path, capacity, driver: "memory".to_owned() };
    let tier = Arc::new(Tier::new(TierIndex(0), spec, Arc::new(driver.clone())));
    FileMap::open(DATABASE, &tier, 2, vec![MAP], true)
}

/// What opening says of a map whose one frame is `payload`, right checksums included.
pub fn open_map_of(payload: &[u8]) -> Result<FileMap> {
    let driver = MemoryDriver::new();
    let handle = driver.create(&format!("{MAP}.map"))?;
    let shared = Arc::new(driver.clone());
    let file = File::new(DATABASE, MAP, FileKind::Map, TierIndex(0), shared, handle);
    Journal::create(Arc::new(file))?.append(payload)?;
    open_map(&driver)
}

/// A file map: it can be changed and compacted, and says the same after reopening.
pub fn file_map(data: &[u8]) -> bool {
    let driver = directory_with(&format!("{MAP}.map"), data);
    let Ok(mut map) = open_map(&driver) else {
        return false;
    };
    let state = map.state().clone();
    assert!(open_map(&driver).is_ok_and(|again| *again.state() == state));
    // The last numbers there are may be reserved; then none is given out.
    if let Ok(number) = map.allocate_number() {
        assert!(number >= state.reserved, "{number} of {state:?}");
        map.compact().expect("memory takes a snapshot");
        assert_eq!(map.state().files, state.files);
    }
    true
}

/// As [`file_map`], behind the checksums.
pub fn sealed_file_map(data: &[u8]) -> bool {
    file_map(&seal_journal(data, MAP))
}

/// Puts right checksums on the sectors and frames of the journal `number`, as far as its headers
/// lead; see docs/formats/journal.md.
fn seal_journal(data: &[u8], number: FileNumber) -> Vec<u8> {
    const SECTOR: usize = 512;
    const BODY: usize = 504;
    let place = Place { database: DATABASE, file: number, offset: 0 };
    let mut bytes = data.to_vec();
    let mut at = 0;
    while bytes.len() >= at + SECTOR {
        let len = u32::from_le_bytes([16, 17, 18, 19].map(|index| bytes[at + index])) as usize;
        let pages = (24 + len).div_ceil(8 * BODY);
        let Some(frame) = bytes.get(at..at + pages * 4096) else {
            break;
        };
        let body: Vec<u8> =
            frame.chunks(SECTOR).flat_map(|sector| &sector[..BODY]).copied().collect();
        let parts = [&body[..20], &body[24..24 + len]];
        let sum = checksum_parts(&place.at(at as u64), &parts);
        bytes[at + 20..at + 24].copy_from_slice(&sum.to_le_bytes());
        at += pages * 4096;
    }
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        if sector.iter().any(|byte| *byte != 0) {
            let sum = checksum(&place.at((index * SECTOR) as u64), &sector[..BODY + 4]);
            sector[BODY + 4..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    bytes
}

/// A sealed file of a cache: its entries lie inside, it can be sealed again, and the copy says the
/// same.
pub fn cache_file(data: &[u8]) -> bool {
    let file_with = |bytes: &[u8]| {
        let driver = Arc::new(directory_with("cache", bytes));
        let handle = driver.open("cache").expect("it was just made");
        File::new(DATABASE, CACHE, FileKind::BlockCache, TierIndex(0), driver, handle)
    };
    let file = file_with(data);
    let Ok(sealed) = Sealed::read(&file) else {
        return false;
    };
    assert!(sealed.directory < data.len() as u64);
    let Ok(blocks) = sealed.blocks(&file) else {
        return false;
    };
    assert_eq!(blocks.len(), sealed.entries as usize);
    for block in &blocks {
        assert!(block.len > 0 && block.position + u64::from(block.len) <= sealed.directory);
        assert!(block.position.is_multiple_of(16));
    }
    let copy = file_with(&[]);
    let written = Sealed::write(&copy, sealed.directory, sealed.seal, &blocks);
    assert_eq!(written.ok(), Some(sealed));
    assert_eq!(Sealed::read(&copy).ok(), Some(sealed));
    assert_eq!(sealed.blocks(&copy).ok(), Some(blocks));
    true
}

/// The list of a cache's lives: what is read can be written and read again.
pub fn cache_lives(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let lives = CacheLives::parse(text, DATABASE);
    assert_eq!(CacheLives::parse(&lives.text(DATABASE), DATABASE), lives);
    !lives.lives().is_empty()
}

/// As [`cache_lives`], behind the checksum of the last line.
pub fn sealed_cache_lives(data: &[u8]) -> bool {
    const LINE: &[u8] = b"checksum ";
    let found = data.windows(LINE.len()).rposition(|window| window == LINE);
    let covered = &data[..found.unwrap_or(data.len())];
    let place = Place { database: DATABASE, file: FileNumber(0), offset: 0 };
    let line = format!("checksum {:08x}\n", checksum(&place, covered));
    cache_lives(&[covered, line.as_bytes()].concat())
}

/// As [`cache_file`], behind the checksums of all pages.
pub fn sealed_cache_file(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    let place = Place { database: DATABASE, file: CACHE, offset: 0 };
    for (page, bytes) in bytes.chunks_exact_mut(4096).enumerate() {
        if let Some((covered, sum)) = bytes.split_last_chunk_mut::<4>() {
            *sum = checksum(&place.at(page as u64 * 4096), covered).to_le_bytes();
        }
    }
    cache_file(&bytes)
}

/// A tier's identity: what is read can be written and read again.
pub fn tier_identity(data: &[u8]) -> bool {
    let driver = directory_with(FILE_NAME, data);
    let Ok(identity) = Identity::read(&driver, "TIER") else {
        return false;
    };
    let copy = MemoryDriver::new();
    identity.create(&copy).expect("memory takes it");
    assert_eq!(Identity::read(&copy, "TIER").ok(), Some(identity));
    let newer = Identity { generation: identity.generation.wrapping_add(1), ..identity };
    if newer.generation > 0 && newer.update(&driver, "TIER").is_ok() {
        assert_eq!(Identity::read(&driver, "TIER").ok(), Some(newer), "after {identity:?}");
    }
    true
}

/// As [`tier_identity`], behind the checksums.
pub fn sealed_tier_identity(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    for (page, record) in bytes.chunks_mut(4096).enumerate() {
        let Some((covered, sum)) =
            record.get_mut(..512).and_then(|r| r.split_last_chunk_mut::<4>())
        else {
            continue;
        };
        let database = std::array::from_fn(|index| covered[16 + index]);
        let (file, offset) = (FileNumber(0), page as u64 * 4096);
        let place = Place { database: DatabaseId(database), file, offset };
        *sum = checksum(&place, covered).to_le_bytes();
    }
    tier_identity(&bytes)
}

/// The home file: what is read can be written and read again.
pub fn home(data: &[u8]) -> bool {
    let (driver, path) = (directory_with(HOME_FILE_NAME, data), Path::new("/db"));
    let Ok(home) = Home::read(&driver, path) else {
        return false;
    };
    home.write(&driver, path).expect("what was text is text again");
    assert_eq!(Home::read(&driver, path).ok(), Some(home));
    true
}

/// As [`home`], behind the checksum of the last line.
pub fn sealed_home(data: &[u8]) -> bool {
    home(&with_checksum_line(data))
}

fn with_checksum_line(data: &[u8]) -> Vec<u8> {
    const LINE: &[u8] = b"# checksum ";
    let found = data.windows(LINE.len()).rposition(|window| window == LINE);
    let covered = &data[..found.unwrap_or(data.len())];
    let place = Place { database: DatabaseId::default(), file: FileNumber(0), offset: 0 };
    let line = format!("# checksum {:08x}\n", checksum(&place, covered));
    [covered, line.as_bytes()].concat()
}

/// The file `HOME` of a tier: what is accepted is written and read again.
pub fn names_home(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(home) = HomeFile::parse(text, "HOME") else {
        return false;
    };
    let written = home.text().expect("it was text");
    assert_eq!(HomeFile::parse(&written, "HOME").expect("it was just written"), home);
    true
}

/// As [`names_home`], behind the checksum of the last line.
pub fn sealed_names_home(data: &[u8]) -> bool {
    names_home(&with_checksum_line(data))
}

/// The file `PROFILE` of a tier: what is accepted is written and read again.
pub fn tier_profile(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(profile) = TierProfile::parse(text, "PROFILE") else {
        return false;
    };
    let written = profile.text().expect("it was text");
    assert_eq!(TierProfile::parse(&written, "PROFILE").expect("it was just written"), profile);
    true
}

/// As [`tier_profile`], behind the checksum of the last line.
pub fn sealed_tier_profile(data: &[u8]) -> bool {
    tier_profile(&with_checksum_line(data))
}

/// A report of fio: what is accepted has a point of each curve.
pub fn fio_report(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(profile) = parse_fio(text, "fio.json") else {
        return false;
    };
    let is_used = |curve: &Curve| curve.useful_workers().is_some_and(|workers| workers > 0);
    assert!(!profile.curves.is_empty() && profile.curves.iter().all(|(_, curve)| is_used(curve)));
    true
}

/// A URI of a host's tiers: what is accepted names tiers that can be, and is read again as the
/// same.
pub fn host_uri(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    // A URI with a path would read a file of that name.
    let Some(query) = text.strip_prefix(SCHEME).and_then(|rest| rest.strip_prefix('?')) else {
        return false;
    };
    let Ok(settings) = HostSettings::of_query(query) else {
        return false;
    };
    assert!(!settings.tiers.is_empty());
    for tier in &settings.tiers {
        assert!(tier.capacity.0 > 0);
        assert!(tier.path.is_absolute() || tier.path == Path::new("home"), "{:?}", tier.path);
    }
    assert_eq!(HostSettings::of_uri(text).expect("it was read"), settings);
    true
}

/// A link's text: what is accepted has one form, and stays on its tier.
pub fn link_text(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Some(link) = LinkText::parse(text) else {
        return false;
    };
    assert_eq!(link.to_string(), text);
    assert!(!link.file_name().contains('/') && link.file_name() != "TIER");
    true
}

/// The name of a driver or of an emulated device.
pub fn driver_name(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let spec = text.parse::<DriverSpec>();
    if let Ok(spec) = &spec {
        assert_eq!(spec.to_string(), text);
    }
    if let Ok(profile) = text.parse::<Profile>() {
        assert_eq!(profile.to_string(), text);
    }
    spec.is_ok()
}
