//! The preset `indexed`: long scans have the blocks of the next run read while they give out those
//! of this one.

use crate::hooked::{Call, HookedDevices};
use crate::indexed::{State, create, key};
use crate::support::{HOME, Machine, stepped};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use thermocline::{Cursor, Db, Snapshot};
use thermocline_device::{Error, ErrorKind};
use thermocline_foundation::random::Random;

/// Keys after which a scan is long, and the most of a run.
const RUN_KEYS: usize = 1024;
/// Bytes that are read for the next run at the most.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// A store of which no block is in memory, over devices that say what they have to read.
struct Watched {
    db: Db,
    reads: Arc<AtomicU64>,
    in_flight: Arc<AtomicU64>,
    fails: Arc<AtomicBool>,
}

fn put(db: &Db, state: &mut State, number: u64, value: Vec<u8>) {
    db.put(key(number), &value).unwrap();
    state.insert(key(number), value);
}

/// A store with `count` keys with values of `bytes` bytes that do not compress, opened again.
fn watched(count: u64, bytes: u64, random: &mut Random) -> (Watched, State) {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    for number in 0..count {
        let value = (0..bytes).map(|_| random.below(256) as u8).collect();
        put(&db, &mut state, number, value);
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let machine = machine.killed(db);
    let (reads, in_flight) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let fails = Arc::<AtomicBool>::default();
    let (count, failing) = (Arc::clone(&reads), Arc::clone(&fails));
    let hook = move |call: Call, _: &Path, name: &str| {
        if call != Call::Read || !name.ends_with(".table") {
            return Ok(());
        }
        count.fetch_add(1, SeqCst);
        match failing.load(SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "the device is gone")),
            false => Ok(()),
        }
    };
    let now = Arc::clone(&in_flight);
    let hooked = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook))
        .in_flight(Arc::new(move |bytes| now.store(bytes as u64, SeqCst)));
    let db = stepped(Arc::new(hooked), &machine.regions).open(Path::new(HOME)).unwrap();
    db.settle().unwrap();
    (Watched { db, reads, in_flight, fails }, state)
}

fn step(cursor: &mut Cursor, forth: bool) {
    if forth { cursor.next().unwrap() } else { cursor.prev().unwrap() }
}

fn cursor_at_start(db: &Db, forth: bool) -> Cursor {
    let mut cursor = db.cursor();
    let placed = if forth { cursor.seek_to_first() } else { cursor.seek_to_last() };
    placed.unwrap();
    cursor
}

/// The records from where `cursor` stands, in ascending order, and what devices have to read while
/// it stands on each.
fn walk(cursor: &mut Cursor, forth: bool, watched: &Watched) -> (State, Vec<u64>) {
    let (mut records, mut in_flight) = (State::new(), Vec::new());
    while cursor.valid() {
        records.insert(cursor.key().to_vec(), cursor.value().to_vec());
        in_flight.push(watched.in_flight.load(SeqCst));
        step(cursor, forth);
    }
    (records, in_flight)
}

#[test]
fn a_long_scan_has_the_next_run_read_before_this_one_is_used_up() {
    for (forth, count, bytes) in [(true, 5000, 60), (false, 5000, 60), (true, 2500, 3000)] {
        let (watched, state) = watched(count, bytes, &mut Random::new(5));
        let mut cursor = cursor_at_start(&watched.db, forth);
        let (records, in_flight) = walk(&mut cursor, forth, &watched);
        assert!(records == state, "{} records of {count}", records.len());
        let first = in_flight.iter().position(|bytes| *bytes > 0).unwrap();
        let last = in_flight.iter().rposition(|bytes| *bytes > 0).unwrap();
        assert!((RUN_KEYS..3 * RUN_KEYS).contains(&first), "the first is begun at {first}");
        assert!(in_flight[first..last].iter().all(|bytes| *bytes > 0), "{forth}");
        // The last run has nothing behind it.
        assert!((2..=RUN_KEYS + 2).contains(&(count as usize - last)), "{last} of {count}");
        let most = in_flight.into_iter().max().unwrap();
        assert!(most <= AHEAD_BYTES_MAX, "{most} bytes are being read");
        assert!(bytes < 1000 || most > AHEAD_BYTES_MAX / 2, "{most} bytes are being read");
    }
}

/// A scan that ends early has read what it would have without the next run, and one run at the
/// most.
#[test]
fn a_scan_that_ends_early_has_read_one_run_ahead_at_the_most() {
    let (watched, _) = watched(4000, 3000, &mut Random::new(6));
    let reads = || watched.reads.load(SeqCst);
    let mut records = watched.db.scan().limit(100).into_iter();
    records.next().unwrap().unwrap();
    let before = reads();
    assert_eq!(records.count(), 99);
    assert_eq!((reads(), watched.in_flight.load(SeqCst)), (before, 0), "a range of 100");
    // So that all tables are open; what is in memory then is the start.
    walk(&mut cursor_at_start(&watched.db, false), false, &watched);
    let mut cursor = cursor_at_start(&watched.db, true);
    let (mut before, mut most) = (reads(), 0);
    for _ in 0..3000 {
        step(&mut cursor, true);
        most = most.max(reads() - std::mem::replace(&mut before, reads()));
    }
    // Neighbours are reads of 64 KiB. Where the first run is begun early there are those of two.
    assert!(most <= 3 * (AHEAD_BYTES_MAX >> 16), "{most} reads for one step");
    assert!(watched.in_flight.load(SeqCst) > 0);
    drop(cursor);
    assert_eq!(watched.in_flight.load(SeqCst), 0, "a cursor that ended has left reads behind");
}

#[test]
fn of_many_scans_eight_have_their_next_run_read_before_it_is_wanted() {
    let (watched, _) = watched(4000, 3000, &mut Random::new(9));
    let standing: Vec<_> = (0..8)
        .map(|_| {
            let mut cursor = cursor_at_start(&watched.db, true);
            (0..2500).for_each(|_| step(&mut cursor, true));
            cursor
        })
        .collect();
    // Devices say what they have after each request of a queue: so far of others.
    let most = || {
        watched.in_flight.store(0, SeqCst);
        let (_, in_flight) = walk(&mut cursor_at_start(&watched.db, true), true, &watched);
        in_flight.into_iter().max().unwrap()
    };
    assert_eq!(most(), 0, "bytes are read early for a ninth scan");
    drop(standing);
    assert!(most() > 0, "none is begun early any more");
}

/// What is overwritten while the next run is under way is not seen by the scan; after a lot of it
/// the scan goes on as a merge of tables.
#[test]
fn a_long_scan_keeps_its_moment_while_its_next_run_is_under_way() {
    for forth in [true, false] {
        for overwritten in [50, 2000] {
            let (watched, then) = watched(5000, 60, &mut Random::new(7));
            let (db, mut state) = (&watched.db, then.clone());
            let snapshot = db.snapshot();
            let mut cursor = cursor_at_start(db, forth);
            let mut met = State::new();
            for _ in 0..2500 {
                met.insert(cursor.key().to_vec(), cursor.value().to_vec());
                step(&mut cursor, forth);
            }
            assert!(watched.in_flight.load(SeqCst) > 0);
            for number in 0..overwritten {
                put(db, &mut state, number * 2, vec![7; 40]);
                put(db, &mut state, 4999 - number * 2, vec![8; 40]);
            }
            (2400..2600).for_each(|number| {
                db.delete(key(number)).unwrap();
                state.remove(&key(number));
            });
            db.flush().unwrap();
            db.settle().unwrap();
            db.compact_range(None, None, &mut |_| {}).unwrap();
            met.extend(walk(&mut cursor, forth, &watched).0);
            assert!(met == then, "{} of {} records", met.len(), then.len());
            assert!(scanned(&snapshot) == then);
            let mut now = cursor_at_start(db, forth);
            assert!(walk(&mut now, forth, &watched).0 == state);
        }
    }
}

fn scanned(snapshot: &Snapshot) -> State {
    let record = |found: thermocline::Result<(_, _)>| {
        let (key, value): (bytes::Bytes, bytes::Bytes) = found.unwrap();
        (key.to_vec(), value.to_vec())
    };
    snapshot.scan().into_iter().map(record).collect()
}

/// What cannot be read is told when the scan comes to it, and not before; a cursor that turns or
/// goes elsewhere does not hear of it.
#[test]
fn what_cannot_be_read_of_the_next_run_is_told_when_the_scan_comes_to_it() {
    for turns in [true, false] {
        let (watched, _) = watched(6000, 60, &mut Random::new(8));
        let mut cursor = cursor_at_start(&watched.db, true);
        while watched.in_flight.load(SeqCst) == 0 {
            step(&mut cursor, true);
        }
        // The run after the one that is under way now cannot be read.
        let from = cursor.key().to_vec();
        watched.fails.store(true, SeqCst);
        let (mut steps, mut error) = (0, None);
        while error.is_none() {
            error = cursor.next().err();
            steps += 1;
            if turns && steps == 3 * RUN_KEYS / 2 {
                break;
            }
        }
        watched.fails.store(false, SeqCst);
        if turns {
            cursor.seek(&from).unwrap();
            assert_eq!(cursor.key(), from);
        } else {
            let error = error.unwrap().to_string();
            assert!(error.contains("the device is gone"), "{error}");
            assert!((2 * RUN_KEYS - 2..=2 * RUN_KEYS + 2).contains(&steps), "{steps} steps");
        }
    }
}
