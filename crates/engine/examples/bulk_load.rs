//! A bulk load: many sorted records past log and memtable, with progress.
//!
//! Records that come in the order of their keys can go straight into tables. They appear all at
//! once when the load finishes; a load that is given up leaves nothing. The program counts what it
//! has loaded, and long calls of the store report how far they are.
//!
//! ```text
//! cargo run -p thermocline --example bulk_load
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has files of its own")]

use std::error::Error;
use std::path::Path;
use std::{env, fs, process};
use thermocline::{ByteSize, Db, ErrorKind, Progress, Settings, Tier};

const RECORDS: u64 = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    let home = env::temp_dir().join(format!("thermocline-bulk-load-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with a store at `home`.
pub fn run(home: &Path) -> Result<(), Box<dyn Error>> {
    let settings = Settings {
        tiers: vec![
            Tier::new(home.join("fast"), ByteSize::mib(64)),
            Tier::new(home.join("slow"), ByteSize::mib(512)),
        ],
        memory: ByteSize::mib(64),
        ..Settings::default()
    };
    let db = Db::create(home, &settings)?;

    let mut load = db.ingest();
    for number in 0..RECORDS {
        load.add(key(number), value(number))?;
        if load.records().is_multiple_of(RECORDS / 5) {
            println!("loaded {} of {RECORDS} records", load.records());
        }
    }
    // Keys must ascend. A record out of order is refused, and the load can go on.
    let Err(error) = load.add(key(0), "again") else {
        return Err("a record out of order was taken".into());
    };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    println!("refused: {error}");
    // So far there is nothing to see.
    assert_eq!(db.get(key(7))?, None);
    load.finish()?;
    assert_eq!(db.get(key(7))?.as_deref(), Some(value(7).as_bytes()));
    let count = db.scan().into_iter().try_fold(0, |count, record| record.map(|_| count + 1))?;
    assert_eq!(count, RECORDS);

    // A load that is dropped before it finishes leaves the database as it was.
    let mut given_up = db.ingest();
    given_up.add("zebra", "never seen")?;
    drop(given_up);
    assert_eq!(db.get("zebra")?, None);

    // Long calls report bytes done, and bytes in all as far as they are known.
    let mut last = Progress::default();
    let report = db.verify(&mut |progress| last = progress)?;
    println!("verified {} of {} bytes", last.done_bytes, last.total_bytes);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert!(last.done_bytes > 0);
    Ok(db.close()?)
}

fn key(number: u64) -> String {
    format!("measurement/{number:010}")
}

fn value(number: u64) -> String {
    format!("{} degrees at hour {number}, at a depth of {} m", number % 25, number % 40)
}
