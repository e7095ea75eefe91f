//! What the processes of `memory` do, each thing that is known to strain a memory bound: many
//! threads, large values and batches, open scans, held snapshots, thousands of tables, recovery,
//! bulk loads.
//!
//! ```text
//!   fill -> kill | open again (recovery)        fill -> the strain itself (all others)
//! ```

use crate::{Failure, Outcome};
use std::path::PathBuf;
use thermocline::{ByteSize, Db, Durability, Preset, Settings, Tier, WriteBatch};
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::threads::scope;

const VALUE_BYTES: u64 = 1000;
const THREADS: u64 = 8;
const LARGE_BYTES: u64 = 16 << 20;
const OPEN_SCANS: u64 = 32;
const SNAPSHOTS: u64 = 20;
/// Keys of one call.
const KEYS_AT_ONCE: u64 = 256;

/// A part of a script does its work on the store and returns the memory that the store counts.
pub type Part = fn(&Store) -> Outcome<u64>;

/// What a row does, a process for each part.
pub struct Script {
    pub name: &'static str,
    pub parts: &'static [Part],
}

const fn script(name: &'static str, parts: &'static [Part]) -> Script {
    Script { name, parts }
}

pub const ALL: [Script; 11] = [
    script("fill", &[fill]),
    script("mixed", &[mixed]),
    script("large-values", &[large_values]),
    script("batches", &[batches]),
    script("multi-get", &[multi_get]),
    script("scans", &[scans]),
    script("snapshots", &[snapshots]),
    script("tables", &[tables]),
    script("compaction", &[compaction]),
    script("recovery", &[fill_and_end, recovery]),
    script("ingest", &[ingest]),
];

/// The store of a row.
pub struct Store {
    pub place: PathBuf,
    pub preset: Preset,
    pub memory: ByteSize,
    /// Bytes of records, in multiples of the memory.
    pub factor: u64,
}

impl Store {
    fn bytes(&self) -> u64 {
        self.memory.0 * self.factor
    }

    fn records(&self) -> u64 {
        self.bytes() / VALUE_BYTES
    }

    fn settings(&self) -> Settings {
        let tier = |name, capacity| Tier::new(self.place.join(name), ByteSize(capacity));
        let fast = (self.bytes() / 4).max(64 << 20);
        Settings {
            preset: Some(self.preset),
            tiers: vec![tier("fast", fast), tier("slow", self.bytes() * 8 + (1 << 30))],
            memory: self.memory,
            durability: Durability::Buffered,
            ..Settings::default()
        }
    }

    fn create(&self) -> Outcome<Db> {
        Ok(Db::create(self.place.join("home"), &self.settings())?)
    }

    fn create_full(&self) -> Outcome<Db> {
        let db = self.create()?;
        put_all(&db, self.records(), 0)?;
        Ok(db)
    }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The value of a key, in its version.
fn value(number: u64, version: u64, bytes: u64) -> Vec<u8> {
    let mut value = vec![0; bytes as usize];
    // Half of it compresses.
    let half = value.len() / 2;
    Random::new(mix(number) ^ version).fill(&mut value[..half]);
    value
}

fn check(number: u64, version: u64, found: Option<&[u8]>) -> Outcome<()> {
    let expected = value(number, version, found.map_or(0, |found| found.len() as u64));
    match found {
        Some(found) if found == expected => Ok(()),
        Some(_) => Err(Failure::from(format!("value {number} is wrong"))),
        None => Err(Failure::from(format!("value {number} is gone"))),
    }
}

/// `work` gets the number of its thread.
fn in_threads(work: impl Fn(u64) -> Outcome<()> + Sync) -> Outcome<()> {
    scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::from("a thread ended in a panic")))
        })
    })
}

/// Each key once, in scattered order, by all threads.
fn put_all(db: &Db, records: u64, version: u64) -> Outcome<()> {
    in_threads(|thread| {
        for rank in (thread..records).step_by(THREADS as usize) {
            let number = scattered(rank, records);
            db.put(key(number), value(number, version, VALUE_BYTES))?;
        }
        Ok(())
    })
}

/// A bijection of ranks and keys: a multiplication by a prime larger than any number of records.
fn scattered(rank: u64, records: u64) -> u64 {
    (u128::from(rank) * 2_305_843_009_213_693_951 % u128::from(records)) as u64
}

fn counted(db: &Db) -> u64 {
    db.stats().memory.used_bytes
}

fn closed(db: Db) -> Outcome<u64> {
    let counted = counted(&db);
    db.close()?;
    Ok(counted)
}

fn fill(store: &Store) -> Outcome<u64> {
    closed(store.create_full()?)
}

/// The process ends without closing the store, with memtables and logs as full as they come.
fn fill_and_end(store: &Store) -> Outcome<u64> {
    let db = store.create_full()?;
    db.sync()?;
    let counted = counted(&db);
    std::mem::forget(db);
    Ok(counted)
}

fn recovery(store: &Store) -> Outcome<u64> {
    let db = Db::open(store.place.join("home"))?;
    for number in (0..store.records()).step_by(997) {
        check(number, 0, db.get(key(number))?.as_deref())?;
    }
    closed(db)
}

/// Half reads, half writes of the same value, popular keys more often.
fn mixed(store: &Store) -> Outcome<u64> {
    let (db, records) = (store.create_full()?, store.records());
    in_threads(|thread| {
        let mut random = Random::new(thread);
        for _ in 0..records / THREADS {
            let up_to = 1 + random.below(records);
            let number = random.below(up_to);
            if random.below(2) == 0 {
                check(number, 0, db.get(key(number))?.as_deref())?;
            } else {
                db.put(key(number), value(number, 0, VALUE_BYTES))?;
            }
        }
        Ok(())
    })?;
    closed(db)
}

/// One thread, since each value in flight is the caller's own memory.
fn large_values(store: &Store) -> Outcome<u64> {
    let (db, records) = (store.create()?, (store.bytes() / LARGE_BYTES).max(2));
    let bytes = LARGE_BYTES.min(store.bytes() / 2);
    for number in 0..records {
        db.put(key(number), value(number, 0, bytes))?;
    }
    for number in 0..records {
        check(number, 0, db.get(key(number))?.as_deref())?;
    }
    for (number, record) in (0..).zip(db.scan()) {
        check(number, 0, Some(&record?.1))?;
    }
    closed(db)
}

fn batches(store: &Store) -> Outcome<u64> {
    let (db, records) = (store.create()?, store.records());
    let at_once = ((store.memory.0 / 8).min(8 << 20) / VALUE_BYTES).max(1);
    let mut number = 0;
    while number < records {
        let mut batch = WriteBatch::new();
        for number in number..(number + at_once).min(records) {
            batch.put(key(scattered(number, records)), value(number, 0, VALUE_BYTES));
        }
        db.write(batch)?;
        number += at_once;
    }
    closed(db)
}

fn multi_get(store: &Store) -> Outcome<u64> {
    let (db, records) = (store.create_full()?, store.records());
    in_threads(|thread| {
        let mut random = Random::new(thread);
        for _ in 0..records / THREADS / KEYS_AT_ONCE {
            let numbers: Vec<u64> = (0..KEYS_AT_ONCE).map(|_| random.below(records)).collect();
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            for (number, found) in numbers.iter().zip(db.multi_get(&keys)?) {
                check(*number, 0, found.as_deref())?;
            }
        }
        Ok(())
    })?;
    closed(db)
}

/// Many scans side by side, each on a part of the keys of its own, a record at a time.
fn scans(store: &Store) -> Outcome<u64> {
    let (db, records) = (store.create_full()?, store.records());
    let share = records / OPEN_SCANS;
    let mut open: Vec<_> = (0..OPEN_SCANS)
        .map(|scan| db.scan().from(key(scan * share)).limit(share).into_iter())
        .collect();
    for at in 0..share {
        for (scan, records) in (0..).zip(&mut open) {
            let (_, found) = records.next().ok_or("a scan ends too soon")??;
            check(scan * share + at, 0, Some(&found))?;
        }
    }
    drop(open);
    closed(db)
}

/// Records are overwritten under snapshots that keep what they had.
fn snapshots(store: &Store) -> Outcome<u64> {
    let (db, records) = (store.create_full()?, store.records());
    let mut held = Vec::new();
    for rank in 0..records {
        if rank % (records / SNAPSHOTS).max(1) == 0 {
            held.push((rank, db.snapshot()));
        }
        let number = scattered(rank, records);
        db.put(key(number), value(number, 1, VALUE_BYTES))?;
    }
    for (then, snapshot) in &held {
        for rank in (0..records).step_by(97) {
            let number = scattered(rank, records);
            let version = u64::from(rank < *then);
            check(number, version, snapshot.get(key(number))?.as_deref())?;
        }
    }
    drop(held);
    closed(db)
}

/// Tables of the least size, all of them open.
fn tables(store: &Store) -> Outcome<u64> {
    let settings = Settings { table_size: ByteSize::kib(64), ..store.settings() };
    let db = Db::create(store.place.join("home"), &settings)?;
    put_all(&db, store.records(), 0)?;
    for number in (0..store.records()).step_by(7) {
        check(number, 0, db.get(key(number))?.as_deref())?;
    }
    closed(db)
}

fn compaction(store: &Store) -> Outcome<u64> {
    let db = store.create_full()?;
    db.compact_range(None, None, &mut |_| {})?;
    closed(db)
}

fn ingest(store: &Store) -> Outcome<u64> {
    let db = store.create()?;
    let mut load = db.ingest();
    for number in 0..store.records() {
        load.add(key(number), value(number, 0, VALUE_BYTES))?;
    }
    load.finish()?;
    for (number, record) in (0..).zip(db.scan()) {
        check(number, 0, Some(&record?.1))?;
    }
    closed(db)
}
