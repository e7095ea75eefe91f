//! Asynchronous use: many requests in flight from few threads, under any executor or none.
//!
//! Tasks of `tokio` store and read orders; each awaits its own tickets, and waits for room where
//! the queue is full. Then a plain thread keeps a window of writes in flight, and a scan is read
//! page by page.
//!
//! ```text
//! cargo run -p thermocline --example asynchronous_use
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has files of its own")]

use std::collections::VecDeque;
use std::path::Path;
use std::{env, error, fs, process};
use thermocline::{ByteSize, Db, ErrorKind, Result, Ticket};

fn main() -> Result<(), Box<dyn error::Error>> {
    let home = env::temp_dir().join(format!("thermocline-asynchronous-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with a store at `home`.
pub fn run(home: &Path) -> Result<(), Box<dyn error::Error>> {
    let db = Db::builder().memory(ByteSize::mib(64)).create(home)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let tasks: Vec<_> =
        (0..64).map(|customer| runtime.spawn(serve(db.clone(), customer))).collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    println!("64 tasks on one thread stored {} orders", db.scan().into_iter().count());

    without_an_executor(&db)?;
    let (records, pages) = runtime.block_on(read_all(&db))?;
    println!("{records} records in {pages} pages");
    assert_eq!(records, 64 * 10 + 1000);
    println!("requests: {:?}", db.stats().requests);
    Ok(db.close()?)
}

/// A task: one order after the other, each durable before the next.
async fn serve(db: Db, customer: u32) -> Result<()> {
    for order in 0..10 {
        let key = format!("order/{customer:04}/{order:04}");
        put(&db, &key, "two cups").await?;
        // Memory has the order, so this ticket comes with its answer.
        let stored = db.get_async(&key)?.await?;
        assert_eq!(stored.as_deref(), Some(&b"two cups"[..]));
    }
    Ok(())
}

/// Stores a record, and waits its turn where as many requests are in flight as may be.
async fn put(db: &Db, key: &str, value: &str) -> Result<()> {
    loop {
        match db.put_async(key, value) {
            Err(error) if error.kind() == ErrorKind::Busy => db.has_room().await,
            ticket => return ticket?.await,
        }
    }
}

/// A plain thread with a hundred writes in flight. They are acknowledged in order, so it is enough
/// to look at the oldest.
fn without_an_executor(db: &Db) -> Result<()> {
    let mut flying: VecDeque<Ticket<()>> = VecDeque::new();
    for number in 0..1000 {
        flying.push_back(db.put_async(format!("sample/{number:06}"), "23.5")?);
        // What is acknowledged by now.
        while let Some(answer) = flying.front_mut().and_then(Ticket::poll_now) {
            answer?;
            flying.pop_front();
        }
        if flying.len() >= 100
            && let Some(oldest) = flying.pop_front()
        {
            oldest.wait()?;
        }
    }
    flying.into_iter().try_for_each(Ticket::wait)
}

/// Reads everything in pages of 16 KiB: how many records, in how many pages.
async fn read_all(db: &Db) -> Result<(usize, usize)> {
    let (mut records, mut pages) = (0, 0);
    let mut page = db.scan().page_async(ByteSize::kib(16))?.await?;
    loop {
        pages += 1;
        for record in &page.records {
            let (_key, _value) = record.as_ref().map_err(Clone::clone)?;
            records += 1;
        }
        match page.next_page_async(ByteSize::kib(16))? {
            Some(ticket) => page = ticket.await?,
            None => return Ok((records, pages)),
        }
    }
}
