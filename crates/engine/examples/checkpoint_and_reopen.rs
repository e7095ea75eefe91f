//! A checkpoint: a second database with the records of one moment, and opening both again.
//!
//! A checkpoint links the tables of the first database where it can, so it takes little time and
//! room. It is what to keep before a risky change, and what to go back to when `verify` finds
//! damage. The example also opens a database with other settings than those it was made with.
//!
//! ```text
//! cargo run -p thermocline --example checkpoint_and_reopen
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has files of its own")]

use std::error::Error;
use std::path::Path;
use std::{env, fs, process};
use thermocline::{ByteSize, Db, ErrorKind, Settings, Tier};

fn main() -> Result<(), Box<dyn Error>> {
    let home = env::temp_dir().join(format!("thermocline-checkpoint-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with two stores below `home`.
pub fn run(home: &Path) -> Result<(), Box<dyn Error>> {
    let (main, copy) = (home.join("main"), home.join("monday"));
    let settings = Settings {
        tiers: vec![
            Tier::new(home.join("fast"), ByteSize::mib(64)),
            Tier::new(home.join("slow"), ByteSize::mib(256)),
        ],
        memory: ByteSize::mib(64),
        ..Settings::default()
    };
    let db = Db::create(&main, &settings)?;
    for day in 0..200 {
        db.put(format!("day/{day:04}"), "measured")?;
        // A program that makes checkpoints need not stop its writers for them.
        if day == 99 {
            db.checkpoint(&copy)?;
        }
    }
    // A checkpoint replaces nothing.
    let Err(error) = db.checkpoint(&copy) else {
        return Err("a checkpoint replaced another".into());
    };
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    println!("a second checkpoint there: {error}");
    db.close()?;

    // The copy is a database like any other: it is opened, checked and written by itself.
    let monday = Db::open(&copy)?;
    let report = monday.verify(&mut |_| {})?;
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    println!("the checkpoint has {} days, all of them intact", days(&monday)?);
    assert_eq!(days(&monday)?, 100);
    monday.delete("day/0000")?;
    monday.close()?;

    // The first one is opened with less memory. Its tiers it knows; none need be named.
    let smaller = Settings { tiers: Vec::new(), memory: ByteSize::mib(32), ..settings };
    let db = Db::open_with(&main, &smaller)?;
    println!("the database has {} days and {} of memory", days(&db)?, db.settings().memory);
    assert_eq!(days(&db)?, 200);
    assert_eq!(db.settings().memory, ByteSize::mib(32));
    assert_eq!(db.settings().tiers.len(), 2);
    Ok(db.close()?)
}

/// How many records there are.
fn days(db: &Db) -> thermocline::Result<usize> {
    db.scan().prefix("day/").into_iter().try_fold(0, |count, record| record.map(|_| count + 1))
}
