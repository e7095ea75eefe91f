//! A small service: threads that share one database, and a shutdown that loses nothing.
//!
//! Clients put requests into a bounded queue; workers take them out, each with its own handle of
//! the one database. `Db` is a handle: clones share the database, and all calls may be made from
//! any thread. A shutdown has three steps:
//!
//! ```text
//!   1. the queue is closed      no new requests; those in it are still answered
//!   2. the workers are joined   nothing is under way any more
//!   3. the database is closed   and says whether all went well, which a mere drop cannot
//! ```
//!
//! ```text
//! cargo run -p thermocline --example a_small_service
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has threads of its own")]

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, fs, process};
use thermocline::{ByteSize, Db, ErrorKind};

const WORKERS: usize = 4;
const CLIENTS: usize = 3;
const REQUESTS_PER_CLIENT: usize = 50;
/// Requests that may wait; a client that finds the queue full waits, too.
const QUEUE_LENGTH: usize = 64;
/// After this time a client gives up.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// An error of any kind, which a thread can hand to another.
type Failure = Box<dyn Error + Send + Sync>;
type Answer = thermocline::Result<Option<Vec<u8>>>;

fn main() -> Result<(), Failure> {
    let home = env::temp_dir().join(format!("thermocline-service-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with a store at `home`.
pub fn run(home: &Path) -> Result<(), Failure> {
    let db = Db::builder().memory(ByteSize::mib(64)).open(home)?;
    let late = db.clone();
    let service = Service::start(db);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = service.client();
            thread::spawn(move || converse(&client, number))
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a client panicked")??;
    }
    let served = service.shut_down()?;
    println!("{WORKERS} workers answered {served} requests of {CLIENTS} clients");
    assert_eq!(served, CLIENTS * REQUESTS_PER_CLIENT * 2);

    // A handle that is still somewhere cannot write to the closed database.
    let Err(error) = late.put("late", "too late") else {
        return Err("a closed database was written".into());
    };
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    println!("a write after the shutdown: {error}");
    drop(late);

    // What was acknowledged is there.
    let db = Db::open(home)?;
    let kept = db.scan().into_iter().try_fold(0, |count, record| record.map(|_| count + 1))?;
    println!("opened again with {kept} records");
    assert_eq!(kept, CLIENTS * REQUESTS_PER_CLIENT);
    Ok(db.close()?)
}

/// What one client does: it writes records, and reads each of them back.
fn converse(client: &Client, number: usize) -> Result<(), Failure> {
    for request in 0..REQUESTS_PER_CLIENT {
        let key = format!("client/{number}/{request:05}");
        let value = request.to_string().into_bytes();
        client.ask(Ask::Put(key.clone(), value.clone()))?;
        let found = client.ask(Ask::Get(key))?;
        assert_eq!(found, Some(value), "an acknowledged write is seen by every worker");
    }
    Ok(())
}

/// What a client can ask for.
enum Ask {
    Put(String, Vec<u8>),
    Get(String),
}

struct Request {
    ask: Ask,
    answer: SyncSender<Answer>,
}

/// One end of the queue. Each client has its own.
struct Client {
    queue: SyncSender<Request>,
}

impl Client {
    fn ask(&self, ask: Ask) -> Result<Option<Vec<u8>>, Failure> {
        let (answer, answered) = sync_channel(1);
        self.queue.send(Request { ask, answer }).map_err(|_| "the service is shut down")?;
        Ok(answered.recv_timeout(ANSWER_WITHIN)??)
    }
}

/// The workers, the queue before them, and the database behind them.
struct Service {
    db: Db,
    queue: SyncSender<Request>,
    workers: Vec<JoinHandle<usize>>,
}

impl Service {
    fn start(db: Db) -> Self {
        let (queue, requests) = sync_channel(QUEUE_LENGTH);
        let requests = Arc::new(Mutex::new(requests));
        let workers = (0..WORKERS)
            .map(|_| {
                let (db, requests) = (db.clone(), Arc::clone(&requests));
                thread::spawn(move || work(&db, &requests))
            })
            .collect();
        Self { db, queue, workers }
    }

    fn client(&self) -> Client {
        Client { queue: self.queue.clone() }
    }

    /// Waits for all clients to go and all requests to be answered, and closes the database;
    /// returns the number of requests.
    fn shut_down(self) -> Result<usize, Failure> {
        drop(self.queue);
        let mut served = 0;
        for worker in self.workers {
            served += worker.join().map_err(|_| "a worker panicked")?;
        }
        self.db.close()?;
        Ok(served)
    }
}

/// Answers requests until the queue is empty and closed; returns how many it has answered.
fn work(db: &Db, requests: &Mutex<Receiver<Request>>) -> usize {
    let mut answered = 0;
    loop {
        // The lock is free again before the request is carried out.
        let next = requests.lock().map(|queue| queue.recv());
        let Ok(Ok(Request { ask, answer })) = next else { return answered };
        let outcome = match ask {
            Ask::Put(key, value) => db.put(key, value).map(|()| None),
            Ask::Get(key) => db.get(key).map(|found| found.map(|value| value.to_vec())),
        };
        // A client that has given up leaves nothing to do.
        let _ = answer.send(outcome);
        answered += 1;
    }
}
