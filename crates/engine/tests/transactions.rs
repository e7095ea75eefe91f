//! Transactions: the anomalies of each isolation level as scripts, and what users may build on.
//!
//! A script (`scripts/transactions`) begins with a comment and records, then has steps with what
//! comes of each: in one cell where that is always the same, or in a cell for each locking (`o:`
//! optimistic, `p:` pessimistic) and level, as the head names them. A step is `NAME begin`,
//! `NAME get KEY`, `NAME put KEY VALUE` and so on for a transaction, or `get KEY` without one.
//! After an error a transaction is dropped, and its later steps are `-`. `locked` is a wait, which
//! would go on until the holder ends.
//!
//! All scripts run in both presets, with records in memory and with everything flushed after each
//! step, and the outcome is the same. `THERMOCLINE_BLESS=1` writes the cells anew.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "scripts are the tests' own files")]

#[path = "reliability/hooked.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod hooked;
#[path = "guards/patience.rs"]
mod patience;
#[path = "transactions/runner.rs"]
mod runner;

use bytes::Bytes;
use hooked::{Call, HookedDevices};
use runner::{PRESETS, check, settings, stepped, stepped_with};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use thermocline::{
    ByteSize, Db, Duration, Environment, ErrorKind, Isolation, Locking, Preset, Settings,
    Transaction, TransactionOptions,
};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::Random;

/// A store with threads of its own.
fn threaded(preset: Preset) -> Db {
    threaded_with(&settings(preset))
}

fn threaded_with(settings: &Settings) -> Db {
    let devices = Arc::new(MemoryDevices::default());
    let environment = Environment { devices, ..Environment::default() };
    environment.create(Path::new("/home"), settings).unwrap()
}

const LEVELS: [Isolation; 3] =
    [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];

#[test]
fn a_dirty_write_is_at_no_level() {
    check("dirty_write");
}

#[test]
fn a_dirty_read_is_at_no_level() {
    check("dirty_read");
}

#[test]
fn a_fuzzy_read_is_at_read_committed_alone() {
    check("fuzzy_read");
}

#[test]
fn a_phantom_is_at_read_committed_alone_and_no_serializable_write_builds_on_one() {
    check("phantom");
}

#[test]
fn an_update_is_lost_at_read_committed_alone_and_not_where_it_was_read_for_that() {
    check("lost_update");
    check("lost_update_read_for_update");
}

#[test]
fn writes_skew_unless_serializable_or_read_for_update() {
    check("write_skew");
    check("write_skew_read_for_update");
}

#[test]
fn a_read_only_transaction_sees_an_order_that_is_none_unless_serializable() {
    check("read_only_anomaly");
}

fn serializable() -> TransactionOptions {
    TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() }
}

fn text(records: impl IntoIterator<Item = thermocline::Result<(Bytes, Bytes)>>) -> String {
    let text =
        |(key, value): (Bytes, Bytes)| format!("{}={}", key.escape_ascii(), value.escape_ascii());
    let texts = records.into_iter().map(|record| text(record.unwrap()));
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_transaction_sees_its_own_writes_and_others_see_none_until_all() {
    for preset in PRESETS {
        let db = stepped(preset);
        for key in ["b", "d", "f", "h"] {
            db.put(key, "0").unwrap();
        }
        db.flush().unwrap();
        let mut of = db.transaction(TransactionOptions::default());
        of.put("a", "1").unwrap();
        of.put("d", "1").unwrap();
        of.delete("f").unwrap();
        of.put("g", "1").unwrap();
        of.put("i", "1").unwrap();
        of.delete("i").unwrap();
        let found = of.multi_get(&["a", "b", "d", "f", "x"]).unwrap();
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        assert_eq!(found, [Some(&b"1"[..]), Some(b"0"), Some(b"1"), None, None]);
        assert_eq!(text(of.scan()), "a=1 b=0 d=1 g=1 h=0");
        assert_eq!(text(of.scan().reverse()), "h=0 g=1 d=1 b=0 a=1");
        assert_eq!(text(of.scan().from("b").to("g").limit(1)), "b=0");
        assert_eq!(text(of.scan().from("c").to("h").reverse()), "g=1 d=1");
        assert_eq!(text(of.scan().prefix("f")), "");
        assert_eq!(text(of.scan().range(b"g".to_vec()..=b"h".to_vec())), "g=1 h=0");
        let begun = of.scan();
        of.put("b", "2").unwrap();
        assert_eq!(text(begun.limit(2)), "a=1 b=0", "a scan is of the moment that it was made");
        assert_eq!(text(db.scan()), "b=0 d=0 f=0 h=0");
        let before = db.snapshot().sequence();
        let sequence = of.commit().unwrap();
        assert_eq!(sequence.0, before.0 + 6, "one for each key");
        assert_eq!(text(db.scan()), "a=1 b=2 d=1 g=1 h=0", "{preset:?}");
    }
}

#[test]
fn a_transaction_that_is_dropped_or_taken_back_has_changed_nothing() {
    let db = stepped(Preset::Leveled);
    db.put("a", "0").unwrap();
    let before = db.snapshot().sequence();
    let mut dropped = db.transaction(TransactionOptions::default());
    dropped.put("a", "1").unwrap();
    drop(dropped);
    let mut other = db.transaction(TransactionOptions::default());
    let foreign = other.savepoint();
    let mut of = db.transaction(TransactionOptions::default());
    let start = of.savepoint();
    of.put("a", "1").unwrap();
    assert_eq!(of.rollback_to(foreign).unwrap_err().kind(), ErrorKind::Invalid);
    of.rollback_to(start).unwrap();
    assert_eq!(of.get("a").unwrap().as_deref(), Some(&b"0"[..]));
    of.put("b", "1").unwrap();
    of.rollback_to(start).unwrap();
    assert_eq!(of.commit().unwrap(), before, "nothing was left to write");
    assert_eq!((text(db.scan()), db.snapshot().sequence()), ("a=0".to_owned(), before));
}

#[test]
fn a_write_over_the_limit_is_refused_and_what_was_there_commits() {
    let db = stepped(Preset::Leveled);
    let bytes_max = Some(ByteSize::mib(1));
    let mut of = db.transaction(TransactionOptions { bytes_max, ..serializable() });
    of.put("a", "1").unwrap();
    let place = of.savepoint();
    of.put("b", vec![0; 900 << 10]).unwrap();
    let error = of.put("c", vec![0; 200 << 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("1 MiB"), "{error}");
    of.rollback_to(place).unwrap();
    of.put("c", "1").unwrap();
    of.commit().unwrap();
    assert_eq!(text(db.scan()), "a=1 c=1");
}

#[test]
fn a_transaction_without_limits_of_its_own_has_those_of_the_settings() {
    let (lock_timeout, transaction_bytes_max) = (Duration::ms(0), ByteSize::kib(4));
    let leveled = settings(Preset::Leveled);
    let db = stepped_with(&Settings { lock_timeout, transaction_bytes_max, ..leveled });
    let mut of = db.transaction(TransactionOptions::default());
    of.put("a", "1").unwrap();
    let error = of.put("b", vec![0; 4 << 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("transaction_bytes_max"), "{error}");
    of.commit().unwrap();
    let bytes_max = Some(ByteSize::mib(1));
    let mut wide = db.transaction(TransactionOptions { bytes_max, ..serializable() });
    wide.put("b", vec![0; 4 << 10]).unwrap();
    let pessimistic = || TransactionOptions { locking: Locking::Pessimistic, ..serializable() };
    let mut holder = db.transaction(pessimistic());
    holder.put("a", "2").unwrap();
    let timed_out = |result: thermocline::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::LockTimeout);
    };
    timed_out(db.put("a", "3"));
    timed_out(db.put_if_present("a", "3").map(drop));
    timed_out(db.transaction(pessimistic()).put("a", "3"));
    timed_out(db.put_async("a", "3").unwrap().wait());
    holder.commit().unwrap();
    assert_eq!(text(db.scan().prefix("a")), "a=2");
}

/// Whether a serializable transaction that has read so commits after `other`.
fn commits(
    preset: Preset,
    read: impl Fn(&mut Transaction),
    other: impl Fn(&Db),
) -> thermocline::Result<()> {
    let db = stepped(preset);
    for key in ["b", "d", "f", "h"] {
        db.put(key, "0").unwrap();
    }
    let mut of = db.transaction(serializable());
    read(&mut of);
    of.put("sum", "1").unwrap();
    other(&db);
    of.commit().map(drop)
}

#[test]
fn a_range_that_was_read_is_what_a_scan_went_through() {
    type Read = fn(&mut Transaction);
    #[rustfmt::skip]
    let table: [(&str, Read, &str, bool); 11] = [
        // what is read, what another then writes, whether the commit goes through
        ("all",                 |of| drop(text(of.scan())), "c", false),
        ("all of b..f",         |of| drop(text(of.scan().from("b").to("f"))), "f", true),
        ("all of b..f",         |of| drop(text(of.scan().from("b").to("f"))), "e", false),
        ("the first two",       |of| drop(text(of.scan().limit(2))), "e", true),
        ("the first two",       |of| drop(text(of.scan().limit(2))), "c", false),
        ("the last two",        |of| drop(text(of.scan().to("i").reverse().limit(2))), "e", true),
        ("the last two",        |of| drop(text(of.scan().to("i").reverse().limit(2))), "g", false),
        ("none of a scan",      |of| drop(of.scan().into_iter()), "c", true),
        ("a scan not yet ended", |of| std::mem::forget(of.scan().into_iter()), "c", false),
        ("what is not there",   |of| drop(of.get("x").unwrap()), "x", false),
        ("its own write",       |of| drop((of.put("c", "1"), of.get("c").unwrap())), "d", true),
    ];
    for preset in PRESETS {
        for (name, read, written, expected) in table {
            for flushes in [false, true] {
                let committed = commits(preset, read, |db| {
                    db.put(written, "1").unwrap();
                    if flushes {
                        db.flush().unwrap();
                        db.compact_range(None, None, &mut |_| {}).unwrap();
                    }
                });
                let text = format!("{name}, then {written}, {preset:?}, flushed: {flushes}");
                match committed {
                    Ok(()) => assert!(expected, "{text}: it went through"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{text}: {error}");
                        assert!(!expected, "{text}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_range_with_more_entries_than_the_leader_looks_at_is_decided_too() {
    for preset in PRESETS {
        for conflicts in [false, true] {
            let read = |of: &mut Transaction| drop(text(of.scan().prefix("p")));
            let committed = commits(preset, read, |db| {
                for number in 0..5000 {
                    db.put(format!("q{number:05}"), "1").unwrap();
                }
                if conflicts {
                    db.put("p99999", "1").unwrap();
                }
            });
            assert_eq!(committed.is_err(), conflicts, "{preset:?}");
            // A range that has them all itself, none of them newer.
            let db = stepped(preset);
            (0..5000).for_each(|number| db.put(format!("p{number:05}"), "1").unwrap());
            let mut of = db.transaction(serializable());
            assert_eq!(of.scan().prefix("p").into_iter().count(), 5000);
            of.put("sum", "5000").unwrap();
            db.put("q", "1").unwrap();
            if conflicts {
                db.delete("p04999").unwrap();
            }
            assert_eq!(of.commit().is_err(), conflicts, "{preset:?}");
        }
    }
}

#[test]
fn a_key_that_was_deleted_and_merged_away_is_a_conflict_for_its_reader() {
    for preset in PRESETS {
        for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
            let db = stepped(preset);
            db.put("a", "1").unwrap();
            db.flush().unwrap();
            let options = TransactionOptions { isolation, ..TransactionOptions::default() };
            let mut of = db.transaction(options);
            assert!(of.get_for_update("a").unwrap().is_some());
            of.put("b", "1").unwrap();
            db.delete("a").unwrap();
            db.flush().unwrap();
            db.compact_range(None, None, &mut |_| {}).unwrap();
            assert_eq!(of.commit().unwrap_err().kind(), ErrorKind::Conflict, "{preset:?}");
        }
    }
}

#[test]
fn a_store_that_is_closed_says_that_a_transaction_holds_it() {
    let db = stepped(Preset::Leveled);
    let of = db.transaction(TransactionOptions::default());
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("1 transaction of it"), "{error}");
    drop(of);
}

const ACCOUNTS: u64 = 8;

fn balance(value: Option<Bytes>) -> i64 {
    value.map_or(100, |value| i64::from_be_bytes(value[..].try_into().unwrap()))
}

/// Moves one from an account to another in a transaction, again until it commits.
fn transfer(db: &Db, options: &TransactionOptions, (from, to): (u64, u64)) {
    let attempt = || {
        let mut of = db.transaction(options.clone());
        for (account, step) in [(from, -1), (to, 1)] {
            let key = account.to_be_bytes();
            let before = balance(of.get_for_update(key)?);
            of.put(key, (before + step).to_be_bytes())?;
        }
        of.commit().map(drop)
    };
    loop {
        match attempt() {
            Ok(()) => return,
            Err(error) => match error.kind() {
                ErrorKind::Conflict | ErrorKind::Deadlock => {}
                other => panic!("{other:?}: {error}"),
            },
        }
    }
}

#[test]
fn transfers_of_threads_keep_the_sum_at_every_level_and_with_every_locking() {
    // With more than one log write, conditions meet groups that are on their way.
    for (preset, log_writes) in PRESETS.into_iter().flat_map(|preset| [(preset, 1), (preset, 4)]) {
        let db = Arc::new(threaded_with(&Settings { log_writes, ..settings(preset) }));
        let threads: Vec<_> = (0..6u64)
            .map(|thread| {
                let db = Arc::clone(&db);
                std::thread::spawn(move || {
                    let locking = [Locking::Optimistic, Locking::Pessimistic][thread as usize % 2];
                    let isolation = LEVELS[thread as usize / 2];
                    // No test waits so long: a lock is given back, or a circle is found at once.
                    let lock_timeout = Some(Duration::ms(600_000));
                    let options =
                        TransactionOptions { locking, isolation, lock_timeout, ..serializable() };
                    let mut random = Random::new(thread);
                    for round in 0..200 {
                        let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
                        if from != to {
                            transfer(&db, &options, (from, to));
                        }
                        if round % 50 == thread * 7 {
                            db.flush().unwrap();
                        }
                        // What is not a transaction has its share of the locks.
                        db.put([9, thread as u8], round.to_string()).unwrap();
                        let of = db.transaction(TransactionOptions::default());
                        let keys: Vec<_> = (0..ACCOUNTS).map(u64::to_be_bytes).collect();
                        let sum =
                            of.multi_get(&keys).unwrap().into_iter().map(balance).sum::<i64>();
                        assert_eq!(sum, 100 * ACCOUNTS as i64);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let sum: i64 =
            (0..ACCOUNTS).map(|account| balance(db.get(account.to_be_bytes()).unwrap())).sum();
        assert_eq!(sum, 100 * ACCOUNTS as i64, "{preset:?}, {log_writes} log writes");
    }
}

#[test]
fn plain_writes_wait_for_the_lock_of_their_key_and_a_deadlock_is_told_at_once() {
    for preset in PRESETS {
        let db = Arc::new(threaded(preset));
        let lock_timeout = Some(Duration::ms(600_000));
        let locking = Locking::Pessimistic;
        let isolation = Isolation::ReadCommitted;
        let options = TransactionOptions { locking, isolation, lock_timeout, ..serializable() };
        let mut one = db.transaction(options.clone());
        let mut two = db.transaction(options);
        one.put("a", "one").unwrap();
        two.put("b", "two").unwrap();
        db.put("c", "free").unwrap();
        let waits = std::thread::spawn(move || {
            let taken = one.put("b", "one");
            (taken.is_ok(), one.commit())
        });
        // Whichever of the two waits first, the other closes the circle and is told.
        let second = two.put("a", "two");
        let told = second.is_err();
        if let Err(error) = &second {
            assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
            assert!(error.to_string().contains("drop this transaction"), "{error}");
            drop(two);
        } else {
            two.commit().unwrap();
        }
        let (taken, committed) = waits.join().unwrap();
        assert_eq!(taken, told, "one of them, not both");
        committed.unwrap();
        let writer = if told { "one" } else { "two" };
        assert_eq!(db.get("b").unwrap().as_deref(), Some(writer.as_bytes()));
    }
}

#[test]
fn a_write_without_options_gives_up_after_the_timeout_and_says_how() {
    let db = stepped(Preset::Leveled);
    let locking = Locking::Pessimistic;
    let mut of = db.transaction(TransactionOptions { locking, ..TransactionOptions::default() });
    of.put("a", "1").unwrap();
    let error = db.put("a", "2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockTimeout);
    assert!(error.to_string().contains("lock timeout of 1 s"), "{error}");
    of.commit().unwrap();
    db.put("a", "2").unwrap();
    assert_eq!(text(db.scan()), "a=2");
}

/// Memory has not all that came after the reads of a transaction, so its commit looks at a table.
/// While the device keeps it waiting others write and flush, so that memory has that no more.
#[test]
fn a_look_that_waits_for_its_device_holds_no_writer_up_and_misses_nothing() {
    for conflicts in [false, true] {
        let is_armed = Arc::new(AtomicBool::new(false));
        let (arrived, arrives) = mpsc::channel();
        let (goes_on, may_go_on) = mpsc::channel::<()>();
        let (armed, may_go_on) = (Arc::clone(&is_armed), std::sync::Mutex::new(may_go_on));
        let hook = move |call: Call, _: &Path, name: &str| {
            let is_table = call == Call::Read && name.ends_with(".table");
            if is_table && armed.swap(false, Ordering::SeqCst) {
                arrived.send(()).unwrap();
                may_go_on.lock().unwrap().recv().unwrap();
            }
            Ok(())
        };
        let memory = Arc::new(MemoryDevices::default());
        let devices = Arc::new(HookedDevices::new(memory, Arc::new(hook)));
        let environment = Environment { devices, ..Environment::default() };
        let db = environment.create(Path::new("/home"), &settings(Preset::Leveled)).unwrap();
        let mut of = db.transaction(serializable());
        assert_eq!(of.scan().prefix("p").into_iter().count(), 0);
        of.put("sum", "0").unwrap();
        // Before and behind the range: its part of the table must be read to see that it is empty.
        db.put("o", "1").unwrap();
        db.put("q", "1").unwrap();
        db.flush().unwrap();
        is_armed.store(true, Ordering::SeqCst);
        let committing = std::thread::spawn(move || of.commit());
        arrives.recv().unwrap();
        db.put(if conflicts { "p" } else { "r" }, "1").unwrap();
        db.flush().unwrap();
        goes_on.send(()).unwrap();
        let committed = committing.join().unwrap().map_err(|error| error.kind());
        assert_eq!(committed.err(), conflicts.then_some(ErrorKind::Conflict));
        assert_eq!(db.get("sum").unwrap().is_some(), !conflicts);
    }
}

#[test]
fn stats_count_what_came_second() {
    for preset in PRESETS {
        let db = stepped(preset);
        let counted = || {
            let stats = db.stats().transactions;
            (stats.open_pessimistic, stats.conflicts, stats.deadlocks, stats.lock_timeouts)
        };
        // One that comes first is not counted.
        let mut first = db.transaction(TransactionOptions::default());
        first.put("a", "1").unwrap();
        first.commit().unwrap();
        assert_eq!(counted(), (0, 0, 0, 0), "{preset:?}");
        let overtaken = || {
            let mut of = db.transaction(TransactionOptions::default());
            of.put("a", "2").unwrap();
            db.put("a", "3").unwrap();
            of
        };
        assert_eq!(overtaken().commit().unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(counted(), (0, 1, 0, 0), "{preset:?}");
        let ticket = overtaken().commit_async().map_err(|(_, error)| error).unwrap();
        assert_eq!(ticket.wait().unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(counted(), (0, 2, 0, 0), "{preset:?}");
        let mut late = db.transaction(TransactionOptions::default());
        db.put("a", "4").unwrap();
        assert_eq!(late.get_for_update("a").unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(counted(), (0, 3, 0, 0), "{preset:?}");
        let locking = Locking::Pessimistic;
        let options = TransactionOptions { locking, ..TransactionOptions::default() };
        let mut holder = db.transaction(options);
        holder.put("a", "5").unwrap();
        assert_eq!(db.put("a", "6").unwrap_err().kind(), ErrorKind::LockTimeout);
        assert_eq!(counted(), (1, 3, 0, 1), "{preset:?}");
        drop(holder);
        assert_eq!(counted(), (0, 3, 0, 1), "{preset:?}");
    }
}
