//! The threads of asynchronous requests: none before the first of these, none that wakes at rest,
//! none after the end. Alone in its process, whose threads it counts.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "the kernel's files, not those of the store")]

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use thermocline::{ByteSize, Db, Settings, Tier};
use thermocline_foundation::{Clock, SystemClock};

/// The process's threads for requests by number, and how often each has gone to sleep.
fn threads() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if !matches!(name.trim(), "thermocline-log" | "thermocline-get") {
            continue;
        }
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let sleeps = sleeps.map_or(0, |count| count.trim().parse().unwrap());
        found.insert(path.display().to_string(), sleeps);
    }
    found
}

#[test]
fn threads_begin_with_the_first_request_sleep_at_rest_and_end_with_the_database() {
    let place = tempfile::tempdir().unwrap();
    let tiers = vec![Tier::new(place.path().join("tier"), ByteSize::mib(64))];
    let settings = Settings { tiers, request_workers: 2, ..Settings::default() };
    let db = Db::create(place.path().join("home"), &settings).unwrap();
    db.put("key", "value").unwrap();
    db.delete("key").unwrap();
    db.get("absent").unwrap();
    db.scan().into_iter().for_each(drop);
    db.flush().unwrap();
    assert_eq!(threads().len(), 0, "synchronous calls need no thread");
    db.put_async("key", "value").unwrap().wait().unwrap();
    assert_eq!(threads().len(), 1, "a logger");
    for _ in 0..10 {
        db.get_async("absent").unwrap().wait().unwrap();
    }
    assert!((2..=3).contains(&threads().len()), "and readers: {:?}", threads());
    let clock = SystemClock::new();
    let is_at_rest = || {
        let before = threads();
        clock.sleep(Duration::from_millis(100));
        before == threads()
    };
    assert!((0..50).any(|_| is_at_rest()), "threads wake without a cause: {:?}", threads());
    db.close().unwrap();
    assert_eq!(threads().len(), 0, "they end with the database");
}
