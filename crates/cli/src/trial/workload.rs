//! The clients of a trial: some seconds of reads, updates and scans, each timed.
//!
//! Of 100 operations 80 read a value, 15 update one and 5 scan ten records. Ranks are drawn from a
//! Zipf distribution (0.99, as in YCSB); the corpus is shuffled, which scatters them over the keys.
//! A client updates only records of its own, so what it wrote last is what the store must hold.

use super::corpus::{Corpus, Sample};
use super::zipf::Zipf;
use crate::failure::{Failure, Result};
use crate::progress::Bar;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use thermocline::{Db, Durability, WriteBatch};
use thermocline_device::drivers::host_files;
use thermocline_foundation::{Clock, SystemClock, random::Random, threads};

const READ_PERCENT: u64 = 80;
const UPDATE_PERCENT: u64 = 15;
const SCAN_RECORDS: u64 = 10;
const THETA: f64 = 0.99;

/// What operations of one kind took.
#[derive(Debug, Serialize)]
pub struct Latencies {
    pub name: &'static str,
    pub count: u64,
    pub per_second: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// How often each record of the corpus was updated.
pub type Updates = Vec<u32>;

/// What an updated record holds besides the file's content.
pub fn trailer(updates: u32) -> String {
    match updates {
        0 => String::new(),
        updates => format!("\nthermocline update {updates}\n"),
    }
}

/// What a client needs to know of the trial.
struct Shared {
    db: Db,
    samples: Vec<(Vec<u8>, std::path::PathBuf, u64)>,
    updates: Vec<AtomicU32>,
    zipf: Zipf,
    clients: usize,
    clock: SystemClock,
    end_ns: u64,
}

/// Latencies of a client in nanoseconds: reads, updates, scans.
type Timings = [Vec<u64>; 3];

/// Runs the clients for `duration`.
pub fn run(db: &Db, corpus: &Corpus, duration: Duration) -> Result<(Vec<Latencies>, Updates)> {
    let clients = threads::available().clamp(2, 8);
    let clock = SystemClock::new();
    let describe = |sample: &Sample| (sample.key().to_vec(), sample.path.clone(), sample.len);
    let shared = Arc::new(Shared {
        db: db.clone(),
        samples: corpus.samples().iter().map(describe).collect(),
        updates: (0..corpus.len()).map(|_| AtomicU32::new(0)).collect(),
        zipf: Zipf::new(corpus.len(), THETA),
        clients,
        end_ns: clock.now_ns() + duration.as_nanos() as u64,
        clock,
    });
    let bar = Bar::seconds("serving", duration);
    let mut handles = Vec::new();
    for client in 0..clients {
        let shared = Arc::clone(&shared);
        let handle = threads::spawn("client", move || shared.serve(client));
        handles
            .push(handle.map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?);
    }
    while shared.clock.now_ns() < shared.end_ns {
        shared.clock.sleep(Duration::from_millis(50));
        bar.elapsed(Duration::from_nanos(shared.clock.now_ns()));
    }
    let mut timings = Timings::default();
    for handle in handles {
        let client =
            handle.join().map_err(|_| Failure::new("a client of the trial broke off"))??;
        timings.iter_mut().zip(client).for_each(|(all, mut one)| all.append(&mut one));
    }
    let summaries = ["read", "update", "scan of 10"]
        .into_iter()
        .zip(timings)
        .map(|(name, timings)| summary(name, timings, duration))
        .collect();
    let updates = shared.updates.iter().map(|count| count.load(Relaxed)).collect();
    Ok((summaries, updates))
}

fn summary(name: &'static str, mut timings: Vec<u64>, duration: Duration) -> Latencies {
    timings.sort_unstable();
    let at = |share: f64| {
        let index = (timings.len() as f64 * share) as usize;
        timings.get(index.min(timings.len().saturating_sub(1))).copied().unwrap_or(0)
    };
    Latencies {
        name,
        count: timings.len() as u64,
        per_second: timings.len() as f64 / duration.as_secs_f64(),
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        max_ns: timings.last().copied().unwrap_or(0),
    }
}

impl Shared {
    /// One client's operations until the time is over.
    fn serve(&self, client: usize) -> Result<Timings> {
        let mut random = Random::new(client as u64);
        let mut timings = Timings::default();
        while self.clock.now_ns() < self.end_ns {
            let rank = self.zipf.draw(&mut random);
            let dice = random.below(100);
            if dice < READ_PERCENT {
                timings[0].push(self.read(rank)?);
            } else if dice < READ_PERCENT + UPDATE_PERCENT {
                timings[1].push(self.update(self.own(rank, client))?);
            } else {
                timings[2].push(self.scan(rank)?);
            }
        }
        Ok(timings)
    }

    /// The client's own record next to `rank`.
    fn own(&self, rank: usize, client: usize) -> usize {
        let own = rank - rank % self.clients + client;
        if own < self.samples.len() { own } else { client.min(self.samples.len() - 1) }
    }

    fn timed<T>(&self, work: impl FnOnce() -> thermocline::Result<T>) -> Result<(T, u64)> {
        let start = self.clock.now_ns();
        let result = work()?;
        Ok((result, self.clock.now_ns() - start))
    }

    fn read(&self, rank: usize) -> Result<u64> {
        let (key, path, len) = &self.samples[rank];
        let (value, took) = self.timed(|| self.db.get(key))?;
        match value {
            Some(value) if value.len() as u64 >= *len => Ok(took),
            Some(_) => Err(Failure::new(format!("the value of {} is cut", path.display()))),
            None => Err(Failure::new(format!("the value of {} is gone", path.display()))),
        }
    }

    fn update(&self, rank: usize) -> Result<u64> {
        let (key, path, len) = &self.samples[rank];
        // A file that changed or went away meanwhile is not updated any more.
        let content = host_files::read(path, *len).ok();
        let Some(mut value) = content.filter(|content| content.len() as u64 == *len) else {
            return Ok(0);
        };
        let count = self.updates[rank].load(Relaxed) + 1;
        value.extend_from_slice(trailer(count).as_bytes());
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        let ((), took) = self.timed(|| self.db.write_with(batch, Durability::Buffered))?;
        self.updates[rank].store(count, Relaxed);
        Ok(took)
    }

    fn scan(&self, rank: usize) -> Result<u64> {
        let (key, path, _) = &self.samples[rank];
        let scan = || {
            let scan = self.db.scan().from(key.clone()).limit(SCAN_RECORDS);
            scan.into_iter().collect::<thermocline::Result<Vec<_>>>()
        };
        let (records, took) = self.timed(scan)?;
        let first = records.first().is_some_and(|(found, _)| found == key);
        let ordered = records.is_sorted_by(|a, b| a.0 < b.0);
        if first && ordered {
            return Ok(took);
        }
        Err(Failure::new(format!("a scan from {} gave other records", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_sorted_timings() {
        let summary = summary("read", (1..=100).rev().collect(), Duration::from_secs(2));
        assert_eq!((summary.count, summary.p50_ns, summary.p99_ns), (100, 51, 100));
        assert_eq!((summary.max_ns, summary.per_second), (100, 50.0));
    }
}
