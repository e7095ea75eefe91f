//! Where records come to lie on two tiers, seen from outside: by the store's own statistics.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use thermocline::{ByteSize, Db, Durability, Preset, Settings, Tier};
use thermocline_foundation::random::Random;

const RECORDS: u64 = 40_000;

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
    let tables_on = |db: &Db, tier: usize| -> u64 {
        db.stats().levels.iter().map(|level| level.bytes_by_tier[tier]).sum()
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
