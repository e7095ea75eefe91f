//! Requests where callers carry out the work: the same calls give the same history.

use crate::support::{hybrid, one_tier, stepped};
use crate::{ByteSize, Db, ErrorKind, Settings};
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
