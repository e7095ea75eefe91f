//! Conditional writes: what each does with a key wherever its record lies, and that of callers at
//! the same time exactly those are told that they wrote which did.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "threads of the test's own, which it joins")]

#[path = "guards/patience.rs"]
mod patience;

use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Durability, Environment, ErrorKind, Preset, Settings, Stepper, Swap, Tier,
    Workers,
};
use thermocline_device::MemoryDevices;

const PRESETS: [Preset; 2] = [Preset::Leveled, Preset::Hybrid];

fn settings(preset: Preset) -> Settings {
    let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
    let tiers = match preset {
        Preset::Leveled | Preset::Indexed => vec![tier("/tier", 64)],
        Preset::Hybrid => vec![tier("/fast", 16), tier("/slow", 64)],
    };
    let (preset, memory) = (Some(preset), ByteSize::mib(1));
    Settings { preset, tiers, memory, durability: Durability::Buffered, ..Settings::default() }
}

/// A store whose background work waits to be stepped.
fn stepped(preset: Preset) -> Db {
    let environment = Environment {
        devices: Arc::new(MemoryDevices::default()),
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        clock: Arc::new(patience::PatientClock::default()),
        ..Environment::default()
    };
    environment.create(Path::new("/home"), &settings(preset)).unwrap()
}

/// A store with threads of its own.
fn threaded(preset: Preset) -> Db {
    let devices = Arc::new(MemoryDevices::default());
    let environment = Environment { devices, ..Environment::default() };
    environment.create(Path::new("/home"), &settings(preset)).unwrap()
}

/// What is done with a key, and what then is found: whether it was written, and its value.
type Case = (&'static str, fn(&Db, &str) -> Swap);

const CASES: [Case; 7] = [
    ("put if absent", |db, key| told(db, key, db.put_if_absent(key, "new").unwrap())),
    ("put if present", |db, key| told(db, key, db.put_if_present(key, "new").unwrap())),
    ("swap nothing", |db, key| db.compare_and_swap(key, None, Some(b"new")).unwrap()),
    ("swap the value", |db, key| db.compare_and_swap(key, Some(b"old"), Some(b"new")).unwrap()),
    ("swap another", |db, key| db.compare_and_swap(key, Some(b"odd"), Some(b"new")).unwrap()),
    ("delete the value", |db, key| db.compare_and_swap(key, Some(b"old"), None).unwrap()),
    ("delete nothing", |db, key| db.compare_and_swap(key, None, None).unwrap()),
];

fn told(db: &Db, key: &str, wrote: bool) -> Swap {
    if wrote { Swap::Swapped } else { Swap::Found(db.get(key).unwrap()) }
}

/// What each case must do with a key that is there, and with one that is not: whether it writes,
/// and what the key has then.
fn expected(case: &str, is_there: bool) -> (bool, Option<&'static str>) {
    match (case, is_there) {
        ("put if absent" | "swap nothing", false) => (true, Some("new")),
        ("put if present" | "swap the value", true) => (true, Some("new")),
        ("delete the value", true) | ("delete nothing", false) => (true, None),
        (_, true) => (false, Some("old")),
        (_, false) => (false, None),
    }
}

/// Moves what was written before to where a place is.
fn compact(db: &Db) {
    db.compact_range(None, None, &mut |_| {}).unwrap();
}

/// The memtable is full with this, so the next write begins another and leaves it frozen.
fn freeze(db: &Db) {
    db.put("filler", vec![7; 400 << 10]).unwrap();
}

/// A place, what is done to the keys in one batch each, and what moves them.
type Place = (&'static str, bool, fn(&Db, &[String]));

fn put_all(db: &Db, keys: &[String]) {
    keys.iter().for_each(|key| db.put(key, "old").unwrap());
}

fn delete_all(db: &Db, keys: &[String]) {
    keys.iter().for_each(|key| db.delete(key).unwrap());
}

const PLACES: [Place; 9] = [
    ("nowhere", false, |_, _| {}),
    ("memtable", true, put_all),
    ("frozen memtable", true, |db, keys| {
        put_all(db, keys);
        freeze(db);
    }),
    ("slot or level 0", true, |db, keys| {
        put_all(db, keys);
        db.flush().unwrap();
    }),
    ("table", true, |db, keys| {
        put_all(db, keys);
        db.flush().unwrap();
        compact(db);
    }),
    ("deleted in memory", false, |db, keys| {
        put_all(db, keys);
        db.flush().unwrap();
        delete_all(db, keys);
    }),
    ("deleted below", false, |db, keys| {
        put_all(db, keys);
        db.flush().unwrap();
        compact(db);
        delete_all(db, keys);
        db.flush().unwrap();
    }),
    ("deleted and merged away", false, |db, keys| {
        put_all(db, keys);
        delete_all(db, keys);
        db.flush().unwrap();
        compact(db);
    }),
    ("bulk load", true, |db, keys| {
        let mut sorted = keys.to_vec();
        sorted.sort();
        let mut ingest = db.ingest();
        sorted.iter().for_each(|key| ingest.add(key, "old").unwrap());
        ingest.finish().unwrap();
    }),
];

#[test]
fn a_condition_is_judged_by_the_newest_record_wherever_it_lies() {
    for preset in PRESETS {
        for (place, is_there, bring) in PLACES {
            let db = stepped(preset);
            let keys: Vec<_> = CASES.iter().map(|(case, _)| format!("{place}, {case}")).collect();
            bring(&db, &keys);
            for ((case, act), key) in CASES.iter().zip(&keys) {
                let before = db.snapshot().sequence();
                let swap = act(&db, key);
                let (writes, then) = expected(case, is_there);
                let found = db.get(key).unwrap();
                assert_eq!(swap == Swap::Swapped, writes, "{preset:?}, {key}");
                assert_eq!(found.as_deref(), then.map(str::as_bytes), "{preset:?}, {key}");
                if let Swap::Found(told) = swap {
                    assert_eq!(told, found, "{preset:?}, {key}");
                    assert_eq!(db.snapshot().sequence(), before, "a refusal writes nothing");
                }
            }
        }
    }
}

#[test]
fn a_key_or_value_over_its_limit_is_refused_before_anything_is_read() {
    let db = stepped(Preset::Leveled);
    let error = db.put_if_present(vec![0; 70_000], "new").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("65536"), "{error}");
}

/// Runs `body` in so many threads, and says what each returned.
fn together<T: Send + 'static>(
    db: &Db,
    threads: u64,
    body: impl Fn(&Db, u64) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let body = Arc::new(body);
    let spawn = |thread| {
        let (db, body) = (db.clone(), Arc::clone(&body));
        std::thread::spawn(move || body(&db, thread))
    };
    let threads: Vec<_> = (0..threads).map(spawn).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()))
}

#[test]
fn a_counter_that_threads_swap_loses_no_step() {
    const STEPS: u64 = 300;
    for preset in PRESETS {
        let db = threaded(preset);
        let flusher = |db: &Db, thread: u64| {
            let mut before = db.get("counter").unwrap();
            for step in 0..STEPS {
                if thread == 0 && step % 20 == 0 {
                    // What the others have read leaves memory under them.
                    db.flush().unwrap();
                }
                loop {
                    let next = (number(before.as_deref()) + 1).to_be_bytes();
                    match db.compare_and_swap("counter", before.as_deref(), Some(&next)).unwrap() {
                        Swap::Swapped => before = Some(next.to_vec().into()),
                        Swap::Found(found) => {
                            before = found;
                            continue;
                        }
                    }
                    break;
                }
            }
        };
        together(&db, 4, flusher);
        assert_eq!(number(db.get("counter").unwrap().as_deref()), 4 * STEPS, "{preset:?}");
    }
}

#[test]
fn of_those_that_put_if_absent_at_the_same_time_one_does() {
    for preset in PRESETS {
        let db = threaded(preset);
        let wins = together(&db, 4, |db, thread| {
            let put = |round: &u64| db.put_if_absent(round.to_be_bytes(), [thread as u8]).unwrap();
            (0..400u64).filter(put).collect::<Vec<_>>()
        });
        for (thread, won) in wins.iter().enumerate() {
            for round in won {
                let found = db.get(round.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&[thread as u8][..]), "{preset:?}");
            }
        }
        assert_eq!(wins.iter().map(Vec::len).sum::<usize>(), 400, "{preset:?}");
    }
}
