//! The cache leaves its room to a table that finds none, and its budget of writes is one for all
//! openings.

use super::{Db, HOME, cache, check, churn, name, settings, stats, store, tier, value};
use crate::support::stepped_environment;
use crate::support::still_clock::StillClock;
use crate::{Environment, ErrorKind, FastCacheSettings, Settings};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::Clock;

/// Behind all keys of [`name`].
fn late(number: u64) -> Vec<u8> {
    [&[0xFF; 8][..], &number.to_be_bytes()].concat()
}

#[test]
fn copies_leave_before_a_table_finds_no_room_on_any_tier() {
    let tiers = vec![tier("/fast", 8), tier("/slow", 12)];
    let settings = Settings { tiers, ..settings(cache(2048)) };
    let db: Db = stepped_environment().create(Path::new(HOME), &settings).unwrap();
    (0..4000).for_each(|key| db.put(name(key), value(key)).unwrap());
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    db.engine().shared().cache.set_capacity(0);
    (0..2).for_each(|_| check(&db, 0..1500));
    assert!(stats(&db).used_bytes > 512 << 10, "{:?}", stats(&db));

    let mut load = db.ingest();
    let mut number = 0;
    let error = loop {
        match load.add(late(number), value(number)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    // The table would not have fitted in what they still have.
    let left = db.stats().fast_cache.unwrap().used_bytes;
    assert!(left <= (256 + 64) << 10, "{number} records, {left} bytes of copies: {error}");
    drop(load);

    let count = number * 9 / 10;
    let mut load = db.ingest();
    (0..count).for_each(|number| load.add(late(number), value(number)).unwrap());
    load.finish().unwrap();
    for number in (0..count).step_by(97) {
        assert_eq!(db.get(late(number)).unwrap().unwrap(), value(number));
    }
    check(&db, 0..100);
    db.close().unwrap();
}

#[test]
fn openings_one_after_the_other_write_no_more_than_the_budget_of_one() {
    let clock = Arc::new(StillClock::default());
    let environment = Environment { clock: clock.clone(), ..stepped_environment() };
    let fast_cache = FastCacheSettings { write_budget_dwpd: 4.5, ..cache(1024) };
    let db = store(&environment, fast_cache);
    churn(&db);
    // What flows in an hour of a tier of 8 MiB, and the batch that is under way.
    let most = (1536 << 10) + (64 << 10);
    assert!((1408 << 10..=most).contains(&stats(&db).written_bytes), "{:?}", stats(&db));
    db.close().unwrap();
    let read = |db: &Db| (0..3).for_each(|_| check(db, 3000..3200));
    for _ in 0..3 {
        let db = environment.open(Path::new(HOME)).unwrap();
        db.engine().shared().cache.set_capacity(0);
        read(&db);
        let cache = stats(&db);
        assert!(cache.written_bytes == 0 && cache.dropped > 100, "{cache:?}");
        db.close().unwrap();
    }
    let db = environment.open(Path::new(HOME)).unwrap();
    db.engine().shared().cache.set_capacity(0);
    clock.sleep(Duration::from_secs(360));
    (0..2).for_each(|_| read(&db));
    let written = stats(&db).written_bytes;
    // A tenth of an hour.
    assert!((64 << 10..=(154 + 64) << 10).contains(&written), "{:?}", stats(&db));
    db.close().unwrap();
}
