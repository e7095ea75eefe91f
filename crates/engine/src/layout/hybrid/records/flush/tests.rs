//! Flushes into slots: what becomes of keys, room, and failures.

use crate::support::hooked::{Call, HookedDevices};
use crate::support::{hybrid, stepped, stepped_environment};
use crate::{Db, Environment, Error};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::FileKind;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::SeqCst};
use thermocline_table::key_hash;

#[test]
fn looking_a_deleted_key_up_does_not_have_it_tracked_again() {
    let db = stepped(&hybrid());
    let tracked = || {
        let fast = &db.engine().hybrid().fast;
        fast.popularity.value(key_hash(b"key")).is_some()
    };
    let look_up = || {
        assert_eq!(db.get("key").unwrap(), None);
        assert_eq!(db.multi_get(&["key"]).unwrap(), [None]);
    };
    db.put("key", "value").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let before = db.snapshot();
    db.delete("key").unwrap();
    look_up();
    assert!(!tracked(), "its tombstone is in the memtable");
    db.flush().unwrap();
    look_up();
    assert!(!tracked(), "its tombstone is in a slot");
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(db.stats().fast_tier.unwrap().records, 0);
    look_up();
    assert!(!tracked(), "its tombstone is in a table");
    assert_eq!(before.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Though no table has the key: that is for a merge to find.
#[test]
fn a_deleted_key_leaves_its_slot_to_a_tombstone_which_a_demotion_ends() {
    let db = stepped(&hybrid());
    let slots = || {
        let fast = db.stats().fast_tier.unwrap();
        (fast.records, fast.live_bytes)
    };
    db.put("key", [7; 1000]).unwrap();
    db.flush().unwrap();
    assert!(slots().0 == 1 && slots().1 > 1000);
    db.delete("key").unwrap();
    db.flush().unwrap();
    assert!(slots().0 == 1 && slots().1 < 100, "{:?}", slots());
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(slots(), (0, 0));
    assert_eq!(db.stats().levels.iter().map(|level| level.tables).sum::<usize>(), 0);
}

/// So there may be more records in slots than keys, though no reader looks at the older any
/// more.
#[test]
fn a_version_that_a_snapshot_sees_stays_until_its_key_is_flushed_without_one() {
    let db = stepped(&hybrid());
    let records_after = |value: &str| {
        db.put("key", value).unwrap();
        db.flush().unwrap();
        db.stats().fast_tier.unwrap().records
    };
    assert_eq!(records_after("first"), 1);
    let snapshot = db.snapshot();
    assert_eq!(records_after("second"), 2);
    assert_eq!(snapshot.get("key").unwrap().as_deref(), Some(&b"first"[..]));
    drop(snapshot);
    assert_eq!(db.stats().fast_tier.unwrap().records, 2);
    assert_eq!(records_after("third"), 1);
}

/// Writes more than the fast tier holds, of which the slow one refuses so many files.
fn fill_while_refused(files: u64) -> (Db, Result<(), Error>) {
    let environment = stepped_environment();
    let refused = Arc::new(AtomicU64::new(0));
    let hook = {
        let refused = Arc::clone(&refused);
        Arc::new(move |call, path: &Path, _: &str| {
            let takes = |left: u64| left.checked_sub(1);
            let is_new = call == Call::Create && path.starts_with("/slow");
            if is_new && refused.fetch_update(SeqCst, SeqCst, takes).is_ok() {
                let kind = thermocline_device::ErrorKind::OutOfSpace;
                return Err(thermocline_device::Error::new(kind, "/slow is full"));
            }
            Ok(())
        })
    };
    let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
    let environment = Environment { devices, ..environment };
    let db = environment.create(Path::new("/home"), &hybrid()).unwrap();
    refused.store(files, SeqCst);
    let limit_bytes = db.engine().hybrid().fast.room.limit_bytes();
    let fill = || {
        for number in 0..2 * limit_bytes / 1000 {
            db.put(number.to_be_bytes(), [7; 1000])?;
            if number % 500 == 0 {
                db.flush()?;
            }
        }
        db.flush()
    };
    let result = fill();
    assert!(files == u64::MAX || refused.load(SeqCst) == 0, "all were refused");
    (db, result)
}

/// What was live before it comes again, in other slots.
#[test]
fn a_flush_that_finds_no_descriptor_begins_anew() {
    let environment = stepped_environment();
    let (made, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let hook = {
        let (made, refused) = (Arc::clone(&made), Arc::clone(&refused));
        Arc::new(move |call, _: &Path, name: &str| {
            let is_new = call == Call::Create && name.ends_with(".slab");
            if is_new && made.fetch_add(1, SeqCst) % 17 == 16 {
                refused.fetch_add(1, SeqCst);
                let kind = thermocline_device::ErrorKind::TooManyOpenFiles;
                return Err(thermocline_device::Error::new(kind, "no descriptor"));
            }
            Ok(())
        })
    };
    let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
    let environment = Environment { devices, ..environment };
    let home = Path::new("/home");
    let db = environment.create(home, &hybrid()).unwrap();
    let limit_bytes = db.engine().hybrid().fast.room.limit_bytes();
    let records = 2 * limit_bytes / 1000;
    let mut restarted = 0;
    for number in 0..2 * records {
        db.put((number % records).to_be_bytes(), [number as u8; 1000]).unwrap();
        if number % 3000 == 0 {
            let (slots, before) = (db.stats().fast_tier.unwrap().records, refused.load(SeqCst));
            db.flush().unwrap();
            let is_more = db.stats().fast_tier.unwrap().records > slots;
            restarted += u64::from(refused.load(SeqCst) > before && is_more);
        }
    }
    db.flush().unwrap();
    assert!(restarted > 0, "{} of {} were refused", refused.load(SeqCst), made.load(SeqCst));
    let activity = db.stats().activity;
    assert_eq!((db.stats().read_only, activity.file_shortage), (None, None));
    let check = |db: &Db| {
        for number in records..2 * records {
            let value = db.get((number - records).to_be_bytes()).unwrap().unwrap();
            assert!(value == [number as u8; 1000][..], "{number}");
        }
        let report = db.verify(&mut |_| {}).unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
    };
    check(&db);
    db.close().unwrap();
    check(&environment.open(home).unwrap());
}

#[test]
fn a_flush_without_room_waits_until_demotions_have_found_some() {
    for files in [1, 2] {
        let (db, result) = fill_while_refused(files);
        result.unwrap();
        let stats = db.stats();
        assert_eq!(stats.read_only, None);
        let fast = stats.fast_tier.unwrap();
        assert_eq!(fast.demotion_refusal, None);
        assert!(fast.demoted_records > 1000);
    }
}

#[test]
fn a_flush_without_room_goes_on_waiting_and_tells_where_demotions_find_none_again_and_again() {
    let (db, result) = fill_while_refused(u64::MAX);
    let text = result.unwrap_err().to_string();
    assert!(text.contains("no tier has room") && text.contains("/slow"), "{text}");
    let stats = db.stats();
    assert_eq!(stats.read_only, None, "it may find room later");
    let shortage = stats.activity.room_shortage.expect("it waits");
    assert!(shortage.contains("no tier has room"), "{shortage}");
    let fast = stats.fast_tier.unwrap();
    assert!(fast.records > 5000, "the fast tier is full: {}", fast.records);
    assert_eq!(db.get(0u64.to_be_bytes()).unwrap().as_deref(), Some(&[7; 1000][..]));
}

#[test]
fn writers_go_on_while_a_copy_holds_what_they_free() {
    let db = stepped(&hybrid());
    let fast = &db.engine().hybrid().fast;
    let held = fast.slabs.delay_slot_reuse();
    let (mut round, mut written_bytes) = (0u8, 0);
    // More than the tier has room for, of versions that all but the last are dead.
    // The tier has room for some tens of rounds.
    while written_bytes < 2 * fast.room.limit_bytes() {
        round = round.checked_add(1).expect("the tier has room for whatever is written");
        for key in 0..1000u32 {
            db.put(key.to_be_bytes(), [round; 1000]).unwrap();
            written_bytes += 1004;
        }
        db.flush().unwrap();
    }
    drop(held);
    db.engine().shared().jobs.wake();
    db.put(0u32.to_be_bytes(), [round; 1000]).unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    let stats = fast.slabs.stats();
    assert!(stats.file_bytes <= fast.room.limit_bytes(), "what was overdrawn is given back");
    let value = |key: u32| db.get(key.to_be_bytes()).unwrap().unwrap();
    assert!((0..1000).all(|key| value(key) == [round; 1000][..]));
}

/// Updates of all over the tier: hardly a run of slots is longer than one.
#[test]
fn manifest_and_map_keep_to_their_room_and_are_seldom_written_afresh() {
    let db = stepped(&hybrid());
    let engine = db.engine();
    let (manifest_bytes, map_bytes) =
        (engine.shared().settings.manifest_bytes(), engine.shared().settings.map_bytes());
    let mut random = thermocline_foundation::random::Random::new(1);
    let (mut rewrites, mut edits_bytes, mut state_bytes) = (0, 0, 0);
    let manifest = || {
        let tables = engine.versions().tables();
        (tables.manifest.number(), tables.manifest.extent().bytes)
    };
    (0..12_000u32).for_each(|key| db.put(key.to_be_bytes(), [7; 900]).unwrap());
    for _ in 0..300 {
        for _ in 0..500 {
            let key = random.below(12_000) as u32;
            db.put(key.to_be_bytes(), [8; 900]).unwrap();
        }
        let before = manifest();
        db.flush().unwrap();
        let after = manifest();
        if after.0 == before.0 {
            edits_bytes += after.1 - before.1;
        } else {
            rewrites += 1;
            state_bytes += after.1;
        }
        assert!(after.1 <= manifest_bytes, "{after:?} of {manifest_bytes}");
        let map = engine.shared().files.usage()[0].used_by_kind[&FileKind::Map];
        assert!(map <= map_bytes, "{map} of {map_bytes}");
    }
    // An edit takes a page at least, and a flush is three of them here; half of the manifest's room
    // has those of five or six flushes.
    assert!((1..=75).contains(&rewrites), "{rewrites} times");
    assert!(state_bytes * 4 < edits_bytes, "{state_bytes} written afresh of {edits_bytes}");
}
