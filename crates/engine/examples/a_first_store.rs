//! A first store: two tiers, records in and out, closed and opened again.
//!
//! It shows how settings name tiers, how records are written, read, removed and scanned, what a
//! database remembers between two openings, and how an error says what to do.
//!
//! ```text
//! cargo run -p thermocline --example a_first_store
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has files of its own")]

use std::error::Error;
use std::path::Path;
use std::{env, fs, process};
use thermocline::{ByteSize, Db, ErrorKind, Settings, Tier};

fn main() -> Result<(), Box<dyn Error>> {
    let home = env::temp_dir().join(format!("thermocline-a-first-store-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with a store at `home`.
pub fn run(home: &Path) -> Result<(), Box<dyn Error>> {
    // A real store has each tier on a device of its own. Here both are folders of one disk.
    let settings = Settings {
        tiers: vec![
            Tier::new(home.join("fast"), ByteSize::mib(64)),
            Tier::new(home.join("slow"), ByteSize::mib(256)),
        ],
        memory: ByteSize::mib(64),
        ..Settings::default()
    };
    let db = Db::create(home, &settings)?;

    // Keys and values are bytes. Each write is durable when the call returns.
    db.put("lake/surface", "24 degrees")?;
    db.put("lake/thermocline", "12 degrees")?;
    db.put("lake/bottom", "4 degrees")?;
    db.put("pond", "dry")?;
    db.delete("pond")?;
    assert_eq!(db.get("lake/bottom")?.as_deref(), Some(&b"4 degrees"[..]));
    assert_eq!(db.get("pond")?, None);

    println!("records in the order of their keys:");
    let mut keys = Vec::new();
    for record in db.scan().prefix("lake/") {
        let (key, value) = record?;
        println!("  {} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
        keys.push(key);
    }
    assert_eq!(keys, ["lake/bottom", "lake/surface", "lake/thermocline"]);
    db.close()?;

    // The database keeps its tiers and settings, so opening it again needs its home alone.
    let db = Db::open(home)?;
    assert_eq!(db.get("lake/surface")?.as_deref(), Some(&b"24 degrees"[..]));
    let stats = db.stats();
    for tier in &stats.tiers {
        println!("{}: {} of {} bytes used", tier.path, tier.used_bytes, tier.capacity_bytes);
    }
    assert_eq!(stats.tiers.len(), 2);
    db.close()?;

    // The kind of an error says what can be done, its text says where.
    let Err(error) = Db::create(home, &settings) else {
        return Err("a second database was made in the place of the first".into());
    };
    println!("making it a second time: {error}");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    Ok(())
}
