//! Requests where callers carry out the work: the same calls give the same history.

use crate::support::{hybrid, one_tier, stepped};
use crate::{ByteSize, Db, ErrorKind, Locking, Settings, TransactionOptions};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

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
