//! Tickets are futures of the standard library: any executor drives them.

use crate::support::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use thermocline::{Db, ErrorKind, Settings};
use thermocline_foundation::sync::{Condvar, Mutex};

/// Wakes the thread that drives a future.
#[derive(Debug, Default)]
struct Woken {
    is_so: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.is_so.lock() = true;
        self.changed.notify_one();
    }
}

/// Drives a future on the calling thread, and looks at it only when it was woken.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_so = woken.is_so.lock();
        while !std::mem::take(&mut *is_so) {
            let waited = woken.changed.wait_for(&mut is_so, Duration::from_secs(60));
            assert!(*is_so || !waited.timed_out(), "a future is never woken");
        }
    }
}

/// What a task of a program does: writes while there is room, awaits, reads.
async fn serve(db: Db, task: u32) -> thermocline::Result<u32> {
    let mut found = 0;
    for number in 0..100 {
        let key = format!("task {task}, {number}");
        let ticket = loop {
            match db.put_async(&key, number.to_string()) {
                Err(error) if error.kind() == ErrorKind::Busy => db.has_room().await,
                ticket => break ticket?,
            }
        };
        ticket.await?;
        let value = loop {
            match db.get_async(&key) {
                Err(error) if error.kind() == ErrorKind::Busy => db.has_room().await,
                ticket => break ticket?.await?,
            }
        };
        found += u32::from(value.is_some_and(|value| value == number.to_string()));
        if number % 40 == 39 {
            // What follows is read from tables and slots.
            db.flush()?;
        }
    }
    Ok(found)
}

const TASKS: u32 = 8;

/// A store with so little room that tasks wait for it.
fn store() -> Db {
    Devices::default().create(&Settings { request_queue: 3, ..settings(PRESETS[1]) })
}

#[test]
fn tokio_drives_tickets_on_one_thread_and_on_several() {
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for runtime in [one, several] {
        let db = store();
        let tasks: Vec<_> = (0..TASKS).map(|task| runtime.spawn(serve(db.clone(), task))).collect();
        for task in tasks {
            assert_eq!(runtime.block_on(task).unwrap().unwrap(), 100);
        }
        db.close().unwrap();
    }
}

#[test]
fn smol_drives_tickets() {
    let db = store();
    let tasks: Vec<_> = (0..TASKS).map(|task| smol::spawn(serve(db.clone(), task))).collect();
    for task in tasks {
        assert_eq!(smol::block_on(task).unwrap(), 100);
    }
    db.close().unwrap();
}

#[test]
fn a_loop_with_a_waker_drives_tickets() {
    let db = store();
    assert_eq!(block_on(serve(db.clone(), 0)).unwrap(), 100);
    db.close().unwrap();
}
