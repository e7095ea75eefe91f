//! What only grows: after all kinds of work, and after work that fails half way, nothing that was
//! taken for it is left.

use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::{HOME, compact, hybrid, stepped_on};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use thermocline::{ByteSize, Db, Durability, HybridSettings, Preset, Settings, WriteBatch};
use thermocline_device::{Error, ErrorKind, MemoryDevices};
use thermocline_foundation::random::Random;

/// So small that everything happens: flushes, demotions, other sizes of slots, a budget.
fn settings(preset: Preset) -> Settings {
    let mut settings = Settings {
        preset: Some(preset),
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(64),
        level0_tables: 2,
        hybrid: HybridSettings {
            high_watermark_percent: 40,
            write_budget_dwpd: 1000.0,
            ..hybrid().hybrid
        },
        ..hybrid()
    };
    settings.tiers[0].capacity = ByteSize::mib(4);
    settings
}

fn assert_at_rest(db: &Db, what: &str) {
    db.sync().unwrap();
    assert_eq!(db.stats().activity.unsynced_bytes, 0, "{what}: all is synced");
    let left = db.left_over().unwrap();
    assert!(left.is_empty(), "{what}: {left:?}");
}

fn write(db: &Db, random: &mut Random, count: u64, bytes: u64) {
    for _ in 0..count {
        let mut batch = WriteBatch::new();
        let key = random.below(1500).to_be_bytes();
        if random.below(6) == 0 {
            batch.delete(key);
        } else {
            let mut value = vec![0; (bytes / 2 + random.below(bytes)) as usize];
            random.fill(&mut value);
            batch.put(key, value);
        }
        db.write_with(batch, Durability::Buffered).unwrap();
    }
}

fn work(db: &Db, random: &mut Random, what: &str) {
    for round in 0..12 {
        write(db, random, 500, [900, 2000, 300][round % 3]);
        assert_at_rest(db, &format!("{what}: writes, round {round}"));
        match round % 4 {
            0 => compact(db),
            1 => {
                let mut ingest = db.ingest();
                (0..200u64).for_each(|key| ingest.add((key * 7).to_be_bytes(), "loaded").unwrap());
                ingest.finish().unwrap();
                // One that comes to nothing.
                let mut ingest = db.ingest();
                ingest.add("never", "loaded").unwrap();
            }
            2 => db.checkpoint(format!("/copy {what} {round}")).unwrap(),
            _ => {
                for key in (0..500u64).flat_map(|key| [key; 3]) {
                    db.get(key.to_be_bytes()).unwrap();
                }
                drop(db.verify(&mut |_| {}).unwrap());
            }
        }
        assert_at_rest(db, &format!("{what}: round {round}"));
    }
}

#[test]
fn when_work_has_ended_nothing_is_left_of_what_was_taken_for_it() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let environment = stepped_on(Arc::new(MemoryDevices::new()));
        let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
        let mut random = Random::new(1);
        work(&db, &mut random, &format!("{preset:?}"));
        db.close().unwrap();
        let db = environment.open(Path::new(HOME)).unwrap();
        work(&db, &mut random, &format!("{preset:?}, opened again"));
        if preset == Preset::Hybrid {
            let fast = db.stats().fast_tier.unwrap();
            assert!(fast.demoted_records > 0 && fast.promoted_records > 0, "{fast:?}");
        }
    }
}

/// A merge that finds no room is tried again later: what it had claimed is free meanwhile.
#[test]
fn a_merge_that_finds_no_room_gives_back_what_it_had_claimed() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let is_full = Arc::new(AtomicBool::new(false));
        let full = Arc::clone(&is_full);
        let hook: Hook = Arc::new(move |call: Call, _: &Path, name: &str| {
            let takes_room = call == Call::Write && name.ends_with(".table");
            match takes_room && full.load(SeqCst) {
                true => Err(Error::new(ErrorKind::OutOfSpace, "the device is full")),
                false => Ok(()),
            }
        });
        let devices = HookedDevices::new(Arc::new(MemoryDevices::new()), hook);
        let environment = stepped_on(Arc::new(devices));
        let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
        let mut random = Random::new(2);
        for round in 0..4 {
            write(&db, &mut random, 300, 900);
            db.flush().unwrap();
            db.settle().unwrap();
            is_full.store(true, SeqCst);
            let refused = db.compact_range(None, None, &mut |_| {});
            is_full.store(false, SeqCst);
            assert_eq!(refused.unwrap_err().kind(), thermocline::ErrorKind::OutOfSpace);
            assert_at_rest(&db, &format!("{preset:?}, round {round}"));
        }
        compact(&db);
        assert_at_rest(&db, &format!("{preset:?}, merged at last"));
    }
}
