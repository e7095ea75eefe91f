//! What a benchmark measured.

use crate::arguments::Name;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fmt;
use thermocline::{ByteSize, Stats};
use thermocline_bench::measure::process;

/// Counters at one moment.
#[derive(Debug)]
pub struct Moment {
    ns: u64,
    cpu_s: f64,
    stats: Stats,
}

impl Moment {
    /// Now, `ns` by the bench's clock.
    pub fn new(ns: u64, stats: Stats) -> Self {
        Self { ns, cpu_s: process::cpu_s(), stats }
    }
}

/// One benchmark's figures.
#[derive(Debug, Serialize)]
pub struct Outcome {
    name: Name,
    threads: u16,
    operations: u64,
    /// Looked up and not there, rightly.
    absent: u64,
    seconds: f64,
    ops_per_s: f64,
    /// Time of one operation in one thread.
    us_per_op: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Processor time of the whole process, background work included.
    cpu_us_per_op: f64,
    tiers: Vec<Traffic>,
    /// Bytes written to all tiers for each byte of keys and values; 0 where nothing was written.
    write_amplification: f64,
    /// Seconds that writers were slowed down or stopped.
    delayed_s: f64,
    stalled_s: f64,
    /// Most memory of the process since its start.
    peak_rss_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Traffic {
    read_bytes: u64,
    written_bytes: u64,
}

impl Outcome {
    /// The figures of what happened between two moments.
    pub fn new(
        name: Name,
        threads: u16,
        latencies: &Histogram<u64>,
        absent: u64,
        (before, after): (&Moment, &Moment),
    ) -> Self {
        let operations = latencies.len();
        let seconds = (after.ns - before.ns) as f64 / 1e9;
        let per_op = 1e6 / operations.max(1) as f64;
        let us = |ns: u64| ns as f64 / 1e3;
        let pairs = before.stats.tiers.iter().zip(&after.stats.tiers);
        let tiers: Vec<_> = pairs
            .map(|(old, new)| Traffic {
                read_bytes: new.read_bytes - old.read_bytes,
                written_bytes: new.written_bytes - old.written_bytes,
            })
            .collect();
        let (old, new) = (&before.stats.operations, &after.stats.operations);
        let user = new.written_bytes - old.written_bytes;
        let written: u64 = tiers.iter().map(|tier| tier.written_bytes).sum();
        Self {
            name,
            threads,
            operations,
            absent,
            seconds,
            ops_per_s: operations as f64 / seconds,
            us_per_op: seconds * per_op * f64::from(threads),
            p50_us: us(latencies.value_at_quantile(0.5)),
            p99_us: us(latencies.value_at_quantile(0.99)),
            max_us: us(latencies.max()),
            cpu_us_per_op: (after.cpu_s - before.cpu_s) * per_op,
            write_amplification: if user == 0 { 0.0 } else { written as f64 / user as f64 },
            tiers,
            delayed_s: new.delayed_s - old.delayed_s,
            stalled_s: new.stalled_s - old.stalled_s,
            peak_rss_bytes: process::peak_rss_bytes(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{:?}", self.name).to_lowercase();
        write!(
            f,
            "{name:<18} {:>9.0} ops/s {:>8.2} us/op  \
             p50 {:.1} p99 {:.1} max {:.0} us  cpu {:.2} us/op",
            self.ops_per_s,
            self.us_per_op,
            self.p50_us,
            self.p99_us,
            self.max_us,
            self.cpu_us_per_op,
        )?;
        for (index, tier) in self.tiers.iter().enumerate() {
            let (read, written) = (ByteSize(tier.read_bytes), ByteSize(tier.written_bytes));
            write!(f, "  tier {index}: read {read} written {written}")?;
        }
        if self.write_amplification > 0.0 {
            let (delayed, stalled) = (self.delayed_s, self.stalled_s);
            write!(f, "  wamp {:.2}", self.write_amplification)?;
            write!(f, "  delayed {delayed:.1} s stalled {stalled:.1} s")?;
        }
        write!(f, "  rss {}  ({} absent)", ByteSize(self.peak_rss_bytes), self.absent)
    }
}
