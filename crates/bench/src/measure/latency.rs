//! Latencies of one thread and of all: a histogram for each kind of operation, and the timeline.

use crate::Outcome;
use crate::results::Latency;
use crate::workloads::Workload;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Longest latency that is told apart from longer ones: 10 minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// Seconds of the timeline that take no allocation.
const SECONDS_READY: usize = 4096;

/// What one thread saw; see the module's header.
#[derive(Clone, Debug)]
pub struct Seen {
    /// From call to return, by entry of the mix.
    latencies: Vec<Histogram<u64>>,
    /// From when it was due.
    from_due: Vec<Histogram<u64>>,
    /// Operations that ended in each second of the run.
    timeline: Vec<u64>,
    /// Operations.
    pub operations: u64,
    /// Of these, those that ended in the last tenth of a run of fixed length.
    pub in_last_tenth: u64,
    /// Bytes of keys and values written.
    pub user_written_bytes: u64,
    /// Look-ups that rightly found nothing.
    pub absent: u64,
    /// Values checked.
    pub checked: u64,
}

impl Seen {
    /// Nothing yet, for a mix of `kinds` entries; `paced`: operations are due at moments.
    pub fn new(kinds: usize, paced: bool) -> Outcome<Self> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS);
        let latencies: Vec<_> = (0..kinds).map(|_| histogram()).collect::<Result<_, _>>()?;
        Ok(Self {
            from_due: if paced { latencies.clone() } else { Vec::new() },
            latencies,
            timeline: Vec::with_capacity(SECONDS_READY),
            operations: 0,
            in_last_tenth: 0,
            user_written_bytes: 0,
            absent: 0,
            checked: 0,
        })
    }

    /// An operation took `ns`.
    #[inline]
    pub fn took(&mut self, share: u8, ns: u64) {
        self.latencies[usize::from(share)].saturating_record(ns);
    }

    /// An operation ended `ns` after it was due.
    #[inline]
    pub fn late(&mut self, share: u8, ns: u64) {
        self.from_due[usize::from(share)].saturating_record(ns);
    }

    /// `operations` ended `ns` after the run's begin.
    #[inline]
    pub fn ended(&mut self, ns: u64, operations: u64) {
        let second = (ns / 1_000_000_000) as usize;
        if second >= self.timeline.len() {
            self.timeline.resize(second + 1, 0);
        }
        self.timeline[second] += operations;
        self.operations += operations;
    }

    /// Takes in what another thread saw.
    pub fn add(&mut self, other: &Self) -> Outcome<()> {
        for (sum, more) in self.latencies.iter_mut().zip(&other.latencies) {
            sum.add(more)?;
        }
        for (sum, more) in self.from_due.iter_mut().zip(&other.from_due) {
            sum.add(more)?;
        }
        let seconds = self.timeline.len().max(other.timeline.len());
        self.timeline.resize(seconds, 0);
        self.timeline.iter_mut().zip(&other.timeline).for_each(|(sum, more)| *sum += more);
        self.operations += other.operations;
        self.in_last_tenth += other.in_last_tenth;
        self.user_written_bytes += other.user_written_bytes;
        self.absent += other.absent;
        self.checked += other.checked;
        Ok(())
    }

    /// Operations of each second.
    pub fn timeline(&self) -> &[u64] {
        &self.timeline
    }

    /// From call to return, by the labels of `workload`'s mix and `all` together.
    pub fn latency(&self, workload: &Workload) -> Outcome<BTreeMap<String, Latency>> {
        by_label(&self.latencies, workload)
    }

    /// The same from when operations were due.
    pub fn latency_from_due(&self, workload: &Workload) -> Outcome<BTreeMap<String, Latency>> {
        by_label(&self.from_due, workload)
    }
}

fn by_label(
    histograms: &[Histogram<u64>],
    workload: &Workload,
) -> Outcome<BTreeMap<String, Latency>> {
    let mut found = BTreeMap::new();
    let Some(mut all) = histograms.first().cloned() else { return Ok(found) };
    for histogram in &histograms[1..] {
        all.add(histogram)?;
    }
    for (share, histogram) in workload.mix.iter().zip(histograms) {
        if !histogram.is_empty() {
            found.insert(share.label.to_owned(), latency(histogram));
        }
    }
    if !all.is_empty() {
        found.insert("all".to_owned(), latency(&all));
    }
    Ok(found)
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    let us = |ns: u64| ns as f64 / 1e3;
    let at = |quantile| us(histogram.value_at_quantile(quantile));
    Latency {
        count: histogram.len(),
        mean_us: histogram.mean() / 1e3,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: us(histogram.max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_by_label_and_by_second() {
        let workload = crate::workloads::parse("ycsb-a").unwrap();
        let mut one = Seen::new(2, true).unwrap();
        let mut two = one.clone();
        (1..=1000u64).for_each(|us| one.took(0, us * 1000));
        two.took(1, 5_000_000);
        two.late(1, 9_000_000);
        one.ended(500_000_000, 1000);
        two.ended(2_100_000_000, 1);
        one.add(&two).unwrap();
        let found = one.latency(&workload).unwrap();
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.002;
        assert!(near(found["read"].p50_us, 500.0) && near(found["read"].p999_us, 999.0));
        assert!(near(found["all"].max_us, 5000.0) && found["update"].count == 1);
        assert!(near(one.latency_from_due(&workload).unwrap()["update"].p50_us, 9000.0));
        assert_eq!((one.timeline(), one.operations), (&[1000, 0, 1][..], 1001));
    }
}
