//! What closing says of those that still hold the database, and what the next opening says.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::path::Path;
use thermocline::{ByteSize, Db, ErrorKind, Preset, Settings, Tier};

fn settings(place: &Path, preset: Preset) -> Settings {
    let (fast, slow) = (place.join("fast"), place.join("slow"));
    let tiers = vec![Tier::new(fast, ByteSize::mib(16)), Tier::new(slow, ByteSize::mib(64))];
    let (preset, memory) = (Some(preset), ByteSize::mib(8));
    Settings { preset, tiers, memory, ..Settings::default() }
}

/// What a test keeps of a database beside its handle.
type Kept = Box<dyn std::any::Any>;

/// How a database gives something out.
type GiveOut = fn(&Db) -> Kept;

/// Each thing that a database gives out and that holds it, and what closing calls it.
fn given_out() -> Vec<(&'static str, GiveOut)> {
    vec![
        ("1 snapshot", |db| Box::new(db.snapshot())),
        ("2 snapshots", |db| {
            let snapshot = db.snapshot();
            Box::new((snapshot.clone(), snapshot))
        }),
        ("1 cursor or scan", |db| Box::new(db.cursor())),
        ("1 cursor or scan", |db| Box::new(db.scan())),
        ("1 cursor or scan", |db| {
            let mut records = db.scan().into_iter();
            assert!(records.next().unwrap().is_ok());
            Box::new(records)
        }),
        ("1 snapshot and 1 cursor or scan", |db| {
            let snapshot = db.snapshot();
            Box::new((snapshot.scan(), snapshot))
        }),
        ("1 cursor or scan", |db| Box::new(db.snapshot().cursor())),
        ("1 unfinished bulk load", |db| Box::new(db.ingest())),
    ]
}

#[test]
fn closing_names_what_still_holds_the_database_and_opening_says_that_it_is_this_process() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let db = Db::create(&home, &settings(place.path(), preset)).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
        for (what, give_out) in given_out() {
            let db = Db::open(&home).unwrap();
            let kept = give_out(&db);
            let error = db.close().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Locked, "{what}");
            let text = error.to_string();
            let says = format!("durable, but this process still has {what} of it");
            assert!(text.contains(&says) && text.contains("drop what is left"), "{text}");
            for again in [Db::open(&home), Db::open_read_only(&home)] {
                let error = again.map(drop).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Locked, "{what}");
                let text = error.to_string();
                assert!(text.contains("this process") && text.contains("snapshots"), "{text}");
            }
            drop(kept);
            let db = Db::open(&home).unwrap_or_else(|error| panic!("after {what}: {error}"));
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
            db.close().unwrap();
        }
    }
}

#[test]
fn closing_one_of_several_handles_is_fine_and_the_last_one_to_close_tells() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("home");
    let db = Db::create(&home, &settings(place.path(), Preset::Leveled)).unwrap();
    let (other, snapshot) = (db.clone(), db.snapshot());
    db.close().unwrap();
    assert_eq!(other.put("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(Db::open(&home).map(drop).unwrap_err().to_string().contains("this process"));
    assert!(other.close().unwrap_err().to_string().contains("1 snapshot"));
    drop(snapshot);
    Db::open(&home).unwrap().close().unwrap();
}
