//! Requests where callers carry out the work: the same calls give the same history.

use crate::support::still_clock::StillClock;
use crate::support::{hybrid, one_tier, stepped, stepped_environment};
use crate::{
    ByteSize, Db, Duration, Environment, ErrorKind, Isolation, Locking, Settings, Ticket,
    TransactionOptions,
};
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use thermocline_foundation::Clock;

fn stores() -> [Db; 2] {
    let short = |settings: Settings| Settings { request_queue: 3, ..settings };
    [one_tier(), hybrid()].map(|settings| stepped(&short(settings)))
}

#[test]
fn a_caller_that_waits_carries_out_what_is_before_it_and_no_thread_does() {
    for db in stores() {
        let first = db.put_async("key", "first").unwrap();
        let second = db.put_async("key", "second").unwrap();
        assert_eq!(db.get("key").unwrap(), None, "nothing happens by itself");
        second.wait().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"second"[..]));
        first.wait().unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let mut get = db.get_async("key").unwrap();
        let page = db.scan().page_async(ByteSize::kib(1)).unwrap();
        assert_eq!(get.poll_now().unwrap().unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(page.wait().unwrap().records.len(), 1);
        assert_eq!(db.stats().requests.threads, 0);
        db.close().unwrap();
    }
}

#[test]
fn a_caller_that_waits_for_room_makes_it() {
    for db in stores() {
        let tickets: Vec<_> = (0..3_u8).map(|key| db.put_async([key], "value").unwrap()).collect();
        assert_eq!(db.put_async("more", "value").unwrap_err().kind(), ErrorKind::Busy);
        let mut room = pin!(db.has_room());
        assert!(room.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        let more = db.put_async("more", "value").unwrap();
        tickets.into_iter().for_each(|mut ticket| ticket.poll_now().unwrap().unwrap());
        let more = pin!(more).as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(more.is_ready());
        db.close().unwrap();
    }
}

#[test]
fn writes_pass_the_write_throttle() {
    let db = stepped(&one_tier());
    let put = || db.put_async("key", vec![7; 100_000]).unwrap().wait().unwrap();
    let delayed_s = || db.stats().operations.delayed_s;
    (0..3).for_each(|_| put());
    assert_eq!(delayed_s(), 0.0, "nothing slows writers down");
    db.engine().shared().write_throttle.set_backlog(25);
    (0..3).for_each(|_| put());
    assert!(delayed_s() > 0.0);
    db.close().unwrap();
}

#[test]
fn closing_carries_out_what_no_caller_has_waited_for() {
    for db in stores() {
        let write = db.put_async("key", "value").unwrap();
        let get = db.get_async("key").unwrap();
        db.close().unwrap();
        write.wait().unwrap();
        assert_eq!(get.wait().unwrap().as_deref(), Some(&b"value"[..]), "writes are first");
    }
}

/// What a transaction builds on leaves memory while it is in line: the front sends it back, and a
/// reader looks.
#[test]
fn a_commit_that_memory_cannot_decide_any_more_is_looked_at() {
    for db in stores() {
        for overtaken in [false, true] {
            let mut transaction = db.transaction(TransactionOptions::default());
            transaction.put("key", "value").unwrap();
            db.put(if overtaken { "key" } else { "other" }, "value").unwrap();
            let looks = db.stats().requests.looks;
            let ticket = transaction.commit_async().map_err(|(_, error)| error).unwrap();
            assert_eq!(db.stats().requests.looks, looks, "memory has all");
            db.flush().unwrap();
            let answer = ticket.wait();
            let error = answer.err().map(|error| error.kind());
            assert_eq!(error, overtaken.then_some(ErrorKind::Conflict));
            assert_eq!(db.stats().requests.looks, looks + 1);
        }
        assert_eq!(db.stats().requests.held, 0);
        db.close().unwrap();
    }
}

#[test]
fn writes_without_locks_are_set_aside_and_stay_in_order() {
    for db in stores() {
        let options =
            TransactionOptions { locking: Locking::Pessimistic, ..TransactionOptions::default() };
        let mut transaction = db.transaction(options);
        transaction.put("key", "0").unwrap();
        let first = db.put_async("key", "1").unwrap();
        let second = db.put_async("key", "2").unwrap();
        let commit = transaction.commit_async().map_err(|(_, error)| error).unwrap();
        commit.wait().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"0"[..]), "it goes before them");
        let third = db.put_async("key", "3").unwrap();
        first.wait().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"1"[..]));
        third.wait().unwrap();
        second.wait().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"3"[..]));
        db.close().unwrap();
    }
}

/// The only thread there is must not wait for locks that it holds itself the key to.
#[test]
fn a_commit_that_is_to_be_looked_at_goes_before_writes_that_wait_for_its_locks() {
    for db in stores() {
        let locking = Locking::Pessimistic;
        let mut transaction = db.transaction(TransactionOptions { locking, ..Default::default() });
        transaction.put("key", "0").unwrap();
        let behind = db.put_async("key", "1").unwrap();
        db.flush().unwrap();
        db.put("other", "value").unwrap();
        db.flush().unwrap();
        let commit = transaction.commit_async().map_err(|(_, error)| error).unwrap();
        behind.wait().unwrap();
        assert_eq!(db.stats().requests.looks, 1);
        commit.wait().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"1"[..]));
        db.close().unwrap();
    }
}

fn pessimistic() -> TransactionOptions {
    TransactionOptions { locking: Locking::Pessimistic, ..TransactionOptions::default() }
}

/// Their timeout is one for all. A write that waited for the one before it, and then as long again,
/// would keep this test for ten minutes.
#[test]
fn writes_behind_a_held_key_are_answered_after_one_timeout_however_many_they_are() {
    let lock_timeout = Duration::ms(600_000);
    for settings in [one_tier(), hybrid()] {
        for closes in [false, true] {
            let clock = Arc::new(StillClock::default());
            let environment = Environment { clock: clock.clone(), ..stepped_environment() };
            let settings = Settings { lock_timeout, ..settings.clone() };
            let db = environment.create(Path::new("/home"), &settings).unwrap();
            let mut holds = db.transaction(pessimistic());
            holds.put("key", "held").unwrap();
            let mut other = db.transaction(pessimistic());
            other.put("other", "value").unwrap();
            let mut behind: Vec<Ticket<()>> =
                (0..20).map(|_| db.put_async("key", "behind").unwrap()).collect();
            // Its group sets the others aside.
            other.commit_async().map_err(|(_, error)| error).unwrap().wait().unwrap();
            clock.sleep(lock_timeout.0);
            if closes {
                assert_eq!(db.clone().close().map_err(|error| error.kind()), Ok(()));
            }
            for ticket in &mut behind {
                let error = ticket.poll_now().expect("its time is up").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::LockTimeout, "{error}");
                assert!(error.to_string().contains("timeout of 600 s"), "{error}");
            }
            assert_eq!(db.stats().requests.held, 0);
            drop(holds);
        }
    }
}

#[test]
fn a_page_may_be_as_large_as_a_number_can_say() {
    for db in stores() {
        db.put("key", "value").unwrap();
        let mut pages: Vec<_> = [ByteSize(u64::MAX), ByteSize(1)]
            .map(|bytes_max| db.scan().page_async(bytes_max))
            .into_iter()
            .collect();
        let refused = pages.pop().unwrap().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "it counts for all the bytes there are");
        let page = pages.pop().unwrap().unwrap();
        assert_eq!(page.wait().unwrap().records.len(), 1);
        assert_eq!(db.stats().requests.held_bytes, 0);
        db.close().unwrap();
    }
}

/// The page is read after the commit, or would be: its range is part of what the commit validates.
#[test]
fn a_page_that_is_not_read_yet_counts_as_read_where_a_serializable_transaction_commits() {
    for db in stores() {
        for overtaken in [false, true] {
            let isolation = Isolation::Serializable;
            let options = TransactionOptions { isolation, ..TransactionOptions::default() };
            let mut transaction = db.transaction(options);
            let page = transaction.scan().prefix("range-").page_async(ByteSize::kib(1)).unwrap();
            transaction.put("key", "value").unwrap();
            if overtaken {
                db.put("range-1", "value").unwrap();
            }
            let error = transaction.commit().err().map(|error| error.kind());
            assert_eq!(error, overtaken.then_some(ErrorKind::Conflict));
            assert_eq!(page.wait().unwrap().records.len(), 0, "as of its beginning");
        }
        db.close().unwrap();
    }
}

#[test]
fn a_transaction_that_may_hold_more_than_a_batch_is_told_with_its_first_write() {
    let db = stepped(&one_tier());
    let bytes_max = Some(ByteSize::mib(257));
    let options = TransactionOptions { bytes_max, ..TransactionOptions::default() };
    let mut transaction = db.transaction(options);
    let error = transaction.put("key", "value").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("set it to that or less"), "{error}");
}

#[test]
fn what_a_serializable_transaction_reads_counts_among_its_bytes() {
    let db = stepped(&one_tier());
    let bytes_max = Some(ByteSize::kib(4));
    for (isolation, fits) in [(Isolation::Snapshot, true), (Isolation::Serializable, false)] {
        let options = TransactionOptions { isolation, bytes_max, ..Default::default() };
        let mut transaction = db.transaction(options);
        let read = (0..100_u8).map(|key| transaction.get([key])).find_map(Result::err);
        match read {
            None => assert!(fits),
            Some(error) => {
                assert!(!fits && error.kind() == ErrorKind::Invalid, "{error}");
                assert!(error.to_string().contains("this read is not part of it"), "{error}");
                assert!(transaction.put("key", "value").is_err(), "nor is there room for a write");
            }
        }
    }
}
