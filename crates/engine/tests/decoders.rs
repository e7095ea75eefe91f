//! Batches, manifest edits, settings and live figures: their golden files, and the same under
//! random damage. See `foundation/tests/decoders/mutation.rs`.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "decoders/database.rs"]
mod database;
#[path = "decoders/live_sample.rs"]
mod live_sample;
#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, check, check_times};
use std::path::{Path, PathBuf};
use thermocline::{
    ByteSize, HybridSettings, LiveStats, Preset, Settings, Tier, WriteBatch, decoders,
};

/// A record of two bytes is an entry of the memtable.
const BYTES: Allowance = Allowance { fixed_bytes: 64 << 10, per_byte: 256 };
const TEXTS: Allowance = Allowance { fixed_bytes: 256 << 10, per_byte: 512 };

/// The golden file `name`, which must be `bytes`.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    assert!(golden == bytes, "{name} is not written as it was");
    golden
}

fn sample_batch() -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(b"warm", b"water").delete("cold").put("", "").put([7; 200], vec![9; 300]);
    batch
}

fn sample_settings() -> String {
    let tiers = vec![
        Tier::new("/mnt/fast", ByteSize::gib(1)).driver("direct"),
        Tier::new("/mnt/slow", ByteSize(5_000_000_001)),
    ];
    let preset = Some(Preset::Leveled);
    let hybrid = HybridSettings { tracker_percent: 20, ..HybridSettings::default() };
    let settings = Settings { tiers, preset, background_threads: 2, hybrid, ..Settings::default() };
    settings.to_toml().unwrap()
}

fn assert_reaches_inside((accepted, runs): (u64, u64)) {
    assert!(accepted >= runs / 50, "{accepted} of {runs}: the mutations say nothing of the inside");
}

#[test]
fn golden_batch_is_read_and_written_as_ever() {
    let golden = golden("batch-v1.bin", &decoders::encode_batch(sample_batch()).unwrap());
    assert_eq!(decoders::rewrite_batch(&golden).unwrap(), golden);
}

#[test]
fn golden_manifest_edit_is_read_and_written_as_ever() {
    let golden = golden("manifest-edit-v1.bin", &decoders::sample_edit());
    assert_eq!(decoders::rewrite_edit(&golden).unwrap(), golden);
}

#[test]
fn golden_settings_are_read_and_written_as_ever() {
    let golden = golden("settings-v1.toml", sample_settings().as_bytes());
    let text = String::from_utf8(golden).unwrap();
    let settings = Settings::from_toml(&text, Path::new("settings.toml")).unwrap();
    assert_eq!(settings.tiers[1].capacity, ByteSize(5_000_000_001));
    assert_eq!(settings.to_toml().unwrap(), text);
}

/// What builds before 2026-11-26 wrote had eleven settings more.
#[test]
fn settings_with_names_that_are_no_more_are_read_without_them() {
    let read = |name: &str| {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect();
        Settings::from_toml(&std::fs::read_to_string(&path).unwrap(), &path).unwrap()
    };
    assert_eq!(read("settings-v1-retired.toml"), read("settings-v1.toml"));
}

#[test]
fn golden_live_stats_are_read_and_written_as_ever() {
    let written = live_sample::live_stats().to_json().unwrap();
    let golden = String::from_utf8(golden("live-stats-v3.json", written.as_bytes())).unwrap();
    let live = LiveStats::from_json(&golden).unwrap();
    assert_eq!((live.live.process, live.stats.operations.compacted_out_bytes), (4711, 11));
    assert_eq!(live.to_json().unwrap(), golden);
}

#[test]
fn damaged_live_stats_are_refused_or_read_back() {
    let seeds = [live_sample::live_stats().to_json().unwrap().into_bytes()];
    assert_reaches_inside(check("live stats", &seeds, TEXTS, properties::live_stats));
}

#[test]
fn damaged_batches_are_refused_or_read_back() {
    let seeds = [decoders::encode_batch(sample_batch()).unwrap()];
    assert_reaches_inside(check("batch", &seeds, BYTES, properties::batch));
}

#[test]
fn damaged_manifest_edits_are_refused_or_read_back() {
    let seeds = [decoders::sample_edit()];
    assert_reaches_inside(check("manifest edit", &seeds, BYTES, properties::manifest_edit));
}

#[test]
fn edited_settings_are_refused_or_read_back() {
    let seeds = [sample_settings().into_bytes(), b"memory = '1.5 GiB'\ndelay_max = '3 ms'".into()];
    assert_reaches_inside(check("settings", &seeds, TEXTS, properties::settings));
}

#[test]
fn tiers_read_back_as_they_are_spelled_out() {
    let seeds = ["/mnt/fast:10GiB:direct", "slow:64M", "a:b:1.5 TB:emulated-gp3"];
    let seeds = seeds.map(|text| text.as_bytes().to_vec());
    assert_reaches_inside(check("tier", &seeds, TEXTS, properties::tier));
}

#[test]
fn histories_of_a_whole_database_are_those_of_its_model() {
    // Two memtables and logs, level 0, a reopening, a snapshot across a compaction, an ingest.
    let history = [
        &[0, 5, 20, 0, 6, 254, 0, 7, 254, 9, 12, 5, 5, 6, 3, 5, 9, 90, 4, 6, 255, 10, 12][..],
        &[14, 7, 11, 15, 5, 6, 7, 90, 13, 60, 9, 9, 0, 61, 1, 9, 14, 7, 12, 8, 0, 255, 1, 10, 7, 6],
    ];
    let seeds = [history.concat(), vec![9, 10, 11, 12, 13]];
    // The devices are the database's memory, and a log takes a mebibyte at once.
    let allowance = Allowance { fixed_bytes: 96 << 20, per_byte: 1 << 20 };
    check_times(120, "database", &seeds, allowance, database::database);
}
