//! A child that `fork` makes of a process with an open database: it cannot use it, cannot harm it,
//! and waits for none of the threads that it does not have.
#![cfg(not(any(shuttle, loom)))]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use bytes::Bytes;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use thermocline::{
    ByteSize, Cursor, Db, Error, ErrorKind, Ingest, Mode, Preset, Records, Settings, Snapshot,
    Ticket, Tier, WriteBatch,
};
use thermocline_device::drivers::forking::start_child;
use thermocline_foundation::threads::catch_panic;

fn settings(place: &Path, preset: Preset, driver: &str) -> Settings {
    let tier = |name: &str, mib| Tier::new(place.join(name), ByteSize::mib(mib)).driver(driver);
    Settings {
        preset: Some(preset),
        tiers: vec![tier("fast", 16), tier("slow", 256)],
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(256),
        ..Settings::default()
    }
}

fn is(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

/// The call is refused with the reason and the way out.
fn is_refused<T>(what: &str, result: Result<T, Error>) -> Result<(), String> {
    let Err(error) = result else { return Err(format!("{what} is done")) };
    let text = error.to_string();
    let says = text.contains("forked from it") && text.contains("open it here");
    is(error.kind() == ErrorKind::Locked && says, &format!("{what}: {text}"))
}

fn put(db: &Db, numbers: std::ops::Range<u32>) {
    for number in numbers {
        db.put(format!("key{number:06}"), vec![number as u8; 700]).unwrap();
    }
}

/// What a process has in its hands when it forks.
struct Hands {
    db: Db,
    clone: Db,
    snapshot: Snapshot,
    cursor: Cursor,
    records: Records,
    load: Ingest,
    ticket: Option<Ticket<Option<Bytes>>>,
}

/// Looks at a future once.
fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl Hands {
    fn full(db: Db) -> Self {
        let mut cursor = db.cursor();
        cursor.seek_to_first().unwrap();
        let mut records = db.scan().into_iter();
        assert!(records.next().unwrap().is_ok());
        let mut load = db.ingest();
        load.add("loaded", "value").unwrap();
        // A thread of the parent answers it.
        let ticket = Some(db.get_async("absent").unwrap());
        Self { clone: db.clone(), snapshot: db.snapshot(), cursor, records, load, ticket, db }
    }

    /// Each call there is, in a child.
    fn are_refused(&mut self) -> Result<(), String> {
        let Self { db, snapshot, cursor, records, load, ticket, .. } = self;
        let mut batch = WriteBatch::new();
        batch.put("key", "value");
        let elsewhere = db.settings().tiers[0].path.with_extension("checkpoint");
        is_refused("get", db.get("key000001"))?;
        is_refused("multi_get", db.multi_get(&["key000001", "key000002"]))?;
        is_refused("put", db.put("key", "value"))?;
        is_refused("delete", db.delete("key"))?;
        is_refused("write", db.write(batch))?;
        is_refused("an empty batch", db.write(WriteBatch::new()))?;
        is_refused("sync", db.sync())?;
        is_refused("flush", db.flush())?;
        is_refused("compact_range", db.compact_range(None, None, &mut |_| {}))?;
        is_refused("settle", db.settle())?;
        is_refused("checkpoint", db.checkpoint(elsewhere))?;
        is_refused("verify", db.verify(&mut |_| {}))?;
        is_refused("put_async", db.put_async("key", "value"))?;
        is_refused("get_async", db.get_async("key000001"))?;
        is_refused("page_async", db.scan().page_async(ByteSize::kib(1)))?;
        is_refused("a ticket", ticket.take().unwrap().wait())?;
        is(poll(&mut pin!(db.has_room())).is_ready(), "a wait for room that is never over")?;
        is_refused("a new scan", db.scan().into_iter().next().unwrap())?;
        is_refused("a new cursor", db.cursor().seek(b"key"))?;
        is_refused("a new snapshot", db.snapshot().get("key000001"))?;
        is_refused("a new load", db.ingest().add("key", "value"))?;
        is_refused("a snapshot's get", snapshot.get("key000001"))?;
        is_refused("a snapshot's multi_get", snapshot.multi_get(&["key000001"]))?;
        is_refused("a snapshot's scan", snapshot.scan().into_iter().next().unwrap())?;
        is_refused("a snapshot's cursor", snapshot.clone().cursor().seek_to_last())?;
        is_refused("next of a cursor", cursor.next())?;
        is_refused("prev of a cursor", cursor.prev())?;
        is_refused("a cursor's seek", cursor.seek_for_prev(b"key"))?;
        is_refused("next of a scan", records.next().unwrap())?;
        is_refused("a load's record", load.add("more", "value"))?;
        let stats = db.stats();
        is(stats.mode == Mode::Unusable, "statistics of a handle that is of no use")?;
        is(stats.read_only.is_some_and(|why| why.contains("forked")), "why it is of no use")?;
        is_refused("close", db.clone().close())
    }
}

/// All of `0..count` is there, and the database is whole and goes on.
fn check(home: &Path, count: u32) {
    let db = Db::open(home).unwrap();
    for number in 0..count {
        let value = db.get(format!("key{number:06}")).unwrap();
        assert!(value.is_some_and(|value| value == vec![number as u8; 700]), "key {number}");
    }
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    put(&db, count..count + 10);
    db.close().unwrap();
}

#[test]
fn a_child_is_refused_every_call_and_what_it_drops_stays_its_parents() {
    for (preset, driver) in [
        (Preset::Hybrid, "posix"),
        (Preset::Hybrid, "direct"),
        (Preset::Leveled, "posix"),
        (Preset::Leveled, "direct"),
    ] {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = place.path().join("home");
        let db = match Db::create(&home, &settings(place.path(), preset, driver)) {
            Err(error) if driver == "direct" && error.kind() == ErrorKind::Invalid => continue,
            db => db.unwrap(),
        };
        put(&db, 0..4000);
        db.flush().unwrap();
        put(&db, 4000..4100);
        let mut hands = Some(Hands::full(db));
        for unwinds in [false, true] {
            let child = start_child(|| {
                let mut hands = hands.take().unwrap();
                hands.are_refused()?;
                let dropped = catch_panic(|| {
                    // Dropped here, all of it, also on the way out of a panic.
                    let Hands { db, clone, snapshot, cursor, records, load, ticket } = hands;
                    is_refused("a load's end", load.finish())?;
                    assert!(!unwinds, "the child's own panic");
                    drop((db, clone, snapshot, cursor, records, ticket));
                    Ok::<(), String>(())
                });
                match dropped {
                    Ok(refused) => refused?,
                    Err(panic) => {
                        let text = panic.to_string();
                        is(unwinds && text.contains("the child's own panic"), &text)?;
                    }
                }
                let error = Db::open(&home).map(drop).unwrap_err();
                let parent = format!("process {} (", std::os::unix::process::parent_id());
                is(error.kind() == ErrorKind::Locked, "the child is let in")?;
                is(error.to_string().contains(&parent), &error.to_string())
            });
            assert_eq!(child.wait(), Ok(()), "{preset:?} on {driver}, unwinds: {unwinds}");
        }
        let mut hands = hands.take().unwrap();
        put(&hands.db, 4100..6000);
        assert!(Db::open(&home).is_err());
        hands.cursor.next().unwrap();
        assert_eq!(hands.records.by_ref().filter(Result::is_ok).count(), 4099);
        hands.load.finish().unwrap();
        assert!(hands.snapshot.get("loaded").unwrap().is_none());
        assert!(hands.clone.get("loaded").unwrap().is_some());
        assert!(hands.ticket.unwrap().wait().unwrap().is_none(), "the parent's answer");
        drop((hands.snapshot, hands.cursor, hands.records, hands.clone));
        hands.db.close().unwrap();
        check(&home, 6000);
    }
}

/// What other threads of the parent hold at the moment of the fork stays held in the child.
#[test]
fn children_made_while_others_write_and_merge_wait_for_nothing() {
    for preset in [Preset::Hybrid, Preset::Leveled] {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = place.path().join("home");
        let db = Db::create(&home, &settings(place.path(), preset, "posix")).unwrap();
        let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Acquire) {
                    let number = written.load(Ordering::Acquire) as u32;
                    put(&db, number..number + 1);
                    written.fetch_add(1, Ordering::AcqRel);
                }
            });
            scope.spawn(|| {
                while !ends.load(Ordering::Acquire) {
                    assert!(db.scan().limit(100).into_iter().all(|record| record.is_ok()));
                    drop((db.snapshot(), db.stats()));
                }
            });
            for _ in 0..40 {
                let mut hands = Some((db.clone(), db.snapshot(), db.scan(), db.cursor()));
                let child = start_child(|| {
                    let (db, snapshot, scan, cursor) = hands.take().unwrap();
                    is_refused("get", db.get("key"))?;
                    is_refused("settle", db.settle())?;
                    is_refused("a scan", scan.into_iter().next().unwrap())?;
                    is(db.stats().mode == Mode::Unusable, "its statistics")?;
                    drop((snapshot, cursor));
                    is_refused("close", db.close())
                });
                let ended = child.wait();
                ends.fetch_or(ended.is_err(), Ordering::AcqRel);
                assert_eq!(ended, Ok(()), "{preset:?}");
            }
            ends.store(true, Ordering::Release);
        });
        db.close().unwrap();
        check(&home, written.into_inner() as u32);
    }
}

/// A child has its own databases, and may have its parent's once that closed it.
#[test]
fn a_child_opens_databases_of_its_own_and_its_parents_after_that_closed_it() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (home, other) = (place.path().join("home"), place.path().join("other"));
    let db = Db::create(&home, &settings(place.path(), Preset::Hybrid, "posix")).unwrap();
    put(&db, 0..100);
    let child = start_child(|| {
        let own = Db::create(&other, &settings(&other, Preset::Leveled, "posix"))
            .map_err(|error| error.to_string())?;
        put(&own, 0..100);
        own.flush().map_err(|error| error.to_string())?;
        let mut held = Some(own.clone());
        let grandchild = start_child(|| {
            let own = held.take().unwrap();
            is_refused("what its parent opened", own.get("key000001"))?;
            is_refused("what its parent's parent opened", db.get("key000001"))
        });
        grandchild.wait()?;
        drop(held);
        own.close().map_err(|error| error.to_string())
    });
    assert_eq!(child.wait(), Ok(()));
    check(&other, 100);
    db.close().unwrap();
    let child = start_child(|| {
        let db = Db::open(&home).map_err(|error| error.to_string())?;
        put(&db, 100..200);
        db.close().map_err(|error| error.to_string())
    });
    assert_eq!(child.wait(), Ok(()));
    check(&home, 200);
}

/// What other threads of the parent are in the middle of, opening and closing among it, does not
/// hold up a child that opens a database of its own and works with it.
#[test]
fn children_open_their_own_databases_while_others_open_theirs() {
    let work = |preset, driver| -> Result<(), String> {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (home, settings) = (place.path().join("home"), settings(place.path(), preset, driver));
        let db = Db::create(&home, &settings).map_err(|error| error.to_string())?;
        put(&db, 0..400);
        db.flush().map_err(|error| error.to_string())?;
        let count = db.scan().into_iter().filter(Result::is_ok).count();
        is(count == 400, "records are missing")?;
        db.close().map_err(|error| error.to_string())
    };
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for driver in ["posix", "direct"] {
            let (ends, work) = (&ends, &work);
            scope.spawn(move || {
                while !ends.load(Ordering::Acquire) {
                    work(Preset::Hybrid, driver).unwrap();
                }
            });
        }
        for _ in 0..15 {
            for (preset, driver) in [(Preset::Hybrid, "posix"), (Preset::Leveled, "direct")] {
                let child = start_child(|| work(preset, driver));
                let ended = child.wait();
                ends.fetch_or(ended.is_err(), Ordering::AcqRel);
                assert_eq!(ended, Ok(()), "{preset:?} on {driver}");
            }
        }
        ends.store(true, Ordering::Release);
    });
}

/// A database that was closed before the fork, and that a snapshot still holds.
#[test]
fn a_child_drops_the_last_holder_of_a_closed_database_without_harm() {
    for preset in [Preset::Hybrid, Preset::Leveled] {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let home = place.path().join("home");
        let db = Db::create(&home, &settings(place.path(), preset, "posix")).unwrap();
        put(&db, 0..100);
        let mut held = Some((db.snapshot(), db.cursor()));
        assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Locked);
        let child = start_child(|| {
            let (snapshot, cursor) = held.take().unwrap();
            is_refused("get", snapshot.get("key000001"))?;
            drop((cursor, snapshot));
            Ok(())
        });
        assert_eq!(child.wait(), Ok(()));
        let text = Db::open(&home).map(drop).unwrap_err().to_string();
        assert!(text.contains("this process"), "{text}");
        let (snapshot, cursor) = held.take().unwrap();
        assert!(snapshot.get("key000001").unwrap().is_some());
        drop((snapshot, cursor));
        check(&home, 100);
    }
}
