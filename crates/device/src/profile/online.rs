//! What a device can do, as its own traffic shows: throughput by the number of writers that there
//! happened to be (beyond Keigo, whose section 4.2 profiles a device before it is used).
//!
//! ```text
//!   100 ms   writers before, after   bytes written   busy
//!               4        4             51 MB          99 %   -> bin of 4 writers
//!               4        5             50 MB          99 %   -> none: the number changed
//!               4        4              2 MB          12 %   -> none: the device waited for them
//! ```
//! 1. An interval counts where the number of writers stayed and the device was busy.
//! 2. A bin counts after a second of intervals; later ones weigh a sixteenth.
//! 3. Points that were not seen are those of the stored curve, in proportion: it has the shape, and
//!    the bins have the level of today's traffic.
//! 4. Without a stored curve nothing is said until more writers brought less: a curve that still
//!    rises shows no limit, and a limit that is too low would keep the writers away that disprove
//!    it.
//!
//! Pure: no clock, no I/O.

use super::{Curve, Point};
use std::collections::BTreeMap;

/// What an interval lasts, in nanoseconds.
pub const INTERVAL_NS: u64 = 100_000_000;

/// A device that was busy for so many percent of an interval was what its writers waited for.
const BUSY_PERCENT: u64 = 90;
/// Intervals after which a bin counts.
const SAMPLES_MIN: u32 = 10;
/// Older intervals of a bin weigh so many times the newest one.
const SAMPLES_MAX: u32 = 15;
/// More writers than this count as so many.
const WORKERS_MAX: u16 = 64;
/// Rates within so many percent are the same.
const AS_GOOD_PERCENT: u64 = 95;

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Writers when it began, and when it ended.
    pub workers: [u16; 2],
    /// How long it was.
    pub ns: u64,
    /// Bytes that the device wrote.
    pub bytes: u64,
    /// How long the device was busy.
    pub busy_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    bytes_per_s: u64,
    samples: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct OnlineCurve {
    bins: BTreeMap<u16, Bin>,
}

impl OnlineCurve {
    /// Takes an interval; true where it counts.
    pub fn add(&mut self, sample: Sample) -> bool {
        let Sample { workers: [before, after], ns, bytes, busy_ns } = sample;
        let is_busy = u128::from(busy_ns) * 100 >= u128::from(ns) * u128::from(BUSY_PERCENT);
        if before != after || before == 0 || ns == 0 || bytes == 0 || !is_busy {
            return false;
        }
        let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(ns)) as u64;
        let bin = self.bins.entry(before.min(WORKERS_MAX)).or_default();
        let weight = bin.samples.min(SAMPLES_MAX);
        let sum = u128::from(bin.bytes_per_s) * u128::from(weight) + u128::from(rate);
        bin.bytes_per_s = (sum / u128::from(weight + 1)) as u64;
        bin.samples = bin.samples.saturating_add(1);
        true
    }

    /// What was seen.
    fn seen(&self) -> Vec<Point> {
        let known = self.bins.iter().filter(|(_, bin)| bin.samples >= SAMPLES_MIN);
        let point = |(workers, bin): (&u16, &Bin)| Point {
            workers: *workers,
            bytes_per_s: bin.bytes_per_s,
        };
        known.map(point).collect()
    }

    /// The curve that follows from what was seen and the `stored` one; none where that one stays.
    pub fn curve(&self, stored: &Curve) -> Option<Curve> {
        let mut points = self.seen();
        let last = points.last()?;
        let best = points.iter().map(|point| point.bytes_per_s).max()?;
        let both = points
            .iter()
            .filter_map(|point| stored.at(point.workers).map(|there| (point.bytes_per_s, there)));
        let (seen, as_stored) = both.fold((0_u128, 0_u128), |(seen, as_stored), (here, there)| {
            (seen + u128::from(here), as_stored + u128::from(there))
        });
        if as_stored == 0 {
            let has_fallen = last.bytes_per_s * 100 < best * AS_GOOD_PERCENT;
            return has_fallen.then(|| Curve::new(points));
        }
        let others = stored.points().iter().filter(|point| !self.has_seen(point.workers));
        let others: Vec<_> = others
            .map(|point| Point {
                bytes_per_s: (u128::from(point.bytes_per_s) * seen / as_stored) as u64,
                ..*point
            })
            .collect();
        points.extend(others);
        Some(Curve::new(points))
    }

    fn has_seen(&self, workers: u16) -> bool {
        self.bins.get(&workers).is_some_and(|bin| bin.samples >= SAMPLES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// What runs: intervals, writers, MB/s.
    type Runs<'a> = &'a [(u32, u16, u64)];

    fn curve(points: &[(u16, u64)]) -> Curve {
        let point = |(workers, mb): &(u16, u64)| Point { workers: *workers, bytes_per_s: mb * MB };
        Curve::new(points.iter().map(point).collect())
    }

    /// So many intervals of writers at a rate in MB/s.
    fn run(online: &mut OnlineCurve, times: u32, workers: u16, mb_per_s: u64) {
        for _ in 0..times {
            let bytes = mb_per_s * MB / 10;
            let busy_ns = INTERVAL_NS / 100 * 95;
            assert!(online.add(Sample { workers: [workers; 2], ns: INTERVAL_NS, bytes, busy_ns }));
        }
    }

    #[test]
    fn an_interval_counts_where_the_writers_stayed_and_the_device_was_busy() {
        for (workers, bytes, busy_percent, counts) in [
            ([4, 4], 5 * MB, 90, true),
            ([4, 4], 5 * MB, 89, false),
            ([4, 5], 5 * MB, 100, false),
            ([0, 0], 5 * MB, 100, false),
            ([4, 4], 0, 100, false),
            ([400, 400], 5 * MB, 100, true),
        ] {
            let busy_ns = INTERVAL_NS / 100 * busy_percent;
            let sample = Sample { workers, ns: INTERVAL_NS, bytes, busy_ns };
            assert_eq!(OnlineCurve::default().add(sample), counts, "{sample:?}");
        }
    }

    #[test]
    fn traffic_moves_the_stored_curve_and_its_knee() {
        let stored = curve(&[(1, 200), (2, 400), (4, 800), (8, 400), (16, 200)]);
        // What follows: useful workers, best MB/s.
        let script: [(Runs, Option<(u16, u64)>); 6] = [
            (&[], None),
            (&[(9, 4, 100)], None),
            // Half of what was measured: smaller blocks, an older device. The shape stays.
            (&[(10, 4, 400)], Some((4, 400))),
            // A device that takes more writers than it seemed.
            (&[(10, 4, 400), (10, 8, 500), (10, 16, 700)], Some((16, 700))),
            // One that takes fewer.
            (&[(10, 2, 800), (10, 4, 500), (10, 8, 300)], Some((2, 800))),
            // It has changed: what is older goes.
            (&[(20, 4, 800), (80, 4, 400)], Some((4, 402))),
        ];
        for (runs, expected) in script {
            let mut online = OnlineCurve::default();
            runs.iter().for_each(|(times, workers, mb)| run(&mut online, *times, *workers, *mb));
            let found = online.curve(&stored);
            let found = found.map(|curve| {
                (curve.useful_workers().unwrap(), curve.bytes_per_s_max().unwrap() / MB)
            });
            assert_eq!(found, expected, "{runs:?}");
        }
    }

    #[test]
    fn without_a_stored_curve_a_limit_is_seen_only_where_more_writers_brought_less() {
        let nothing = Curve::default();
        let script: [(Runs, Option<u16>); 4] = [
            (&[(20, 1, 200)], None),
            (&[(20, 1, 200), (20, 4, 500)], None),
            (&[(20, 1, 200), (20, 4, 500), (20, 16, 490)], None),
            (&[(20, 1, 200), (20, 4, 500), (20, 16, 226)], Some(4)),
        ];
        for (runs, expected) in script {
            let mut online = OnlineCurve::default();
            runs.iter().for_each(|(times, workers, mb)| run(&mut online, *times, *workers, *mb));
            let found = online.curve(&nothing).and_then(|curve| curve.useful_workers());
            assert_eq!(found, expected, "{runs:?}");
        }
    }
}
