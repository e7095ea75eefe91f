//! Asynchronous requests: a ticket meets its answer at any moment, and no request is forgotten,
//! whatever sleeps, waits or closes meanwhile.

use super::support::*;
use crate::requests::ticket::schedules::ticket_and_answer;
use crate::{
    Db, Duration, ErrorKind, HasRoom, Isolation, Locking, Settings, Ticket, TransactionOptions,
};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use thermocline_foundation::random::entropy;
use thermocline_foundation::sync::{Condvar, Mutex};

#[derive(Default)]
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

/// Drives a future, and looks at it only when it was woken: a lost wake-up is a deadlock.
fn block_on<F: Future>(future: F) -> F::Output {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_so = woken.is_so.lock();
        while !std::mem::take(&mut *is_so) {
            woken.changed.wait(&mut is_so);
        }
    }
}

/// Waits for an answer in one of the ways there are.
fn wait<T>(mut ticket: Ticket<T>) -> crate::Result<T> {
    match entropy() % 4 {
        0 => ticket.wait(),
        1 => block_on(ticket),
        // Looked at by one task, and then by another.
        2 => {
            let mut ticket = pin!(ticket);
            let waker = Waker::from(Arc::new(Woken::default()));
            match ticket.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(answer) => answer,
                Poll::Pending => block_on(ticket),
            }
        }
        _ => match ticket.poll_now() {
            Some(answer) => answer,
            None => ticket.wait(),
        },
    }
}

#[test]
fn a_ticket_and_its_answer_meet() {
    check(5000, || {
        let (ticket, answer) = ticket_and_answer::<u32>();
        let is_answered = entropy() % 4 > 0;
        let worker = spawn(move || if is_answered { answer(7) } else { drop(answer) });
        match wait(ticket) {
            Ok(seven) => assert!(is_answered && seven == 7),
            Err(error) => assert!(!is_answered && error.kind() == ErrorKind::ReadOnly),
        }
        join([worker]);
    });
}

fn insist(db: &Db, key: &'static str, number: u64) -> crate::Result<Ticket<()>> {
    loop {
        let error = match db.put_async(key, value(number, 8)) {
            Err(error) if error.kind() == ErrorKind::Busy => db.has_room(),
            ticket => return ticket,
        };
        block_on::<HasRoom>(error);
    }
}

/// Callers with a queue so short that they wait for room, and a closing in the middle of it.
#[test]
fn every_request_is_answered_and_what_was_acknowledged_is_there() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let request_queue = 1 + (entropy() % 3) as u32;
        let db = create_with(&devices, &Settings { request_queue, ..settings() });
        let callers = ["left", "right"].map(|key| {
            let db = db.clone();
            spawn(move || {
                let mut acknowledged = 0;
                let mut tickets = Vec::new();
                for number in 1..=3 {
                    match insist(&db, key, number) {
                        Ok(ticket) => tickets.push(ticket),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::ReadOnly);
                            break;
                        }
                    }
                }
                // Before the last is acknowledged, the others are.
                if entropy() % 2 == 0
                    && let Some(last) = tickets.pop()
                {
                    wait(last).unwrap();
                    let mut earlier = tickets.iter_mut().map(Ticket::poll_now);
                    assert!(earlier.all(|answer| answer.is_some_and(|it| it.is_ok())));
                    acknowledged = tickets.len() as u64 + 1;
                    tickets.clear();
                }
                for ticket in tickets {
                    wait(ticket).unwrap();
                    acknowledged += 1;
                }
                if let Ok(ticket) = db.get_async("nothing") {
                    assert!(wait(ticket).unwrap().is_none());
                }
                (key, acknowledged)
            })
        });
        let closes = entropy() % 2 == 0;
        let acknowledged = if closes {
            db.clone().close().unwrap();
            join(callers)
        } else {
            let acknowledged = join(callers);
            assert_eq!(db.stats().requests.held, 0);
            assert!(acknowledged.iter().all(|(_, count)| *count == 3));
            db.clone().close().unwrap();
            acknowledged
        };
        drop(db);
        let db = open(&devices);
        for (key, count) in acknowledged {
            let found = db.get(key).unwrap().map_or(0, |value| number(&value));
            assert_eq!(found, count, "the last of what was handed in");
        }
    });
}

/// A transaction that holds a lock and commits asynchronously, beside writes of the same key that
/// wait for the lock: whatever the order, none of them waits for the other, and the writes keep
/// theirs.
#[test]
fn commits_and_the_writes_that_wait_for_their_locks_all_end() {
    check(2000, || {
        let devices = Arc::new(FragileDevices::default());
        let log_writes = 1 + (entropy() % 3) as u32;
        let db = create_with(&devices, &Settings { log_writes, ..settings() });
        let options = TransactionOptions {
            locking: Locking::Pessimistic,
            isolation: Isolation::ReadCommitted,
            lock_timeout: Duration::ms(600_000),
            ..TransactionOptions::default()
        };
        let holder = {
            let db = db.clone();
            spawn(move || {
                let mut transaction = db.transaction(options);
                // Here a wait with an end may end at any time.
                match transaction.put("key", value(0, 8)) {
                    Err(error) if error.kind() == ErrorKind::LockTimeout => return,
                    put => put.unwrap(),
                }
                wait(transaction.commit_async().map_err(|(_, error)| error).unwrap()).unwrap();
            })
        };
        let writer = {
            let db = db.clone();
            spawn(move || {
                let tickets = [1, 2, 3].map(|number| insist(&db, "key", number).unwrap());
                let all = tickets.map(|ticket| match wait(ticket) {
                    Ok(()) => true,
                    Err(error) if error.kind() == ErrorKind::LockTimeout => false,
                    Err(error) => panic!("{error}"),
                });
                let seen = db.get("key").unwrap().map(|value| number(&value));
                all.iter().all(|written| *written).then_some(seen)
            })
        };
        let closes = entropy() % 2 == 0;
        join([holder]);
        let seen = join([writer]);
        let lasts = |seen: &Option<u64>| [Some(0), Some(3)].contains(seen);
        assert!(seen[0].as_ref().is_none_or(lasts), "{seen:?}");
        if closes {
            db.close().unwrap();
        }
    });
}
