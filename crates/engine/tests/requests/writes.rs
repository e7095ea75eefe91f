//! Writes: what they leave, in which order, and what a full queue does.

use crate::executors::block_on;
use crate::support::*;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use thermocline::{ByteSize, Durability, ErrorKind, Settings, Ticket, WriteBatch};

#[test]
fn values_arrive_and_are_there_after_reopening() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        let key = |number: u32| format!("key {number:05}");
        let mut tickets = Vec::new();
        for number in 0..3000 {
            tickets.push(insist(|| db.put_async(key(number), vec![number as u8; 500])));
        }
        for number in (0..3000).step_by(3) {
            tickets.push(insist(|| db.delete_async(key(number))));
        }
        let mut batch = WriteBatch::new();
        batch.put("batch 1", "one").put("batch 2", "two").delete(key(1));
        tickets.push(insist(|| db.write_async(&mut batch, Durability::Buffered)));
        assert!(batch.is_empty());
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        let check = |db: &thermocline::Db| {
            for number in 0..3000 {
                let value = db.get(key(number)).unwrap();
                let is_there = number % 3 != 0 && number != 1;
                assert_eq!(value.is_some(), is_there, "{number}");
                assert!(value.is_none_or(|value| value == vec![number as u8; 500]), "{number}");
            }
            assert_eq!(db.get("batch 2").unwrap().as_deref(), Some(&b"two"[..]));
        };
        check(&db);
        db.close().unwrap();
        let db = devices.open();
        check(&db);
        assert!(db.verify(&mut |_| {}).unwrap().is_ok());
        db.close().unwrap();
    }
}

/// Callers whose writes go through several loggers: none of them hears of a later write before an
/// earlier one, and the last one stays.
#[test]
fn writes_of_one_caller_take_effect_and_are_acknowledged_in_order() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..20_u32 {
                        let put = |number: u32| db.put_async([caller], number.to_string());
                        let tickets: Vec<_> =
                            (0..50).map(|number| insist(|| put(round * 50 + number))).collect();
                        acknowledged_in_order(tickets);
                        let last = (round * 50 + 49).to_string();
                        assert_eq!(db.get([caller]).unwrap().as_deref(), Some(last.as_bytes()));
                    }
                });
            }
        });
        let stats = db.stats().requests;
        assert_eq!((stats.writes, stats.grouped_writes, stats.held), (4000, 4000, 0));
        assert!(stats.groups <= 4000 && stats.largest_group > 1, "{stats:?}");
        assert!((1..=3).contains(&stats.threads), "{stats:?}");
        db.close().unwrap();
    }
}

/// Looks at tickets from the last to the first: before one that is answered, all are.
fn acknowledged_in_order(mut tickets: Vec<Ticket<()>>) {
    until("all acknowledgements", || {
        let mut later_is_answered = false;
        let mut left = tickets.len();
        for at in (0..tickets.len()).rev() {
            match tickets[at].poll_now() {
                Some(result) => {
                    result.unwrap();
                    if !later_is_answered {
                        left = tickets.len() - at - 1;
                    }
                    later_is_answered = true;
                }
                None => assert!(!later_is_answered, "a later write is acknowledged first"),
            }
        }
        tickets.drain(..tickets.len() - left);
        tickets.is_empty()
    });
}

#[test]
fn a_full_queue_refuses_at_its_bound_and_tells_when_there_is_room() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&Settings { request_queue: 5, ..settings(preset) });
        devices.syncs(Met::Wait);
        let mut tickets: Vec<_> =
            (0..4_u8).map(|number| db.put_async([number], "value").unwrap()).collect();
        let mut batch = WriteBatch::new();
        batch.put("in a batch", "value").delete("nothing");
        tickets.push(db.write_async(&mut batch.clone(), Durability::Sync).unwrap());
        let error = db.write_async(&mut batch, Durability::Sync).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("5 asynchronous requests"), "{error}");
        assert!(error.to_string().contains("Db::has_room"), "{error}");
        assert_eq!((batch.len(), batch.bytes()), (2, 1 + 1 + 11 + 6 + 1 + 8), "left whole");
        assert_eq!(db.get_async("absent").unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(db.scan().page_async(ByteSize::kib(1)).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(db.stats().requests.refused, 3);

        let counted = Arc::new(Counted);
        let waker = Waker::from(Arc::clone(&counted));
        let mut dropped = Box::pin(db.has_room());
        assert_eq!(dropped.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        drop((dropped, waker));
        assert_eq!(Arc::strong_count(&counted), 1, "a future that is dropped is forgotten");

        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(db.has_room()));
            devices.syncs(Met::Nothing);
            waiting.join().unwrap();
        });
        tickets.into_iter().for_each(|ticket| answer(ticket).unwrap());
        answer(db.write_async(&mut batch, Durability::Sync).unwrap()).unwrap();
        assert!(batch.is_empty());
        assert_eq!(db.stats().requests.held, 0);
        db.close().unwrap();
    }
}

struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_long_request_goes_beyond_the_bytes_and_the_next_is_refused() {
    let devices = Devices::default();
    let queue = ByteSize::kib(64);
    let db = devices.create(&Settings { request_queue_bytes: queue, ..settings(PRESETS[0]) });
    devices.syncs(Met::Wait);
    let short = db.put_async("short", vec![1; 60_000]).unwrap();
    let long = db.put_async("long", vec![2; 600_000]).unwrap();
    let error = db.put_async("next", "value").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    devices.syncs(Met::Nothing);
    [short, long].into_iter().for_each(|ticket| answer(ticket).unwrap());
    answer(db.put_async("next", "value").unwrap()).unwrap();
    assert_eq!(db.get("long").unwrap().unwrap().len(), 600_000);
    assert_eq!(db.stats().requests.largest_group, 1, "it goes alone");
    db.close().unwrap();
}

#[test]
fn a_ticket_that_is_dropped_cancels_nothing() {
    let devices = Devices::default();
    let db = devices.create(&settings(PRESETS[0]));
    devices.syncs(Met::Wait);
    for number in 0..100_u8 {
        drop(db.put_async([number], "value").unwrap());
    }
    devices.syncs(Met::Nothing);
    until("writes of tickets that are gone", || db.stats().requests.held == 0);
    assert_eq!(db.scan().into_iter().filter(Result::is_ok).count(), 100);
    db.close().unwrap();
}

#[test]
fn what_is_wrong_with_a_write_is_told_at_once() {
    let devices = Devices::default();
    let db = devices.create(&settings(PRESETS[0]));
    let mut batch = WriteBatch::new();
    let mut nothing = db.write_async(&mut batch, Durability::Sync).unwrap();
    assert!(nothing.poll_now().unwrap().is_ok(), "an empty batch has its answer");
    assert!(nothing.poll_now().is_none(), "an answer is given once");
    batch.put("key", "value").put(vec![0; thermocline::KEY_BYTES_MAX + 1], "value");
    for _ in 0..2 {
        let error = db.write_async(&mut batch, Durability::Sync).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let error = db.put_async(vec![0; thermocline::KEY_BYTES_MAX + 1], "value").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(db.stats().requests.threads, 0);
    db.close().unwrap();
    let db = devices.environment().open_read_only(home()).unwrap();
    assert_eq!(db.put_async("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(answer(db.get_async("key").unwrap()).unwrap().is_none());
    db.close().unwrap();
}
