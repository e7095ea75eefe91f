//! Devices that fail, workers that panic, and databases that close: every ticket is answered.

use crate::executors::block_on;
use crate::support::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use thermocline::{ByteSize, Db, ErrorKind, Settings};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::threads;

#[test]
fn a_failing_device_answers_every_ticket_with_its_error() {
    for (preset, met, says) in [
        (PRESETS[0], Met::Failure, "Sync of"),
        (PRESETS[1], Met::Failure, "Sync of"),
        (PRESETS[0], Met::Panic, "panicked"),
        (PRESETS[1], Met::Panic, "panicked"),
    ] {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        answer(db.put_async("before", "value").unwrap()).unwrap();
        devices.syncs(Met::Wait);
        let tickets: Vec<_> =
            (0..50_u8).map(|number| db.put_async([number], "value").unwrap()).collect();
        devices.wait_until_held();
        devices.syncs(met);
        for ticket in tickets {
            let error = answer(ticket).unwrap_err();
            assert!(error.to_string().contains(says), "{met:?}: {error}");
        }
        let error = db.put_async("after", "value").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        let before = db.get_async("before").unwrap().wait().unwrap();
        assert_eq!(before.as_deref(), Some(&b"value"[..]), "reads go on");
        assert_eq!(db.stats().requests.held, 0);
        devices.syncs(Met::Nothing);
        assert!(db.close().is_err());
        let db = devices.open();
        assert!(db.get("before").unwrap().is_some());
        answer(db.put_async("after", "value").unwrap()).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_read_that_fails_or_panics_is_the_error_of_its_ticket() {
    for preset in PRESETS {
        for met in [Met::Failure, Met::Panic] {
            let devices = Devices::default();
            let db = devices.create(&settings(preset));
            db.put("key", vec![7; 300]).unwrap();
            db.compact_range(None, None, &mut |_| {}).unwrap();
            db.close().unwrap();
            let db = devices.open();
            devices.reads(met);
            for _ in 0..3 {
                let error = answer(db.get_async("key").unwrap()).unwrap_err();
                assert!(error.to_string().contains("Read of"), "{error}");
            }
            devices.reads(Met::Nothing);
            assert_eq!(answer(db.get_async("key").unwrap()).unwrap().unwrap(), vec![7; 300]);
            let written = db.put_async("other", "value");
            match met {
                // Memory may be half changed.
                Met::Panic => assert_eq!(written.unwrap_err().kind(), ErrorKind::ReadOnly),
                _ => answer(written.unwrap()).unwrap(),
            }
            assert_eq!(db.close().is_err(), met == Met::Panic);
        }
    }
}

/// Requests of all kinds that wait when the database is closed, by a call or by its last handle.
#[test]
fn closing_carries_out_what_waits() {
    for preset in PRESETS {
        for closes in [true, false] {
            let devices = Devices::default();
            let db = devices.create(&Settings { request_workers: 1, ..settings(preset) });
            db.put("key", vec![7; 300]).unwrap();
            db.compact_range(None, None, &mut |_| {}).unwrap();
            db.close().unwrap();
            let db = devices.open();
            devices.syncs(Met::Wait);
            devices.reads(Met::Wait);
            let writes: Vec<_> =
                (0..50_u8).map(|number| db.put_async([number], "value").unwrap()).collect();
            let reads: Vec<_> = (0..50).map(|_| db.get_async("key").unwrap()).collect();
            let page = db.scan().limit(1).page_async(ByteSize::kib(1)).unwrap();
            devices.wait_until_held();
            let closing = threads::spawn("closing", move || {
                if closes {
                    drop(db.close())
                }
            });
            devices.syncs(Met::Nothing);
            devices.reads(Met::Nothing);
            closing.unwrap().join().unwrap();
            for mut ticket in writes {
                ticket.poll_now().expect("answered before it is closed").unwrap();
            }
            for mut ticket in reads {
                let value = ticket.poll_now().expect("answered before it is closed").unwrap();
                assert_eq!(value.unwrap(), vec![7; 300]);
            }
            assert_eq!(page.wait().unwrap().records.len(), 1);
            let db = devices.open();
            assert_eq!(db.scan().into_iter().filter(Result::is_ok).count(), 51);
            db.close().unwrap();
        }
    }
}

#[test]
fn a_closed_database_takes_no_requests() {
    let devices = Devices::default();
    let db = devices.create(&Settings { request_queue: 1, ..settings(PRESETS[0]) });
    let other = db.clone();
    devices.syncs(Met::Wait);
    let write = db.put_async("key", "value").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(other.has_room()));
        let closing = scope.spawn(|| db.close());
        waiting.join().unwrap();
        devices.syncs(Met::Nothing);
        closing.join().unwrap().unwrap();
    });
    answer(write).unwrap();
    block_on(other.has_room());
    assert_eq!(other.put_async("key", "value").unwrap_err().kind(), ErrorKind::ReadOnly);
    let error = other.get_async("absent").unwrap_err();
    assert_eq!(error.to_string(), "the database is closed");
    other.close().unwrap();
}

/// Holds a database until it is woken.
struct HoldsDb(Mutex<Option<Db>>);

impl Wake for HoldsDb {
    fn wake(self: Arc<Self>) {
        let held = self.0.lock().take();
        drop(held);
    }
}

/// A task that is woken may let go of the last handle, on the thread that wakes it.
#[test]
fn a_worker_that_closes_the_database_waits_for_the_others_and_not_for_itself() {
    for preset in PRESETS {
        let devices = Devices::default();
        let db = devices.create(&settings(preset));
        devices.syncs(Met::Wait);
        let waker = Waker::from(Arc::new(HoldsDb(Mutex::new(Some(db.clone())))));
        let mut first = pin!(db.put_async("first", "value").unwrap());
        devices.wait_until_held();
        let second = db.put_async("second", "value").unwrap();
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(db);
        devices.syncs(Met::Nothing);
        answer(second).unwrap();
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        let mut reopened = None;
        until("the end of the closing", || {
            reopened = devices.environment().open(home()).ok();
            reopened.is_some()
        });
        let db = reopened.unwrap();
        assert!(db.get("second").unwrap().is_some());
        assert_eq!(db.stats().operations.writes, 2, "the closing went to its end");
        db.close().unwrap();
    }
}

/// What an executor does wrong is not the store's.
#[test]
fn a_waker_that_panics_ends_neither_the_worker_nor_the_store() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the executor is broken");
        }
    }
    let devices = Devices::default();
    let db = devices.create(&settings(PRESETS[0]));
    devices.syncs(Met::Wait);
    let waker = Waker::from(Arc::new(Panics));
    let mut first = pin!(db.put_async("first", "value").unwrap());
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let second = db.put_async("second", "value").unwrap();
    devices.syncs(Met::Nothing);
    answer(second).unwrap();
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    answer(db.put_async("third", "value").unwrap()).unwrap();
    db.close().unwrap();
}
