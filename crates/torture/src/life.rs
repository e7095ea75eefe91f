//! A life of the store: writers write, and a maintenance thread flushes, compacts and syncs, until
//! the store fails or the process is killed.
//!
//! Used by both kinds of torture: in a child process that is killed, and on a thread whose file
//! systems lose power.

use crate::history::{History, stamp_key};
use crate::ledger::{Ledger, Phase};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use thermocline::{ByteSize, Db, Durability, Error, Settings, Tier};
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock};

/// The store of an epoch: everything follows from the epoch's seed.
#[derive(Clone, Debug)]
pub struct Epoch {
    pub seed: u64,
    pub writers: usize,
    pub history: History,
    driver: &'static str,
    table_kib: u64,
    threads: u32,
}

impl Epoch {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(mix(seed));
        let sync_every = [1, 4, 16, 100][random.below(4) as usize];
        Self {
            seed,
            writers: 1 + random.below(2) as usize,
            history: History { seed, sync_every },
            driver: ["posix", "direct"][random.below(2) as usize],
            table_kib: 64 << random.below(3),
            threads: 1 + random.below(2) as u32,
        }
    }

    /// Settings of a small store whose data soon outgrows memory, level 0 and tables.
    pub fn settings(&self, fast: &Path, slow: &Path) -> Settings {
        let tier =
            |path: &Path, mib| Tier::new(path.join("tier"), ByteSize::mib(mib)).driver(self.driver);
        Settings {
            tiers: vec![tier(fast, 40), tier(slow, 64)],
            memory: ByteSize::mib(8),
            table_size: ByteSize::kib(self.table_kib),
            background_sync_bytes: ByteSize::kib(256),
            background_threads: self.threads,
            level0_tables: 2,
            ..Settings::default()
        }
    }
}

/// Opens the store whose home is on the fast side, or makes it.
pub fn open(epoch: &Epoch, fast: &Path, slow: &Path) -> Result<Db, Error> {
    Db::open_or_create(fast.join("home"), &epoch.settings(fast, slow))
}

/// How far each writer came, as the store itself says.
pub fn stamps(db: &Db, writers: usize) -> Result<Vec<u64>, String> {
    let stamp = |writer| {
        let Some(bytes) = db.get(stamp_key(writer)).map_err(|error| error.to_string())? else {
            return Ok(0);
        };
        let bytes = bytes.as_ref().try_into();
        let bytes =
            bytes.map_err(|_| format!("the stamp of writer {writer} has a wrong length"))?;
        Ok(u64::from_le_bytes(bytes))
    };
    (0..writers).map(stamp).collect()
}

/// Writes and maintains until the store fails, which stops all threads, or somebody says stop.
/// Returns the first failure that came while nobody was cutting the power.
pub fn live(db: &Db, epoch: &Epoch, ledger: &Ledger, seed: u64) -> Option<String> {
    let failure = Mutex::new(None);
    let from = ledger.acknowledged();
    let failed = |action: &str, error: Error| {
        if !ledger.is_cut.load(SeqCst) {
            failure.lock().get_or_insert_with(|| format!("{action} failed: {error}"));
        }
        ledger.stop.store(true, SeqCst);
    };
    std::thread::scope(|scope| {
        for (writer, stamp) in from.into_iter().enumerate() {
            let (failed, seed) = (&failed, mix(seed) ^ writer as u64);
            scope.spawn(move || write(db, epoch.history, ledger, (writer, stamp), seed, failed));
        }
        maintain(db, ledger, seed, &failed);
    });
    failure.into_inner()
}

type Failed<'a> = &'a (dyn Fn(&str, Error) + Sync);

fn write(
    db: &Db,
    history: History,
    ledger: &Ledger,
    (writer, mut stamp): (usize, u64),
    seed: u64,
    failed: Failed<'_>,
) {
    let mut random = Random::new(seed);
    // Some writers hurry, some leave time for the background to overtake them.
    let pause_every = [2, 20, 1000][random.below(3) as usize];
    let clock = SystemClock::new();
    while !ledger.stop.load(SeqCst) {
        stamp += 1;
        let batch = history.batch(writer, stamp);
        let durability = history.durability(writer, stamp);
        let mut covered = ledger.acknowledged();
        covered[writer] = stamp;
        ledger.submit(writer, stamp);
        if let Err(error) = db.write_with(batch, durability) {
            return failed("a write", error);
        }
        ledger.acknowledge(writer, stamp);
        if durability == Durability::Sync {
            ledger.promise(&covered);
        }
        if random.below(pause_every) == 0 {
            clock.sleep(Duration::from_micros(random.below(2000)));
        }
    }
}

fn maintain(db: &Db, ledger: &Ledger, seed: u64, failed: Failed<'_>) {
    let mut random = Random::new(seed ^ 0x6D61_696E);
    let clock = SystemClock::new();
    while !ledger.stop.load(SeqCst) {
        clock.sleep(Duration::from_micros(random.below(8_000)));
        let covered = ledger.acknowledged();
        let (action, result) = match random.below(4) {
            0 => ("a sync", db.sync()),
            1 | 2 => {
                ledger.begin(Phase::Flush);
                ("a flush", db.flush())
            }
            _ => {
                ledger.begin(Phase::Compaction);
                ("a compaction", db.compact_range(None, None, &mut |_| {}))
            }
        };
        match result {
            // Each of the three ends with everything before it in tables or synced logs.
            Ok(()) => ledger.promise(&covered),
            Err(error) => return failed(action, error),
        }
        ledger.begin(Phase::Other);
    }
}
