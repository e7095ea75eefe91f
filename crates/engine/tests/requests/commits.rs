//! Transactions that commit asynchronously: what their tickets say, and what they hold until then.

use crate::executors::block_on;
use crate::support::*;
use thermocline::{
    Db, Duration, Error, ErrorKind, Isolation, Locking, Result, Sequence, Settings, Ticket,
    Transaction, TransactionOptions,
};
use thermocline_foundation::threads;

fn pessimistic() -> TransactionOptions {
    // Where a wait for a lock is a mistake of the store, the test waits for ever.
    let lock_timeout = Some(Duration::ms(600_000));
    TransactionOptions { locking: Locking::Pessimistic, lock_timeout, ..Default::default() }
}

fn number(value: Option<bytes::Bytes>) -> u32 {
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

fn handed_in(transaction: Transaction) -> Ticket<Sequence> {
    transaction.commit_async().map_err(|(_, error)| error).unwrap()
}

/// One more, by a transaction that is run again until no other comes first.
async fn add_one(db: &Db, key: &str) -> Result<Sequence> {
    loop {
        let mut transaction = db.transaction(TransactionOptions::default());
        let now = number(transaction.get(key)?);
        transaction.put(key, (now + 1).to_string())?;
        let ticket = loop {
            match transaction.commit_async() {
                Ok(ticket) => break ticket,
                Err((back, error)) if error.kind() == ErrorKind::Busy => {
                    db.has_room().await;
                    transaction = back;
                }
                Err((_, error)) => return Err(error),
            }
        };
        match ticket.await {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            answer => return answer,
        }
    }
}

const TASKS: u32 = 6;
const ROUNDS: u32 = 40;

async fn serve(db: Db) -> Result<Sequence> {
    let mut last = Sequence(0);
    for round in 0..ROUNDS {
        let sequence = add_one(&db, "counter").await?;
        assert!(sequence > last, "a commit comes after the one before it");
        last = sequence;
        if round % 16 == 15 {
            // What others build on leaves memory: they look at tables and slots.
            db.flush()?;
        }
    }
    Ok(last)
}

/// A store with so little room that tasks wait for it.
fn store(preset: usize) -> Db {
    Devices::default().create(&Settings { request_queue: 3, ..settings(PRESETS[preset]) })
}

fn check(db: Db, counted: u32) {
    assert_eq!(number(db.get("counter").unwrap()), counted);
    assert_eq!(db.stats().requests.held, 0);
    assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
    db.close().unwrap();
}

#[test]
fn tokio_drives_commits_on_one_thread_and_on_several() {
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for (at, runtime) in [one, several].into_iter().enumerate() {
        let db = store(at);
        let tasks: Vec<_> = (0..TASKS).map(|_| runtime.spawn(serve(db.clone()))).collect();
        for task in tasks {
            runtime.block_on(task).unwrap().unwrap();
        }
        check(db, TASKS * ROUNDS);
    }
}

#[test]
fn smol_drives_commits() {
    let db = store(1);
    let tasks: Vec<_> = (0..TASKS).map(|_| smol::spawn(serve(db.clone()))).collect();
    for task in tasks {
        smol::block_on(task).unwrap();
    }
    check(db, TASKS * ROUNDS);
}

#[test]
fn a_loop_with_a_waker_drives_commits() {
    let db = store(0);
    block_on(serve(db.clone())).unwrap();
    check(db, ROUNDS);
}

#[test]
fn a_ticket_says_the_sequence_and_a_conflict() {
    for preset in PRESETS {
        for flushes in [false, true] {
            let db = Devices::default().create(&settings(preset));
            db.put("other", "0").unwrap();
            let mut first = db.transaction(TransactionOptions::default());
            let mut second = db.transaction(TransactionOptions::default());
            first.put("key", "1").unwrap();
            second.put("key", "2").unwrap();
            let sequence = answer(handed_in(first)).unwrap();
            assert_eq!(sequence, db.snapshot().sequence());
            if flushes {
                db.flush().unwrap();
            }
            let error = answer(handed_in(second)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.to_string().contains("run the transaction again"), "{error}");
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(db.snapshot().sequence(), sequence, "it has used none");
            assert_eq!(db.stats().requests.looks, u64::from(flushes), "a device says it");
            check_nothing_is_held(db);
        }
    }
}

fn check_nothing_is_held(db: Db) {
    assert_eq!(db.stats().requests.held, 0);
    assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
    // The error of a database that something holds.
    db.close().unwrap();
}

#[test]
fn one_that_wrote_nothing_has_its_answer_at_once() {
    let db = Devices::default().create(&settings(PRESETS[0]));
    db.put("key", "value").unwrap();
    let transaction = db.transaction(TransactionOptions::default());
    db.put("key", "later").unwrap();
    assert_eq!(transaction.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    let mut ticket = handed_in(transaction);
    assert_eq!(ticket.poll_now().unwrap().unwrap(), Sequence(1));
    assert_eq!(db.stats().requests.threads, 0);
    check_nothing_is_held(db);
}

#[test]
fn dropping_the_ticket_cancels_nothing_and_leaves_nothing() {
    for preset in PRESETS {
        for options in [TransactionOptions::default(), pessimistic()] {
            let devices = Devices::default();
            let db = devices.create(&settings(preset));
            devices.syncs(Met::Wait);
            for key in 0..20_u8 {
                let mut transaction = db.transaction(options.clone());
                transaction.put([key], "value").unwrap();
                drop(handed_in(transaction));
                if options.locking == Locking::Pessimistic {
                    // The next one begins once nothing is in flight.
                    devices.syncs(Met::Nothing);
                }
            }
            devices.syncs(Met::Nothing);
            until("commits of tickets that are gone", || db.stats().requests.held == 0);
            assert_eq!(db.scan().into_iter().filter(Result::is_ok).count(), 20);
            check_nothing_is_held(db);
        }
    }
}

#[test]
fn a_full_queue_gives_the_transaction_back_as_it_was() {
    let devices = Devices::default();
    let db = devices.create(&Settings { request_queue: 1, ..settings(PRESETS[0]) });
    devices.syncs(Met::Wait);
    let first = db.put_async("first", "value").unwrap();
    let mut transaction = db.transaction(TransactionOptions::default());
    transaction.put("key", "1").unwrap();
    let savepoint = transaction.savepoint();
    transaction.put("key", "2").unwrap();
    let (mut transaction, error) = transaction.commit_async().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(transaction.get("key").unwrap().as_deref(), Some(&b"2"[..]));
    transaction.rollback_to(savepoint).unwrap();
    devices.syncs(Met::Nothing);
    answer(first).unwrap();
    answer(handed_in(transaction)).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"1"[..]));
    check_nothing_is_held(db);
}

/// Writes that wait for the locks of a transaction keep their order, and do not keep it from its
/// commit, however many groups they come in.
#[test]
fn a_commit_passes_the_writes_that_wait_for_its_locks() {
    for preset in PRESETS {
        let db = Devices::default().create(&settings(preset));
        for round in 0..10_u32 {
            let mut transaction = db.transaction(pessimistic());
            let before = number(transaction.get_for_update("key").unwrap());
            assert_eq!(before, round * 100);
            let mut behind = Vec::new();
            for number in 1..=20 {
                let value = (round * 100 + 80 + number).to_string();
                behind.push(insist(|| db.put_async("key", &value)));
                behind.push(insist(|| db.put_async(&value, &value)));
                if number % 4 == 0 {
                    // In several groups, or what would be several groups.
                    until("writes that wait", || db.stats().requests.waiting_writes > 0);
                }
            }
            transaction.put("key", (before + 1).to_string()).unwrap();
            answer(handed_in(transaction)).unwrap();
            for ticket in behind {
                answer(ticket).unwrap();
            }
            assert_eq!(number(db.get("key").unwrap()), round * 100 + 100, "the last one stays");
        }
        check_nothing_is_held(db);
    }
}

/// The writes fill the queue, and wait for what only the commit gives back.
#[test]
fn a_commit_with_locks_is_admitted_past_the_writes_that_wait_for_them() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&Settings { request_queue: 1, ..settings(preset) });
        let [mut one, mut two] = [(); 2].map(|()| db.transaction(pessimistic()));
        one.put("one", "held").unwrap();
        two.put("two", "held").unwrap();
        let behind = db.put_async("two", "behind").unwrap();
        until("a write that is set aside", || db.stats().requests.threads == 2);
        let error = db.put_async("other", "value").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        let text = error.to_string();
        assert!(text.contains("wait, 1 of them for locks that transactions hold"), "{text}");
        devices.syncs(Met::Wait);
        let first = handed_in(one);
        devices.wait_until_held();
        let (two, error) = two.commit_async().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.to_string().contains("Transaction::has_room"), "{error}");
        devices.syncs(Met::Nothing);
        block_on(two.has_room());
        let second = handed_in(two);
        answer(first).unwrap();
        answer(second).unwrap();
        answer(behind).unwrap();
        assert_eq!(db.get("two").unwrap().as_deref(), Some(&b"behind"[..]));
        check_nothing_is_held(db);
    }
}

#[test]
fn a_second_pessimistic_transaction_begins_beside_writes_that_are_on_their_way() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        let first = db.transaction(pessimistic());
        devices.syncs(Met::Wait);
        let write = db.put_async("other", "value").unwrap();
        devices.wait_until_held();
        let mut second = db.transaction(pessimistic());
        assert_eq!(db.stats().requests.held, 1, "it has not waited for the write");
        second.put("key", "value").unwrap();
        devices.syncs(Met::Nothing);
        second.commit().unwrap();
        answer(write).unwrap();
        drop(first);
        check_nothing_is_held(db);
    }
}

/// One thread does all: a commit that waited behind a write would wait for itself.
#[test]
fn an_optimistic_commit_waits_for_the_locks_of_a_pessimistic_one() {
    let db = Devices::default().create(&settings(PRESETS[1]));
    let mut holds = db.transaction(pessimistic());
    holds.put("key", "held").unwrap();
    let mut other = db.transaction(TransactionOptions {
        isolation: Isolation::ReadCommitted,
        lock_timeout: Some(Duration::ms(600_000)),
        ..Default::default()
    });
    other.put("key", "other").unwrap();
    let mut waits = handed_in(other);
    until("a write that is set aside", || db.stats().requests.threads == 2);
    assert!(waits.poll_now().is_none());
    let held = answer(handed_in(holds)).unwrap();
    assert!(answer(waits).unwrap() > held);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"other"[..]));
    let mut holds = db.transaction(pessimistic());
    holds.put("key", "held").unwrap();
    let impatient =
        TransactionOptions { lock_timeout: Some(Duration::ms(1)), ..Default::default() };
    let mut other = db.transaction(impatient);
    other.put("key", "other").unwrap();
    let error = answer(handed_in(other)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LockTimeout, "{error}");
    drop(holds);
    check_nothing_is_held(db);
}

#[test]
fn a_failing_device_answers_every_commit_with_its_error() {
    for (preset, met, says) in
        [(PRESETS[0], Met::Failure, "Sync of"), (PRESETS[1], Met::Panic, "panicked")]
    {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        db.put("before", "value").unwrap();
        devices.syncs(Met::Wait);
        let tickets: Vec<_> = (0..20_u8)
            .map(|key| {
                let mut transaction = db.transaction(TransactionOptions::default());
                transaction.put([key], "value").unwrap();
                handed_in(transaction)
            })
            .collect();
        devices.wait_until_held();
        let mut late = db.transaction(TransactionOptions::default());
        late.put("late", "value").unwrap();
        devices.syncs(met);
        for ticket in tickets {
            let error = answer(ticket).unwrap_err();
            assert!(error.to_string().contains(says), "{met:?}: {error}");
        }
        let (late, error) = late.commit_async().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert_eq!(late.get("late").unwrap().as_deref(), Some(&b"value"[..]));
        drop(late);
        devices.syncs(Met::Nothing);
        assert_eq!(db.stats().requests.held, 0);
        assert!(db.close().is_err());
        devices.open().close().unwrap();
    }
}

/// Commits and writes in every line there is, when the database is closed.
#[test]
fn closing_carries_out_commits_and_what_waits_for_their_locks() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        db.put("old", "value").unwrap();
        let mut to_be_looked_at = db.transaction(TransactionOptions::default());
        to_be_looked_at.put("old", "newer").unwrap();
        db.flush().unwrap();
        let mut holds = db.transaction(pessimistic());
        holds.put("key", "held").unwrap();
        devices.syncs(Met::Wait);
        let behind = ["1", "2"].map(|value| db.put_async("key", value).unwrap());
        let tickets = [to_be_looked_at, holds].map(handed_in);
        let closing = threads::spawn("closing", move || db.close()).unwrap();
        devices.syncs(Met::Nothing);
        closing.join().unwrap().unwrap();
        for mut ticket in tickets {
            ticket.poll_now().expect("answered before it is closed").unwrap();
        }
        for mut ticket in behind {
            ticket.poll_now().expect("answered before it is closed").unwrap();
        }
        let db = devices.open();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(db.get("old").unwrap().as_deref(), Some(&b"newer"[..]));
        db.close().unwrap();
    }
}

#[test]
fn a_closed_database_gives_the_transaction_back() {
    let db = Devices::default().create(&settings(PRESETS[0]));
    let mut transaction = db.transaction(TransactionOptions::default());
    transaction.put("key", "value").unwrap();
    let other = db.clone();
    db.close().unwrap();
    let refused: (Transaction, Error) = transaction.commit_async().unwrap_err();
    assert_eq!(refused.1.kind(), ErrorKind::ReadOnly);
    drop(refused);
    other.close().unwrap();
}
