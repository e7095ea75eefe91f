//! Where records come to lie on two tiers, seen from outside: by the store's own statistics.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline::{
    ByteSize, Db, Durability, Environment, ErrorKind, PlacementChoice, Preset, Settings, Tier,
};
use thermocline_foundation::random::Random;
use thermocline_foundation::{Clock, SystemClock};

const RECORDS: u64 = 40_000;

fn tables_on(db: &Db, tier: usize) -> u64 {
    db.stats().levels.iter().map(|level| level.bytes_by_tier[tier]).sum()
}

/// A load that is compacted leaves everything on the level that belongs to the slow tier. The fast
/// one must not stay empty: once there is nothing left to write, it is filled, and it stays so.
#[test]
fn what_a_load_leaves_free_on_the_fast_tier_is_filled_when_writing_ends() {
    let home = tempfile::tempdir().unwrap();
    let fast = ByteSize::mib(16);
    let settings = Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![
            Tier::new(home.path().join("fast"), fast),
            Tier::new(home.path().join("slow"), ByteSize::gib(1)),
        ],
        memory: ByteSize::mib(8),
        table_size: ByteSize::mib(1),
        durability: Durability::Buffered,
        ..Settings::default()
    };
    let db = Db::open_or_create(home.path().join("db"), &settings).unwrap();
    let mut random = Random::new(1);
    let mut value = vec![0; 1000];
    for _ in 0..RECORDS {
        random.fill(&mut value);
        db.put(random.below(RECORDS).to_be_bytes(), &value).unwrap();
    }
    // One level with everything, made while the levels above still claimed the room.
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    let on_fast = tables_on(&db, 0);
    assert!(tables_on(&db, 1) > fast.0, "the rest is on the slow tier");
    assert!(on_fast > fast.0 / 3, "{} of {fast} are used", ByteSize(on_fast));
    // Nothing that was moved is moved again.
    let writes = db.stats().tiers[1].written_bytes;
    db.settle().unwrap();
    db.close().unwrap();
    let db = Db::open(home.path().join("db")).unwrap();
    db.settle().unwrap();
    assert_eq!(tables_on(&db, 0), on_fast);
    assert_eq!(db.stats().tiers[1].written_bytes, writes, "nothing went back down");
    let found = (0..RECORDS).filter(|key| db.get(key.to_be_bytes()).unwrap().is_some()).count();
    assert!((found as f64 / RECORDS as f64 - 0.632).abs() < 0.02, "{found}");
}

/// Two tiers of which the fast one has room for everything, so that only the placement keeps tables
/// away from it; and memtables so small that several levels fill.
fn with_placement(home: &Path, placement: PlacementChoice) -> Settings {
    let tier = |name: &str| Tier::new(home.join(name), ByteSize::gib(1));
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![tier("fast"), tier("slow")],
        placement,
        memory: ByteSize::mib(2),
        table_size: ByteSize::kib(128),
        level_ratio: 3,
        durability: Durability::Buffered,
        ..Settings::default()
    }
}

/// Writes records in random order, and looks at the store now and then.
fn load(db: &Db, seed: u64, mut look: impl FnMut(&Db)) {
    let mut random = Random::new(seed);
    let mut value = vec![0; 1000];
    for count in 0..8_000 {
        random.fill(&mut value);
        db.put(random.below(8_000).to_be_bytes(), &value).unwrap();
        if count % 400 == 0 {
            look(db);
        }
    }
    db.flush().unwrap();
    db.settle().unwrap();
    look(db);
}

#[test]
fn with_log_only_no_table_lies_on_the_fast_tier_until_another_placement_is_set() {
    let home = tempfile::tempdir().unwrap();
    let settings = with_placement(home.path(), PlacementChoice::LogOnly);
    let path = home.path().join("db");
    let none_is_fast = |db: &Db| assert_eq!(tables_on(db, 0), 0);
    let db = Db::open_or_create(&path, &settings).unwrap();
    load(&db, 1, none_is_fast);
    let stats = db.stats();
    assert_eq!(stats.fast_levels, Some(0));
    assert!(stats.tiers[0].used_bytes > 0 && stats.tiers[0].written_bytes > 8 << 20, "the log");
    assert!(stats.levels.len() > 1 && tables_on(&db, 1) > 4 << 20);
    db.close().unwrap();

    let db = Db::open(&path).unwrap();
    load(&db, 2, none_is_fast);
    db.close().unwrap();

    let room = Settings { placement: PlacementChoice::Room, ..settings.clone() };
    let db = Db::open_with(&path, &room).unwrap();
    load(&db, 3, |_| {});
    assert_eq!(tables_on(&db, 1), 0, "there is room for all");
    assert_eq!(db.stats().fast_levels, None);
    db.close().unwrap();

    // What lies there goes down again, a fixed number of levels being one.
    let db = Db::open_with(&path, &settings).unwrap();
    db.settle().unwrap();
    none_is_fast(&db);
    db.close().unwrap();
}

#[test]
fn with_top_levels_only_so_many_levels_below_level_0_are_on_the_fast_tier() {
    let home = tempfile::tempdir().unwrap();
    let settings = with_placement(home.path(), PlacementChoice::TopLevels(1));
    let db = Db::open_or_create(home.path().join("db"), &settings).unwrap();
    let mut fast_seen = 0;
    load(&db, 1, |db| fast_seen = fast_seen.max(tables_on(db, 0)));
    assert!(fast_seen > 0, "level 0 at least");
    let stats = db.stats();
    assert_eq!(stats.fast_levels, Some(2));
    let below = stats.levels.iter().filter(|level| level.level > 0).skip(1);
    assert!(below.clone().count() > 0, "levels that are not among these: {:?}", stats.levels);
    for level in below {
        assert_eq!(level.bytes_by_tier[0], 0, "level {}", level.level);
    }
    db.close().unwrap();
}

/// The system's clock, which a test puts forward.
#[derive(Debug, Default)]
struct JumpingClock {
    system: SystemClock,
    ahead_ns: AtomicU64,
}

impl Clock for JumpingClock {
    fn now_ns(&self) -> u64 {
        self.system.now_ns() + self.ahead_ns.load(Relaxed)
    }
    fn wall_s(&self) -> u64 {
        self.system.wall_s()
    }
    fn sleep(&self, duration: Duration) {
        self.system.sleep(duration);
    }
}

#[test]
fn with_parallelism_a_level_comes_to_the_fast_tier_after_thirty_seconds_and_is_moved() {
    let home = tempfile::tempdir().unwrap();
    let settings = with_placement(home.path(), PlacementChoice::Parallelism);
    let clock = Arc::new(JumpingClock::default());
    let environment = Environment { clock: clock.clone(), ..Environment::default() };
    let db: Db = environment.create(&home.path().join("db"), &settings).unwrap();
    let deeper_on_fast = |db: &Db, levels: usize| -> u64 {
        let stats = db.stats();
        let below = stats.levels.iter().filter(|level| level.level > 0).skip(levels - 1);
        below.map(|level| level.bytes_by_tier[0]).sum()
    };
    load(&db, 1, |_| {});
    // Two, unless the machine took thirty seconds for this.
    let few = usize::from(db.stats().fast_levels.unwrap());
    assert!(db.stats().levels.len() > few && tables_on(&db, 0) > 0, "{:?}", db.stats().levels);
    assert_eq!(deeper_on_fast(&db, few), 0);
    // Without a profile the device limits nothing, and there is room for all.
    let mut tens = 0;
    while db.stats().fast_levels == Some(few as u8) && tens < 9 {
        tens += 1;
        clock.ahead_ns.fetch_add(10_000_000_000, Relaxed);
        // The measurement follows a change of the levels, and the moves follow it.
        for key in ["tick", "next"] {
            db.put(key, "value").unwrap();
            db.flush().unwrap();
            db.settle().unwrap();
        }
    }
    assert_eq!(db.stats().fast_levels, Some(few as u8 + 1), "after {tens} times ten seconds");
    assert!(deeper_on_fast(&db, few) > 0, "{:?}", db.stats().levels);
    assert_eq!(deeper_on_fast(&db, few + 1), 0);
    db.close().unwrap();
}

#[test]
fn hybrid_refuses_a_placement_of_leveled_and_makes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let settings = with_placement(home.path(), PlacementChoice::Bandwidth);
    for preset in [None, Some(Preset::Hybrid)] {
        let settings = Settings { preset, ..settings.clone() };
        let path = home.path().join("db");
        let refused = Db::open_or_create(&path, &settings).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("name preset = \"leveled\""), "{refused}");
        assert!(!path.exists(), "{preset:?}");
    }
}
