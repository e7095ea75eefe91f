//! Transactions: reads and writes that take effect together, while others do the same.
//!
//! Threads move money between accounts. Each transfer is a transaction, which is run again where
//! another came first: no sum is lost, and no lock of the program's is needed. Then one that is
//! pessimistic, savepoints, a rule over several records that only a serializable transaction keeps,
//! and a counter without a transaction.
//!
//! ```text
//! cargo run -p thermocline --example transactions
//! ```
#![allow(clippy::disallowed_macros, reason = "an example prints what it shows")]
#![allow(clippy::disallowed_methods, reason = "a user's program has files and threads of its own")]

use std::error::Error;
use std::path::Path;
use std::{env, fs, process, thread};
use thermocline::{
    ByteSize, Db, Durability, ErrorKind, Isolation, Locking, Result, Swap, Transaction,
    TransactionOptions,
};

fn main() -> Result<(), Box<dyn Error>> {
    let home = env::temp_dir().join(format!("thermocline-transactions-{}", process::id()));
    let shown = run(&home);
    let removed = fs::remove_dir_all(&home);
    shown?;
    Ok(removed?)
}

/// The example, with a store at `home`.
pub fn run(home: &Path) -> Result<(), Box<dyn Error>> {
    let db = Db::builder().memory(ByteSize::mib(64)).create(home)?;
    for account in 0..4 {
        db.put(key(account), amount(100))?;
    }
    transfers(&db)?;
    part_of_a_transaction(&db)?;
    a_rule_over_several_records(&db)?;
    a_counter(&db)?;
    Ok(db.close()?)
}

/// Runs `body` in a transaction, and again from its beginning where another came first.
fn in_transaction<T>(
    db: &Db,
    options: &TransactionOptions,
    body: impl Fn(&mut Transaction) -> Result<T>,
) -> Result<T> {
    loop {
        let mut transaction = db.transaction(options.clone());
        let done = body(&mut transaction).and_then(|told| transaction.commit().map(|_| told));
        match done {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Deadlock) => {}
            done => return done,
        }
    }
}

/// Threads that write the same accounts, half of them with locks.
fn transfers(db: &Db) -> Result<(), Box<dyn Error>> {
    let threads: Vec<_> = (0..4u64)
        .map(|number| {
            let db = db.clone();
            thread::spawn(move || {
                let locking = if number < 2 { Locking::Optimistic } else { Locking::Pessimistic };
                let durability = Some(Durability::Buffered);
                let options =
                    TransactionOptions { locking, durability, ..TransactionOptions::default() };
                for step in 0..100 {
                    let (from, to) = (key((number + step) % 4), key((number + step + 1) % 4));
                    in_transaction(&db, &options, |transfer| {
                        let left = read(transfer.get_for_update(&from)?).saturating_sub(1);
                        let more = read(transfer.get_for_update(&to)?) + 1;
                        transfer.put(&from, amount(left))?;
                        transfer.put(&to, amount(more))
                    })?;
                }
                Ok::<_, thermocline::Error>(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    let sum = sum(&db.transaction(TransactionOptions::default()))?;
    println!("the accounts have {sum} together");
    assert_eq!(sum, 400);
    Ok(())
}

/// A savepoint takes back a part.
fn part_of_a_transaction(db: &Db) -> Result<()> {
    let mut order = db.transaction(TransactionOptions::default());
    order.put("order/1", "two tins of tea")?;
    let place = order.savepoint();
    order.put("order/1/gift", "a cup")?;
    // Its own writes are seen by the transaction, and by no other reader yet.
    assert_eq!(order.scan().prefix("order/").into_iter().count(), 2);
    assert_eq!(db.scan().prefix("order/").into_iter().count(), 0);
    order.rollback_to(place)?;
    order.commit()?;
    assert_eq!(db.scan().prefix("order/").into_iter().count(), 1);
    Ok(())
}

/// Of those on call one may leave while another stays. Each looks at all and writes its own record,
/// so only a serializable transaction sees that what it looked at has changed.
fn a_rule_over_several_records(db: &Db) -> Result<()> {
    db.put("on call/ada", "")?;
    db.put("on call/ben", "")?;
    let isolation = Isolation::Serializable;
    let options = TransactionOptions { isolation, ..TransactionOptions::default() };
    let mut ada = db.transaction(options.clone());
    let mut ben = db.transaction(options);
    for (leaves, name) in [(&mut ada, "on call/ada"), (&mut ben, "on call/ben")] {
        if leaves.scan().prefix("on call/").into_iter().count() > 1 {
            leaves.delete(name)?;
        }
    }
    ada.commit()?;
    let error = ben.commit().expect_err("ada has left meanwhile");
    println!("ben stays: {error}");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    Ok(())
}

/// One record needs no transaction.
fn a_counter(db: &Db) -> Result<()> {
    assert!(db.put_if_absent("visits", amount(0))?);
    assert!(!db.put_if_absent("visits", amount(0))?, "it is there");
    let mut before = db.get("visits")?;
    while let Swap::Found(now) = {
        let next = amount(read(before.clone()) + 1);
        db.compare_and_swap("visits", before.as_deref(), Some(&next))?
    } {
        before = now;
    }
    assert_eq!(read(db.get("visits")?), 1);
    Ok(())
}

fn key(account: u64) -> String {
    format!("account/{account}")
}

fn amount(sum: u64) -> [u8; 8] {
    sum.to_le_bytes()
}

fn read(value: Option<impl AsRef<[u8]>>) -> u64 {
    value.map_or(0, |value| {
        u64::from_le_bytes(value.as_ref().try_into().expect("an amount has eight bytes"))
    })
}

/// The sum of all accounts, as of one moment.
fn sum(of: &Transaction) -> Result<u64> {
    let records = of.scan().prefix("account/").into_iter();
    records.map(|record| record.map(|(_, value)| read(Some(value)))).sum()
}
