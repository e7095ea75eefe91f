//! `hybrid.variant`: a store with PrismDB's rules as published holds what was written, and what it
//! does differs from ours where the rules do.

use crate::model::key;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Compression, Db, Environment, HybridSettings, Preset, Settings, Stats, Stepper, Tier,
    Variant, Workers,
};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::Random;

const RECORDS: u64 = 9_000;
const HOME: &str = "/home";

fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = vec![0; 1000];
    Random::new(number << 8 | round).fill(&mut value);
    value
}

fn settings(variant: Variant) -> Settings {
    let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
    let record_compression = Compression::None;
    Settings {
        preset: Some(Preset::Hybrid),
        hybrid: HybridSettings { variant, record_compression, ..HybridSettings::default() },
        tiers: vec![tier("/fast", 4), tier("/slow", 256)],
        memory: ByteSize::mib(2),
        table_size: ByteSize::kib(256),
        ..Settings::default()
    }
}

/// All records twice over the fast tier, in an order that is not theirs.
fn fill(db: &Db) {
    for round in 0..2 {
        for number in 0..RECORDS {
            let number = number * 4_999 % RECORDS;
            db.put(key(number), value(number, round)).unwrap();
        }
        db.flush().unwrap();
        db.settle().unwrap();
    }
}

fn check(db: &Db) {
    for number in 0..RECORDS {
        assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number, 1), "{number}");
    }
    assert_eq!(db.scan().into_iter().map(Result::unwrap).count() as u64, RECORDS);
    assert!(db.verify(&mut |_| {}).unwrap().problems.is_empty());
}

/// Records that move up when a few are asked for again and again while nothing is written.
fn promoted_by_reads(db: &Db) -> u64 {
    let promoted = || db.stats().fast_tier.unwrap().promoted_records;
    let before = promoted();
    for _ in 0..4 {
        (0..200).for_each(|number| assert!(db.get(key(number * 45)).unwrap().is_some()));
        db.settle().unwrap();
    }
    promoted() - before
}

/// Levels of the slow tier that have tables: runs over each other.
fn runs(stats: &Stats) -> usize {
    stats.levels.iter().filter(|level| level.tables > 0).count()
}

#[test]
fn a_store_of_the_papers_variant_works_and_does_what_the_paper_says() {
    for variant in [Variant::Tuned, Variant::Paper] {
        let is_paper = variant == Variant::Paper;
        let environment = Environment {
            devices: Arc::new(MemoryDevices::new()),
            workers: Workers::Stepped(Arc::new(Stepper::new(1))),
            ..Environment::default()
        };
        let db = environment.create(Path::new(HOME), &settings(variant)).unwrap();
        fill(&db);
        let stats = db.stats();
        let fast = stats.fast_tier.as_ref().unwrap();
        assert!(fast.demoted_records > RECORDS / 2, "{variant:?}: {fast:?}");
        assert_eq!(runs(&stats) == 1, is_paper, "{variant:?}: {:?}", stats.levels);
        check(&db);
        assert_eq!(promoted_by_reads(&db) == 0, is_paper, "{variant:?}");
        db.close().unwrap();

        let db = environment.open(Path::new(HOME)).unwrap();
        assert_eq!(db.settings().hybrid.variant, variant, "the store keeps it");
        check(&db);
        assert_eq!(promoted_by_reads(&db) == 0, is_paper, "{variant:?}, opened again");
        let fast = db.stats().fast_tier.unwrap();
        let stage = fast.rules.read_triggered_stage;
        assert_eq!(stage != "off", is_paper, "{variant:?}: reads ask for merges: {stage}");
        assert!(!is_paper || fast.index_copies > 0, "each table has a copy of its index");
    }
}
