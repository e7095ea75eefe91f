//! Rot: every byte of the small files of a database, and a stride of the large ones, is flipped;
//! blocks are zeroed, swapped and replaced by older copies; files are cut. What is wrong is
//! reported with its file, tier and offset, or does not matter; no answer is ever wrong.

use crate::history::{Model, scan};
use crate::support::*;
use std::path::{Path, PathBuf};
use thermocline::{Compression, Db, Durability, ErrorKind, Preset, Settings, WriteBatch};
use thermocline_device::{Buffer, Devices, MemoryDevices, Operation};

/// Directories, names and bytes.
type Image = Vec<(PathBuf, String, Vec<u8>)>;

fn directories() -> Vec<PathBuf> {
    [home()].into_iter().chain(TIERS.map(PathBuf::from)).collect()
}

fn take(devices: &MemoryDevices) -> Image {
    let mut image = Vec::new();
    for path in directories() {
        let driver = devices.home(&path).unwrap();
        for entry in driver.list().unwrap() {
            let file = driver.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed(entry.len as usize);
            let read = driver.execute(&file, Operation::Read { offset: 0, buffer });
            image.push((path.clone(), entry.name, read.buffer.to_vec()));
        }
    }
    image
}

fn restore(image: &Image) -> MemoryDevices {
    let devices = MemoryDevices::new();
    for path in directories() {
        devices.create_directory(&path).unwrap();
    }
    for (path, name, bytes) in image {
        write_file(&devices, path, name, bytes);
    }
    devices
}

/// The presets, and the kinds of files that are damaged in a database of each.
const PRESETS: [(Preset, &[&str]); 2] = [
    (
        Preset::Leveled,
        &["TIER", "DATABASE", "settings.toml", ".map", ".manifest", ".log", ".table"],
    ),
    (Preset::Hybrid, &[".manifest", ".log", ".table", ".slab"]),
];

fn is_of(kinds: &[&str], name: &str) -> bool {
    kinds.iter().any(|kind| name.ends_with(kind))
}

fn fixture_settings(preset: Preset) -> Settings {
    let compression = vec![Compression::None, Compression::Lz4, Compression::Zstd];
    // No compaction may rewrite what is damaged before it was looked at.
    let preset = Some(preset);
    Settings { preset, compression, level_ratio: 2, level0_tables: 6, ..settings() }
}

fn put(db: &Db, numbers: impl Iterator<Item = u32>, round: u32) {
    for number in numbers {
        let mut batch = WriteBatch::new();
        batch.put(format!("key{number:04}"), format!("{round}-{number};").repeat(60));
        db.write_with(batch, Durability::Buffered).unwrap();
    }
}

/// A database that was killed with tables in level 0 and deeper, records in its log and in slots if
/// it has any, and both tiers in use; what it holds; and the same a little earlier.
fn fixture(preset: Preset) -> (Image, Image, Model) {
    let devices = MemoryDevices::new();
    let db = environment(devices.clone()).create(&home(), &fixture_settings(preset)).unwrap();
    put(&db, 0..400, 1);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let mut ingest = db.ingest();
    (0..50).for_each(|n| ingest.add(format!("load{n:03}"), [n as u8; 100]).unwrap());
    ingest.finish().unwrap();
    assert_eq!(leaks(&devices, &db), None);
    let earlier = take(&devices);
    match preset {
        Preset::Leveled | Preset::Indexed => {
            // Until memory overflows into a table: were it flushed and empty, level 0 would be
            // merged away. So it would for the space of a fourth of what lies below. A writer that
            // loses its processor as it makes the next memtable has it empty for that long: what
            // overflowed is merged, and memory fills again.
            let has_level0 = || db.stats().levels.iter().any(|level| level.level == 0);
            for round in (2..1_000).take_while(|_| !has_level0()) {
                put(&db, (0..400).step_by(10), round);
                db.settle().unwrap();
            }
            assert!(has_level0(), "memory has not overflowed into a table that stays");
        }
        Preset::Hybrid => {
            put(&db, 50..150, 2);
            db.flush().unwrap();
            put(&db, 100..200, 3);
        }
    }
    db.delete("key0005").unwrap();
    db.settle().unwrap();
    let model = scan(&db).unwrap();
    assert_eq!(leaks(&devices, &db), None);
    (take(&devices), earlier, model)
}

/// What became of a damaged image.
#[derive(Debug, PartialEq)]
enum Outcome {
    Refused(String),
    Reported(String),
    Harmless,
}

/// Opens, reads and verifies: an error or the right answer each time.
fn examine(image: &Image, model: &Model, what: &str) -> Outcome {
    let db = match environment(restore(image)).open(&home()) {
        Ok(db) => db,
        Err(error) => {
            let expected = [
                ErrorKind::Corrupt,
                ErrorKind::Tier,
                ErrorKind::NotFound,
                ErrorKind::NewerFormat,
                ErrorKind::Invalid,
            ];
            assert!(expected.contains(&error.kind()), "{what}: {error}");
            assert!(!error.to_string().contains('\n'), "{what}: {error}");
            return Outcome::Refused(error.to_string());
        }
    };
    let mut reported = None;
    for (key, value) in model {
        match db.get(key) {
            Ok(got) => {
                let right = got.as_deref() == Some(value.as_slice());
                assert!(right, "{what}: a wrong answer for {}", key.escape_ascii());
            }
            Err(error) => reported = Some(error.to_string()),
        }
    }
    match db.get("key0005") {
        Ok(got) => assert_eq!(got, None, "{what}: a deleted key is back"),
        Err(error) => reported = Some(error.to_string()),
    }
    match scan(&db) {
        Ok(shown) => assert!(shown == *model, "{what}: a scan shows something else"),
        Err(error) => reported = Some(error.to_string()),
    }
    let report = db.verify(&mut |_| {}).unwrap();
    if let Some(error) = &reported {
        assert!(!report.is_ok(), "{what}: verify does not see what a reader did: {error}");
    }
    let problem = report.problems.first().map(|problem| problem.text.clone());
    match reported.or(problem) {
        Some(text) => Outcome::Reported(text),
        None => Outcome::Harmless,
    }
}

/// Merges that an undamaged image is due for.
fn merges_after_opening(image: &Image) -> u64 {
    let db = environment(restore(image)).open(&home()).unwrap();
    let before = db.stats().operations.compactions;
    db.settle().unwrap();
    db.stats().operations.compactions - before
}

fn is_table(name: &str) -> bool {
    name.ends_with(".table")
}

#[test]
fn a_flipped_byte_anywhere_is_reported_or_harmless() {
    PRESETS.into_iter().for_each(|(preset, kinds)| flip_bytes(preset, kinds));
}

fn flip_bytes(preset: Preset, kinds: &[&str]) {
    let (image, _, model) = fixture(preset);
    assert_eq!(examine(&image, &model, "undamaged"), Outcome::Harmless);
    assert_eq!(merges_after_opening(&image), 0, "what is damaged may be merged away");
    for kind in kinds {
        assert!(image.iter().any(|(_, name, _)| name.ends_with(kind)), "no {kind}");
    }
    // Of each kind some byte matters, but where there are two copies, or a bit is turned back.
    let mut left = kinds.to_vec();
    left.retain(|kind| !["TIER", "DATABASE"].contains(kind));
    let damaged = image.iter().enumerate().filter(|(_, (_, name, _))| is_of(kinds, name));
    for (index, (path, name, bytes)) in damaged {
        let whole = matches!(name.as_str(), "TIER" | "DATABASE" | "settings.toml");
        // Primes, so that all places in sectors and blocks are met.
        let points = 32 * rounds(1) as usize;
        let stride = if whole { 13 } else { (bytes.len() / points) | 1 };
        for at in (0..bytes.len()).step_by(stride) {
            let mut damaged = image.clone();
            damaged[index].2[at] ^= 1 << (at % 8);
            let what = format!("bit {} of byte {at} of {}/{name}", at % 8, path.display());
            let outcome = examine(&damaged, &model, &what);
            if is_table(name) {
                // Tables are checked whole; their messages name file, tier and offset.
                let Outcome::Reported(text) = &outcome else { panic!("{what}: {outcome:?}") };
                assert!(text.contains(name) && text.contains("tier "), "{what}: {text}");
            }
            if name == "DATABASE" {
                assert_eq!(outcome, Outcome::Harmless, "{what} is turned back");
            }
            if outcome != Outcome::Harmless {
                left.retain(|kind| !name.ends_with(kind));
            }
        }
    }
    assert!(left.is_empty(), "no damage of {left:?} was noticed");
}

#[test]
fn cut_zeroed_swapped_and_older_pieces_are_reported_or_harmless() {
    PRESETS.into_iter().for_each(|(preset, kinds)| damage_pieces(preset, kinds));
}

fn damage_pieces(preset: Preset, kinds: &[&str]) {
    const PAGE: usize = 4096;
    let (image, earlier, model) = fixture(preset);
    let damaged = image.iter().enumerate().filter(|(_, (_, name, _))| is_of(kinds, name));
    for (index, (path, name, bytes)) in damaged {
        let pages = bytes.len() / PAGE;
        let shown = format!("{}/{name}", path.display());
        let examine_with = |how: String, new: Vec<u8>| {
            let mut damaged = image.clone();
            let same = damaged[index].2 == new;
            damaged[index].2 = new;
            let what = format!("{shown}, {how}");
            let outcome = examine(&damaged, &model, &what);
            assert!(
                same || !is_table(name) || outcome != Outcome::Harmless,
                "{what}: no read reported it"
            );
        };
        for len in [0, 1, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            // A log ends where its records end: behind them a cut takes nothing, and before, it is
            // a tail that a crash may have taken, unless a page says that it was durable.
            if !name.ends_with(".log") {
                examine_with(format!("cut to {len}"), bytes[..len.min(bytes.len())].to_vec());
            }
        }
        for page in (0..pages).step_by((pages / 6).max(1)) {
            let at = page * PAGE;
            if is_table(name) {
                let mut zeroed = bytes.clone();
                zeroed[at..at + PAGE].fill(0);
                examine_with(format!("page {page} zeroed"), zeroed);
            }
            if page + 1 < pages && !name.ends_with(".log") {
                let mut swapped = bytes.clone();
                let next = swapped[at + PAGE..at + 2 * PAGE].to_vec();
                swapped.copy_within(at..at + PAGE, at + PAGE);
                swapped[at..at + PAGE].copy_from_slice(&next);
                examine_with(format!("pages {page} and {} swapped", page + 1), swapped);
            }
        }
    }
    // A whole table of another number, intact in itself.
    let tables: Vec<_> = image.iter().enumerate().filter(|(_, (_, n, _))| is_table(n)).collect();
    assert!(tables.len() >= 2, "{}", tables.len());
    for pair in tables.windows(2) {
        let mut damaged = image.clone();
        damaged[pair[0].0].2 = pair[1].1.2.clone();
        let what = format!("{} is {}", pair[0].1.1, pair[1].1.1);
        assert_ne!(examine(&damaged, &model, &what), Outcome::Harmless, "{what}");
    }
    // Tier 1 as it was earlier, with an older TIER or the newest.
    let mut damaged: Image =
        image.iter().filter(|(path, ..)| path != Path::new(TIERS[1])).cloned().collect();
    damaged.extend(earlier.iter().filter(|(path, ..)| path == Path::new(TIERS[1])).cloned());
    examine(&damaged, &model, "tier 1 of earlier");
}
