//! What the front counts of groups and of their way to the log.
//!
//! The thread that leads a group counts it, once: a few relaxed additions on lines that no reader
//! or writer without a group touches. The clock is read once for a group, and once more where it
//! was written durably.
//!
//! Threads: any.

use serde::{Deserialize, Serialize};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Sizes of groups that are told apart: 1, 2, up to 4, up to 8, and so on.
const SIZES: usize = 10;
/// Parts of each doubling of a time.
const PARTS: usize = 4;
/// The first doubling begins here, in nanoseconds.
const SHORTEST_NS_LOG2: usize = 10;
/// Doublings of times: up to 34 s.
const DOUBLINGS: usize = 25;
/// A durable write that takes longer is a slow one, which the process's log tells of.
const SLOW_NS: u64 = 1_000_000_000;

/// Groups of writes and their log, since the opening.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStats {
    /// Groups of writes, each led by one writer.
    pub groups: u64,
    /// Batches in them.
    pub batches: u64,
    /// Groups of 1 batch, of 2, of 3 to 4, of 5 to 8, and so on; the last has all that are larger.
    pub group_sizes: Vec<u64>,
    /// Groups that were written durably.
    pub durable_groups: u64,
    /// Bytes of these, as batches.
    pub durable_bytes: u64,
    /// The sum of their times, in seconds. With `log_writes` above 1 they overlap.
    pub durable_s: f64,
    /// Half of them took no longer than this, in seconds; 0 before the first. Waiting in line, and
    /// for a memtable, is not in it.
    pub p50_s: f64,
    /// 99 of 100 took no longer.
    pub p99_s: f64,
    /// Those that took longer than a second.
    pub slow: u64,
    /// Bytes of the log that groups left empty behind them, because the next one flew beside them.
    pub padding_bytes: u64,
    /// Times that a group waited for the one before it, so that less of the log is empty.
    pub padding_waits: u64,
    /// Groups that are on their way at this moment.
    pub flying: u64,
    /// For how long the oldest of them has been, in seconds.
    pub oldest_flying_s: f64,
    /// Times that writers waited for a memtable to be flushed.
    pub memtable_stalls: u64,
    /// Seconds of that.
    pub memtable_stalled_s: f64,
    /// Times that writers waited for the next log to be made.
    pub log_stalls: u64,
    /// Seconds of that.
    pub log_stalled_s: f64,
}

impl LogStats {
    /// Bytes a second of a durable write, while it was under way.
    pub fn bytes_per_s(&self) -> f64 {
        if self.durable_s > 0.0 { self.durable_bytes as f64 / self.durable_s } else { 0.0 }
    }
}

/// A kind of wait: how often, and for how long.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Stalls {
    pub fn add(&self, ns: u64) {
        self.count.fetch_add(1, Relaxed);
        self.ns.fetch_add(ns, Relaxed);
    }
}

/// How many times there were of about which length.
#[derive(Debug)]
struct Times {
    buckets: [AtomicU64; DOUBLINGS * PARTS],
}

impl Default for Times {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Times {
    fn add(&self, ns: u64) {
        self.buckets[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// The time that `percent` of all were no longer than, in seconds, rounded up by a
    /// quarter at most; 0 where there is none.
    fn percentile(&self, percent: u64) -> f64 {
        let counts: Vec<u64> = self.buckets.iter().map(|count| count.load(Relaxed)).collect();
        let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        for (at, count) in counts.into_iter().enumerate() {
            seen += count;
            if count > 0 && seen >= wanted {
                return end_ns(at) as f64 / 1e9;
            }
        }
        0.0
    }
}

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(1 << SHORTEST_NS_LOG2);
    let doubling = ns.ilog2() as usize;
    let part = (ns >> (doubling - PARTS.ilog2() as usize)) as usize % PARTS;
    ((doubling - SHORTEST_NS_LOG2) * PARTS + part).min(DOUBLINGS * PARTS - 1)
}

/// The longest time of a bucket, and a nanosecond.
fn end_ns(bucket: usize) -> u64 {
    let quarter = 1_u64 << (bucket / PARTS + SHORTEST_NS_LOG2 - PARTS.ilog2() as usize);
    quarter * (PARTS + bucket % PARTS + 1) as u64
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Figures {
    sizes: [AtomicU64; SIZES],
    batches: AtomicU64,
    durable_bytes: AtomicU64,
    durable_ns: AtomicU64,
    times: Times,
    slow: AtomicU64,
    padding_bytes: AtomicU64,
    padding_waits: AtomicU64,
    pub memtable_stalls: Stalls,
    pub log_stalls: Stalls,
}

impl Figures {
    /// A group of so many batches was written.
    pub fn note_group(&self, batches: usize) {
        let size = batches.next_power_of_two().ilog2() as usize;
        self.sizes[size.min(SIZES - 1)].fetch_add(1, Relaxed);
        self.batches.fetch_add(batches as u64, Relaxed);
    }

    /// A group of so many bytes was written durably, and took so long. Says how many were before.
    pub fn note_durable(&self, bytes: u64, ns: u64) -> u64 {
        let before = self.durable_bytes.fetch_add(bytes, Relaxed);
        self.durable_ns.fetch_add(ns, Relaxed);
        self.times.add(ns);
        if ns > SLOW_NS {
            self.slow.fetch_add(1, Relaxed);
            tracing::warn!(seconds = ns as f64 / 1e9, bytes, "a durable write of the log was slow");
        }
        before
    }

    /// A group has its place in a log, `padding_bytes` behind the one before.
    pub fn note_padding(&self, padding_bytes: u64, waited: bool) {
        if padding_bytes > 0 {
            self.padding_bytes.fetch_add(padding_bytes, Relaxed);
        }
        if waited {
            self.padding_waits.fetch_add(1, Relaxed);
        }
    }

    /// Bytes written durably.
    pub fn durable_bytes(&self) -> u64 {
        self.durable_bytes.load(Relaxed)
    }

    /// What there is to say, with what is in flight: how many groups, and the age of the oldest in
    /// nanoseconds.
    pub fn stats(&self, (flying, oldest_ns): (u64, u64)) -> LogStats {
        let seconds = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e9;
        let group_sizes: Vec<u64> = self.sizes.iter().map(|count| count.load(Relaxed)).collect();
        let times = &self.times.buckets;
        LogStats {
            groups: group_sizes.iter().sum(),
            batches: self.batches.load(Relaxed),
            group_sizes,
            durable_groups: times.iter().map(|count| count.load(Relaxed)).sum(),
            durable_bytes: self.durable_bytes.load(Relaxed),
            durable_s: seconds(&self.durable_ns),
            p50_s: self.times.percentile(50),
            p99_s: self.times.percentile(99),
            slow: self.slow.load(Relaxed),
            padding_bytes: self.padding_bytes.load(Relaxed),
            padding_waits: self.padding_waits.load(Relaxed),
            flying,
            oldest_flying_s: oldest_ns as f64 / 1e9,
            memtable_stalls: self.memtable_stalls.count.load(Relaxed),
            memtable_stalled_s: seconds(&self.memtable_stalls.ns),
            log_stalls: self.log_stalls.count.load(Relaxed),
            log_stalled_s: seconds(&self.log_stalls.ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_a_bucket_that_ends_behind_it_by_a_fifth_at_most() {
        assert_eq!(bucket(0), 0);
        let mut last = 0;
        for ns in (1024..5_000_000).step_by(77).chain([1_000_000_000, 30_000_000_000]) {
            let at = bucket(ns);
            assert!(at >= last && end_ns(at) > ns, "{ns} is in bucket {at} up to {}", end_ns(at));
            assert!(end_ns(at) <= ns + ns / 4 + 1, "{ns} is in bucket {at} up to {}", end_ns(at));
            last = at;
        }
        assert_eq!(bucket(u64::MAX), DOUBLINGS * PARTS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_noted() {
        let figures = Figures::default();
        assert_eq!((figures.stats((0, 0)).p50_s, figures.stats((0, 0)).p99_s), (0.0, 0.0));
        (0..97).for_each(|_| {
            figures.note_durable(1000, 100_000);
        });
        (0..3).for_each(|at| {
            assert_eq!(figures.note_durable(1000, 2_000_000_000), 97_000 + at * 1000);
        });
        let stats = figures.stats((2, 500_000_000));
        assert!((0.0001..0.000_125).contains(&stats.p50_s), "{stats:?}");
        assert!((2.0..2.5).contains(&stats.p99_s), "{stats:?}");
        assert_eq!((stats.durable_groups, stats.durable_bytes, stats.slow), (100, 100_000, 3));
        assert!((16_600.0..16_700.0).contains(&stats.bytes_per_s()), "{stats:?}");
        assert_eq!((stats.flying, stats.oldest_flying_s), (2, 0.5));
    }

    #[test]
    fn groups_are_counted_by_size() {
        let figures = Figures::default();
        for batches in [1, 1, 2, 3, 4, 5, 8, 9, 512, 513, 100_000] {
            figures.note_group(batches);
        }
        let stats = figures.stats((0, 0));
        assert_eq!(stats.group_sizes, [2, 1, 2, 2, 1, 0, 0, 0, 0, 3]);
        assert_eq!((stats.groups, stats.batches), (11, 101_058));
    }
}
