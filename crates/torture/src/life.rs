//! A life of the store: writers write and load, an observer compares snapshots with the model, and
//! the calling thread flushes, compacts and syncs, until the store fails or the process is killed.
//!
//! Used by both kinds of torture: in a child process that is killed, and on a thread whose file
//! systems lose power.

use crate::history::{History, Model, key, stamp_key};
use crate::ledger::{Ledger, Phase};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use thermocline::{
    ByteSize, Db, Durability, Error, ErrorKind, HybridSettings, PersistentMemory, Preset, Settings,
    Ticket, Tier, WriteBatch,
};
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock};

/// The store of an epoch: everything follows from the epoch's seed.
#[derive(Clone, Debug)]
pub struct Epoch {
    pub seed: u64,
    pub writers: usize,
    pub history: History,
    /// Every writer has many writes in flight; else half of them do.
    pub asynchronous: bool,
    /// The driver of a region of persistent memory beside the tiers; none: there is no region.
    pub region: Option<String>,
    driver: &'static str,
    /// Small ones do not hold the deepest level: tables are made on both tiers.
    fast_mib: u64,
    table_kib: u64,
    threads: u32,
    preset: Preset,
    /// Where they are low, records leave a fast tier that has room.
    high_watermark_percent: u32,
}

/// Look-ups after each snapshot that is compared.
const LOOKUPS: u64 = 16;

/// What the fast tier may have. The last is enough for everything.
const FAST_MIB: [u64; 4] = [2, 4, 5, 40];
/// What the slow one has; and where the fast one is enough, half of the time.
const SLOW_MIB: u64 = 64;
const SLOW_MIB_MIN: u64 = 2;

/// The file of a region, and its size.
pub const REGION_NAME: &str = "region";
const REGION_MIB: u64 = 32;

impl Epoch {
    /// The seed of a run's epoch of this number: the first is of the default preset, the next of
    /// the other, and so by turns.
    pub fn seed_of(run_seed: u64, number: u64) -> u64 {
        mix(run_seed ^ mix(number)) & !1 | (number & 1)
    }

    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(mix(seed));
        let sync_every = [1, 4, 16, 100][random.below(4) as usize];
        Self {
            seed,
            writers: 1 + random.below(2) as usize,
            history: History { seed, sync_every },
            asynchronous: false,
            region: None,
            driver: ["posix", "direct"][random.below(2) as usize],
            fast_mib: FAST_MIB[random.below(4) as usize],
            table_kib: 64 << random.below(3),
            threads: 1 + random.below(2) as u32,
            preset: if seed.is_multiple_of(2) { Preset::Hybrid } else { Preset::Leveled },
            high_watermark_percent: [98, 40, 15][random.below(3) as usize],
        }
    }

    /// The same, with or without many writes in flight of every writer.
    pub fn asynchronous(self, asynchronous: bool) -> Self {
        Self { asynchronous, ..self }
    }

    /// The same with a region of this driver, if one is named: with an index in it, or in every
    /// other epoch with memtables alone, where the driver has such.
    pub fn with_region(self, driver: Option<&str>) -> Self {
        let Some(driver) = driver else { return self };
        let has_index = self.preset == Preset::Hybrid || driver == "mapped";
        let preset = if has_index { Preset::Indexed } else { Preset::Leveled };
        Self { region: Some(driver.to_owned()), preset, ..self }
    }

    /// The preset of an opening: every fourth one gives up an index, and the next makes another.
    fn preset_of(&self, opening: u64) -> Preset {
        let is_changed = mix(self.seed ^ mix(opening) ^ 0x70_7265).is_multiple_of(4);
        match self.preset {
            Preset::Indexed if is_changed => Preset::Leveled,
            preset => preset,
        }
    }

    /// What the tiers have from one opening to the next, in MiB: every other time not what the
    /// epoch says, so that what lies on one tier belongs on the other and moves. In a life of a
    /// tenth of a second nothing else has tables move.
    fn capacities(&self, opening: u64) -> (u64, u64) {
        let mut random = Random::new(mix(self.seed) ^ mix(opening));
        let fast_mib = match random.below(2) {
            0 => self.fast_mib,
            _ => FAST_MIB[random.below(4) as usize],
        };
        let holds_all = Some(&fast_mib) == FAST_MIB.last();
        let is_tight = holds_all && random.below(2) == 0;
        (fast_mib, if is_tight { SLOW_MIB_MIN } else { SLOW_MIB })
    }

    /// Settings of a small store whose data soon outgrows memory, level 0 and tables.
    pub fn settings(&self, fast: &Path, slow: &Path, opening: u64) -> Settings {
        let (fast_mib, slow_mib) = self.capacities(opening);
        let tier =
            |path: &Path, mib| Tier::new(path.join("tier"), ByteSize::mib(mib)).driver(self.driver);
        let high_watermark_percent = self.high_watermark_percent;
        let hybrid = HybridSettings { high_watermark_percent, ..HybridSettings::default() };
        let preset = self.preset_of(opening);
        // A file that may be no persistent memory is not named for memtables.
        let is_named = |driver: &&String| preset == Preset::Indexed || *driver != "mapped";
        let region = |driver: &String| {
            PersistentMemory::new(fast.join(REGION_NAME), ByteSize::mib(REGION_MIB)).driver(driver)
        };
        Settings {
            preset: Some(preset),
            persistent_memory: self.region.as_ref().filter(is_named).map(region),
            hybrid,
            tiers: vec![tier(fast, fast_mib), tier(slow, slow_mib)],
            memory: ByteSize::mib(8),
            table_size: ByteSize::kib(self.table_kib),
            background_sync_bytes: ByteSize::kib(256),
            log_writes: 1 + 3 * (self.seed / 2 % 2) as u32,
            background_threads: self.threads,
            level0_tables: 2,
            ..Settings::default()
        }
    }
}

/// Opens the store whose home is on the fast side, or makes it; `opening`, any number, says which
/// capacities its tiers have until the next.
pub fn open(epoch: &Epoch, fast: &Path, slow: &Path, opening: u64) -> Result<Db, Error> {
    Db::open_or_create(fast.join("home"), &epoch.settings(fast, slow, opening))
}

/// Tables that have moved between the tiers since `db` was opened.
pub fn moved(db: &Db) -> u64 {
    db.stats().operations.migrations
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

/// Writes and maintains until the store fails, which stops all threads, or `ledger.stop` is set.
/// Returns the first failure that came before the power was cut.
pub fn live(db: &Db, epoch: &Epoch, ledger: &Ledger, seed: u64) -> Option<String> {
    let failure = Mutex::new(None);
    let from = match stamps(db, epoch.writers).and_then(|from| {
        ledger.resume(&from)?;
        Ok(from)
    }) {
        Ok(from) => from,
        Err(text) => return (!ledger.is_cut.load(SeqCst)).then_some(text),
    };
    let failed = |action: &str, error: Error| {
        if !ledger.is_cut.load(SeqCst) {
            failure.lock().get_or_insert_with(|| format!("{action} failed: {error}"));
        }
        ledger.stop.store(true, SeqCst);
    };
    std::thread::scope(|scope| {
        for (writer, stamp) in from.into_iter().enumerate() {
            let (failed, seed) = (&failed, mix(seed) ^ writer as u64);
            scope.spawn(move || write(db, epoch, ledger, (writer, stamp), seed, failed));
        }
        scope.spawn(|| {
            let models = (0..epoch.writers).map(|it| Model::new(epoch.history, it));
            let mut models: Vec<_> = models.collect();
            if let Err(text) = observe(db, &mut models, ledger, seed, &failed) {
                failure.lock().get_or_insert(text);
                ledger.stop.store(true, SeqCst);
            }
        });
        maintain(db, ledger, seed, &failed);
    });
    ledger.migrated.store(moved(db), SeqCst);
    failure.into_inner()
}

type Failed<'a> = &'a (dyn Fn(&str, Error) + Sync);

/// What a writer has handed in and heard nothing of.
struct Flying {
    stamp: u64,
    /// What is promised once it is acknowledged, if it is written durably: all that was
    /// acknowledged when it was handed in, and all of its own writer, whose writes go in order.
    promised: Option<Vec<u64>>,
    ticket: Ticket<()>,
}

/// A writer at work. Half of them wait for each write, the others have many in flight.
struct Writer<'a> {
    db: &'a Db,
    history: History,
    ledger: &'a Ledger,
    writer: usize,
    /// Writes in flight at most; one: none at all, each is waited for.
    flying_max: usize,
    flying: VecDeque<Flying>,
}

impl Writer<'_> {
    fn write(&mut self, stamp: u64) -> Result<(), Error> {
        let is_ingest = self.history.is_ingest(self.writer, stamp);
        let durability = self.history.durability(self.writer, stamp);
        let is_durable = is_ingest || durability == Durability::Sync;
        if is_ingest {
            // A bulk load comes behind nothing that waits.
            self.hear(0)?;
        }
        let promised = is_durable.then(|| {
            let mut covered = self.ledger.acknowledged();
            covered[self.writer] = stamp;
            covered
        });
        self.ledger.submit(self.writer, stamp);
        if is_ingest {
            load(self.db, self.history.ingest(self.writer, stamp))?;
        } else if self.flying_max == 1 {
            self.db.write_with(self.history.batch(self.writer, stamp), durability)?;
        } else {
            let ticket = self.hand_in(self.history.batch(self.writer, stamp), durability)?;
            self.flying.push_back(Flying { stamp, promised, ticket });
            return self.hear(self.flying_max);
        }
        self.acknowledged(stamp, promised);
        Ok(())
    }

    /// Hands a batch in, when there is room for it.
    fn hand_in(
        &mut self,
        mut batch: WriteBatch,
        durability: Durability,
    ) -> Result<Ticket<()>, Error> {
        loop {
            match self.db.write_async(&mut batch, durability) {
                Err(error) if error.kind() == ErrorKind::Busy => {
                    self.hear(self.flying.len().saturating_sub(1))?;
                }
                handed_in => return handed_in,
            }
        }
    }

    /// Waits until no more than `left` writes are in flight, and hears of all that are answered.
    fn hear(&mut self, left: usize) -> Result<(), Error> {
        while let Some(mut oldest) = self.flying.pop_front() {
            let must_wait = self.flying.len() >= left;
            match oldest.ticket.poll_now() {
                Some(answer) => answer?,
                None if must_wait => oldest.ticket.wait()?,
                None => {
                    self.flying.push_front(oldest);
                    return Ok(());
                }
            }
            self.acknowledged(oldest.stamp, oldest.promised);
        }
        Ok(())
    }

    fn acknowledged(&self, stamp: u64, promised: Option<Vec<u64>>) {
        self.ledger.acknowledge(self.writer, stamp);
        if let Some(promised) = promised {
            self.ledger.promise(&promised);
        }
    }
}

fn write(
    db: &Db,
    epoch: &Epoch,
    ledger: &Ledger,
    (writer, mut stamp): (usize, u64),
    seed: u64,
    failed: Failed<'_>,
) {
    let mut random = Random::new(seed);
    // Some writers hurry, some leave time for the background to overtake them.
    let pause_every = [2, 20, 1000][random.below(3) as usize];
    let choices = if epoch.asynchronous { [8, 300, 8, 300] } else { [1, 1, 8, 300] };
    let flying_max = choices[random.below(4) as usize];
    let (history, flying) = (epoch.history, VecDeque::new());
    let mut at_work = Writer { db, history, ledger, writer, flying_max, flying };
    let clock = SystemClock::new();
    while !ledger.stop.load(SeqCst) {
        stamp += 1;
        if let Err(error) = at_work.write(stamp) {
            return failed("a write", error);
        }
        if random.below(pause_every) == 0 {
            clock.sleep(Duration::from_micros(random.below(2000)));
        }
    }
    if let Err(error) = at_work.hear(0) {
        failed("a write", error);
    }
}

fn load(db: &Db, records: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    let mut ingest = db.ingest();
    for (key, value) in records {
        ingest.add(key, value)?;
    }
    ingest.finish()
}

/// Takes snapshots while everything goes on, and compares what each shows of a writer with the
/// prefix that it says it is.
fn observe(
    db: &Db,
    models: &mut [Model],
    ledger: &Ledger,
    seed: u64,
    failed: Failed<'_>,
) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0x0062_7365);
    let clock = SystemClock::new();
    while !ledger.stop.load(SeqCst) {
        clock.sleep(Duration::from_micros(random.below(10_000)));
        let model = &mut models[random.below(models.len() as u64) as usize];
        let snapshot = db.snapshot();
        if random.below(2) == 0 {
            // Long enough for a flush or a compaction to come between.
            clock.sleep(Duration::from_micros(random.below(10_000)));
        }
        let shown = snapshot.get(stamp_key(model.writer())).and_then(|stamp| {
            let prefix = format!("w{}/", model.writer());
            let records = snapshot.scan().prefix(prefix).into_iter();
            Ok((stamp, records.collect::<Result<Vec<_>, Error>>()?))
        });
        let (stamp, records) = match shown {
            Ok(shown) => shown,
            Err(error) => {
                failed("a read", error);
                return Ok(());
            }
        };
        let stamp =
            stamp.and_then(|bytes| Some(u64::from_le_bytes(bytes.as_ref().try_into().ok()?)));
        model.advance(stamp.unwrap_or(0));
        let expected: Vec<_> = model.records().collect();
        let same = std::iter::zip(&records, &expected)
            .position(|(record, expected)| record.0 != expected.0 || record.1 != expected.1);
        if same.is_some() || records.len() != expected.len() {
            return Err(format!(
                "a snapshot of writer {} at batch {stamp:?} has {} records, expected {}; the first \
                 difference is at {same:?}",
                model.writer(),
                records.len(),
                expected.len()
            ));
        }
        match look_up(db, model, &mut random) {
            Ok(None) => {}
            Ok(Some(wrong)) => return Err(wrong),
            Err(error) => {
                failed("a look-up", error);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Looks records up, which may be newer than the model and not older, and says what is wrong. What
/// is asked for again and again moves between the tiers.
fn look_up(db: &Db, model: &Model, random: &mut Random) -> Result<Option<String>, Error> {
    for _ in 0..LOOKUPS {
        let number = match random.below(2) {
            0 => random.below(LOOKUPS) as u32,
            _ => model.any_key(random),
        };
        let key = key(model.writer(), number);
        let found = db.get(&key)?;
        if found.is_some_and(|found| !model.is_at_least_as_new(number, &found)) {
            return Ok(Some(format!("a look-up of {key} shows an older value, or another's")));
        }
    }
    Ok(None)
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
