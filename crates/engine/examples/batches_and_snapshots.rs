//! Batches and snapshots: writes that take effect together, and reads as of one moment.
//!
//! It moves money between accounts. A batch takes it from one account and gives it to another, so
//! no reader ever sees the sum change. A snapshot goes on showing the accounts as they were. The
//! last part asks for less durability and makes up for it with one sync.
//!
//! ```text
//! cargo run -p thermocline --example batches_and_snapshots
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has files of its own")]

use std::error::Error;
use std::path::Path;
use std::{env, fs, process};
use thermocline::{ByteSize, Db, Durability, Scan, WriteBatch};

fn main() -> Result<(), Box<dyn Error>> {
    let home = env::temp_dir().join(format!("thermocline-batches-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with a store at `home`.
pub fn run(home: &Path) -> Result<(), Box<dyn Error>> {
    // No tier is named: the store has one, in its home.
    let db = Db::builder().memory(ByteSize::mib(64)).create(home)?;
    let mut opening = WriteBatch::new();
    opening.put("account/ada", amount(100)).put("account/ben", amount(20));
    opening.put("account/cleo", amount(0));
    db.write(opening)?;

    // The snapshot keeps this moment for as long as it is held.
    let before = db.snapshot();
    transfer(&db, "account/ada", "account/ben", 30)?;
    transfer(&db, "account/ben", "account/cleo", 50)?;
    // A batch may write and remove: either all of it is found after a crash, or nothing of it.
    let mut closing = WriteBatch::new();
    closing.delete("account/ben").put("closed/ben", amount(0));
    db.write(closing)?;

    println!("before: {:?}", balances(before.scan())?);
    println!("now:    {:?}", balances(db.scan())?);
    assert_eq!(balances(before.scan())?, [100, 20, 0]);
    assert_eq!(balances(db.scan())?, [70, 50]);
    assert_eq!(before.get("closed/ben")?, None);
    assert_eq!(read(&before.multi_get(&["account/ben", "account/ada"])?)?, [20, 100]);
    drop(before);

    // `Buffered` survives the end of the process but not the loss of power, until a sync.
    for entry in 0..1000u64 {
        let mut batch = WriteBatch::new();
        batch.put(format!("journal/{entry:06}"), amount(entry));
        db.write_with(batch, Durability::Buffered)?;
    }
    db.sync()?;
    let mut latest = Vec::new();
    for record in db.scan().prefix("journal/").reverse().limit(3) {
        latest.push(record?.0);
    }
    println!("newest entries of the journal: {latest:?}");
    assert_eq!(latest, ["journal/000999", "journal/000998", "journal/000997"]);
    Ok(db.close()?)
}

/// Takes from one account what it gives to the other. Two transfers at once need a lock of the
/// program's around both the reads and the write.
fn transfer(db: &Db, from: &str, to: &str, sum: u64) -> Result<(), Box<dyn Error>> {
    let [giver, taker] = read(&db.multi_get(&[from, to])?)?[..] else {
        return Err(format!("{from} or {to} is no account").into());
    };
    let left = giver.checked_sub(sum).ok_or_else(|| format!("{from} has only {giver}"))?;
    let mut batch = WriteBatch::new();
    batch.put(from, amount(left)).put(to, amount(taker + sum));
    Ok(db.write(batch)?)
}

fn amount(sum: u64) -> [u8; 8] {
    sum.to_le_bytes()
}

/// The amounts of `values`, without those that are absent.
fn read<V: AsRef<[u8]>>(values: &[Option<V>]) -> Result<Vec<u64>, Box<dyn Error>> {
    let present = values.iter().flatten();
    present.map(|value| Ok(u64::from_le_bytes(value.as_ref().try_into()?))).collect()
}

/// The amounts of all accounts, in the order of their keys.
fn balances(scan: Scan) -> Result<Vec<u64>, Box<dyn Error>> {
    let values = scan.prefix("account/").into_iter().map(|record| record.map(|(_, value)| value));
    let values: Result<Vec<_>, _> = values.map(|value| value.map(Some)).collect();
    read(&values?)
}
