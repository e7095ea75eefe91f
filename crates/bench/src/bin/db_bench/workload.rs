//! One benchmark: threads that each do their share of the operations, timed one by one.
//!
//! A thread draws keys from a generator of its own, seeded by the run's seed, the benchmark's place
//! in the run and the thread. It is timed from before the call to after it, by the clock of
//! `foundation`; making keys and values and checking answers lies outside an operation's time and
//! inside the benchmark's.

use crate::Failure;
use crate::arguments::{Arguments, Name};
use crate::records::Records;
use crate::report::{Moment, Outcome};
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline::{Db, Stats};
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock, threads};

/// Steps after a seek.
const NEXTS: usize = 10;

/// A store under test.
pub struct Bench {
    shared: Arc<Shared>,
    threads: u16,
    reads: u64,
    run: AtomicU64,
}

struct Shared {
    db: Db,
    records: Records,
    clock: SystemClock,
    seed: u64,
    /// The other threads are done; the writer beside them stops.
    over: AtomicBool,
}

/// What one thread does.
#[derive(Clone, Copy)]
struct Share {
    name: Name,
    run: u64,
    thread: u64,
    threads: u64,
    operations: u64,
}

/// What one thread saw.
struct Seen {
    latencies: Histogram<u64>,
    absent: u64,
}

impl Bench {
    /// Prepares to measure `db`; `fresh` says that it is empty.
    pub fn new(db: Db, arguments: &Arguments, fresh: bool) -> Result<Self, Failure> {
        let threads = u64::from(arguments.threads);
        if arguments.num == 0 || !arguments.num.is_multiple_of(threads) {
            let text = format!("--num must be a multiple of {threads}, the number of threads");
            return Err(text.into());
        }
        let (keys, values) = (arguments.key_size, arguments.value_size);
        let records = Records::new(arguments.num, keys, values, arguments.compression_ratio, fresh);
        let (clock, over) = (SystemClock::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { db, records, clock, seed: arguments.seed, over });
        let reads = arguments.reads.unwrap_or(arguments.num).max(threads);
        Ok(Self { shared, threads: arguments.threads, reads, run: AtomicU64::new(0) })
    }

    /// The store's statistics.
    pub fn stats(&self) -> Stats {
        self.shared.db.stats()
    }

    /// Closes the store.
    pub fn close(self) -> thermocline::Result<()> {
        self.shared.db.clone().close()
    }

    /// Runs one benchmark.
    pub fn run(&self, name: Name) -> Result<Outcome, Failure> {
        let threads = match name {
            Name::ReadSeq | Name::WaitForCompaction => 1,
            _ => self.threads,
        };
        let operations = match name {
            Name::FillSeq | Name::FillRandom | Name::Overwrite => self.shared.records.num(),
            _ => self.reads,
        };
        let run = self.run.fetch_add(1, Relaxed);
        let share = Share {
            name,
            run,
            thread: 0,
            threads: threads.into(),
            operations: operations / u64::from(threads),
        };
        self.shared.over.store(false, Relaxed);
        let before = self.moment();
        let writer = match name {
            Name::ReadWhileWriting => Some(self.start(Share { threads: 1, ..share }, true)?),
            _ => None,
        };
        let handles: Vec<_> = (0..threads.into())
            .map(|thread| self.start(Share { thread, ..share }, false))
            .collect::<Result<_, _>>()?;
        let mut latencies = histogram()?;
        let mut absent = 0;
        for handle in handles {
            let seen = handle.join().map_err(|_| "a thread of the bench broke off")??;
            latencies.add(&seen.latencies)?;
            absent += seen.absent;
        }
        let after = self.moment();
        self.shared.over.store(true, Relaxed);
        if let Some(writer) = writer {
            writer.join().map_err(|_| "the writing thread broke off")??;
        }
        Ok(Outcome::new(name, threads, &latencies, absent, (&before, &after)))
    }

    fn moment(&self) -> Moment {
        Moment::new(self.shared.clock.now_ns(), self.shared.db.stats())
    }

    fn start(
        &self,
        share: Share,
        beside: bool,
    ) -> Result<std::thread::JoinHandle<Result<Seen, Failure>>, Failure> {
        let shared = Arc::clone(&self.shared);
        Ok(threads::spawn("bench", move || shared.work(share, beside))?)
    }
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new(3)?)
}

impl Shared {
    fn work(&self, share: Share, beside: bool) -> Result<Seen, Failure> {
        let mut seen = Seen { latencies: histogram()?, absent: 0 };
        let salt = share.run << 32 | share.thread << 1 | u64::from(beside);
        let mut random = Random::new(mix(self.seed) ^ mix(salt));
        match share.name {
            Name::FillSeq => {
                self.write(share, &mut seen, |index| share.thread * share.operations + index)
            }
            Name::FillRandom | Name::Overwrite => {
                self.write(share, &mut seen, |_| self.own(random.below(self.records.num()), share))
            }
            Name::ReadWhileWriting if beside => self.write_until_over(share, &mut seen, random),
            Name::ReadRandom | Name::ReadWhileWriting => self.read(share, &mut seen, random),
            Name::ReadMissing => self.read_missing(share, &mut seen, random),
            Name::ReadSeq => self.read_in_order(&mut seen),
            Name::SeekRandom => self.seek(share, &mut seen, random),
            Name::WaitForCompaction => {
                let start = self.clock.now_ns();
                self.db.settle()?;
                self.time(start, &mut seen)
            }
        }?;
        Ok(seen)
    }

    fn time(&self, start: u64, seen: &mut Seen) -> Result<(), Failure> {
        Ok(seen.latencies.record(self.clock.now_ns() - start)?)
    }

    /// The thread's own key next to `number`.
    fn own(&self, number: u64, share: Share) -> u64 {
        number - number % share.threads + share.thread
    }

    fn put(
        &self,
        number: u64,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        self.records.key(number, key);
        let version = self.records.next_value(number, value);
        let start = self.clock.now_ns();
        self.db.put(&key, &value)?;
        self.time(start, seen)?;
        self.records.written(number, version);
        Ok(())
    }

    fn write(
        &self,
        share: Share,
        seen: &mut Seen,
        mut number: impl FnMut(u64) -> u64,
    ) -> Result<(), Failure> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for index in 0..share.operations {
            self.put(number(index), (&mut key, &mut value), seen)?;
        }
        Ok(())
    }

    fn write_until_over(
        &self,
        share: Share,
        seen: &mut Seen,
        mut random: Random,
    ) -> Result<(), Failure> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while !self.over.load(Relaxed) {
            let number = self.own(random.below(self.records.num()), share);
            self.put(number, (&mut key, &mut value), seen)?;
        }
        Ok(())
    }

    fn read(&self, share: Share, seen: &mut Seen, mut random: Random) -> Result<(), Failure> {
        let mut key = Vec::new();
        for _ in 0..share.operations {
            let number = random.below(self.records.num());
            self.records.key(number, &mut key);
            let before = self.records.version(number);
            let start = self.clock.now_ns();
            let value = self.db.get(&key)?;
            self.time(start, seen)?;
            self.records.check(number, before, value.as_deref())?;
            seen.absent += u64::from(value.is_none());
        }
        Ok(())
    }

    fn read_missing(
        &self,
        share: Share,
        seen: &mut Seen,
        mut random: Random,
    ) -> Result<(), Failure> {
        let mut key = Vec::new();
        for _ in 0..share.operations {
            self.records.key(random.below(self.records.num()), &mut key);
            // One byte longer than any key that is written, and beside one of them.
            key.push(b'.');
            let start = self.clock.now_ns();
            let value = self.db.get(&key)?;
            self.time(start, seen)?;
            if value.is_some() {
                return Err(format!("a key that was never written, {key:?}, has a value").into());
            }
            seen.absent += 1;
        }
        Ok(())
    }

    fn read_in_order(&self, seen: &mut Seen) -> Result<(), Failure> {
        let mut cursor = self.db.cursor();
        let mut expected = 0;
        let mut start = self.clock.now_ns();
        cursor.seek_to_first()?;
        while cursor.valid() {
            self.time(start, seen)?;
            let number = self.number_of(cursor.key())?;
            self.all_absent(expected..number)?;
            self.records.check(number, self.records.version(number), Some(cursor.value()))?;
            expected = number + 1;
            start = self.clock.now_ns();
            cursor.next()?;
        }
        self.all_absent(expected..self.records.num())
    }

    fn seek(&self, share: Share, seen: &mut Seen, mut random: Random) -> Result<(), Failure> {
        let mut key = Vec::new();
        let mut found = Vec::with_capacity(NEXTS + 1);
        for _ in 0..share.operations {
            let from = random.below(self.records.num());
            self.records.key(from, &mut key);
            found.clear();
            let start = self.clock.now_ns();
            let mut cursor = self.db.cursor();
            cursor.seek(&key)?;
            for _ in 0..=NEXTS {
                if !cursor.valid() {
                    break;
                }
                found.push((self.number_of(cursor.key())?, cursor.value().clone()));
                cursor.next()?;
            }
            self.time(start, seen)?;
            let mut expected = from;
            for (number, value) in &found {
                self.all_absent(expected..*number)?;
                self.records.check(*number, self.records.version(*number), Some(value))?;
                expected = number + 1;
            }
        }
        Ok(())
    }

    fn number_of(&self, key: &[u8]) -> Result<u64, Failure> {
        let number = self.records.number(key).filter(|number| *number < self.records.num());
        number.ok_or_else(|| format!("key {key:?} was never written").into())
    }

    /// A walk that passes over keys must not have passed over one that was written.
    fn all_absent(&self, mut numbers: std::ops::Range<u64>) -> Result<(), Failure> {
        match numbers.find(|number| self.records.version(*number) > 0) {
            Some(number) => Err(format!("a walk passed over key {number}, which exists").into()),
            None => Ok(()),
        }
    }
}
