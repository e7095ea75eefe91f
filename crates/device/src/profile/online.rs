//! What a device can do, as its own traffic shows: throughput by the number of writers that there
//! happened to be (beyond Keigo, whose section 4.2 profiles a device before it is used).
//!
//! ```text
//!   100 ms   writers before, after   bytes written   busy
//!               4        4             51 MB          99 %   -> bin of 4 writers
//!               4        5             50 MB          99 %   -> none: the number changed
//!               4        4              2 MB          12 %   -> none: the device waited for them
//!
//!   the number changes   held back: 120 MB              51   51   51   50 MB written
//!                                                       none: those of before | counts
//! ```
//! 1. An interval counts where the number of writers stayed, the device was busy, and wrote more
//!    than it read: else the reads may be what it was busy with.
//! 2. The page cache writes late. What it holds back when the number of writers changes is the
//!    former ones': no interval counts until the device has written as much.
//! 3. A bin counts after a second of intervals; later ones weigh a sixteenth. It goes an hour after
//!    its last one.
//! 4. Points that were not seen are those of the measured curve, in proportion: it has the shape,
//!    and the bins have the level of today's traffic. Traffic never shows a lower limit than was
//!    measured.
//! 5. Without a measured curve nothing is said until more writers brought a fifth less, several
//!    times in a row: a curve that still rises shows no limit, and a limit that is too low would
//!    keep the writers away that disprove it. For that it is never very low, and goes with the
//!    bins.
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
/// More writers brought less where their rate is below so many percent of the best.
const FALLEN_PERCENT: u64 = 80;
/// Times in a row that a fall must show.
const FALLS_MIN: u32 = 3;
/// A limit that was not measured is no lower.
const LIMIT_MIN: u16 = 4;
/// What was seen counts for so long.
pub const COUNTS_FOR_NS: u64 = 3_600_000_000_000;

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Writers when it began, and when it ended.
    pub workers: [u16; 2],
    /// When it ended, and how long it was.
    pub at_ns: u64,
    /// See `at_ns`.
    pub ns: u64,
    /// Bytes that the device wrote, and bytes that it read.
    pub bytes: u64,
    /// See `bytes`.
    pub read_bytes: u64,
    /// How long the device was busy.
    pub busy_ns: u64,
    /// Bytes that were held back from it when the interval ended.
    pub unwritten_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    bytes_per_s: u64,
    samples: u32,
    /// The end of its last interval.
    at_ns: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct OnlineCurve {
    bins: BTreeMap<u16, Bin>,
    /// How often in a row more writers brought less.
    falls: u32,
    /// Bytes of earlier writers that the device has still to write, at most; none before the first
    /// interval.
    late_bytes: Option<u64>,
}

impl OnlineCurve {
    /// Takes an interval; true where it counts.
    pub fn add(&mut self, sample: Sample) -> bool {
        let Sample { workers: [before, _], at_ns, ns, bytes, read_bytes, busy_ns, .. } = sample;
        let is_theirs = self.is_of_its_writers(sample);
        let is_busy = u128::from(busy_ns) * 100 >= u128::from(ns) * u128::from(BUSY_PERCENT);
        if !is_theirs || before == 0 || ns == 0 || bytes <= read_bytes || !is_busy {
            return false;
        }
        let rate = (u128::from(bytes) * 1_000_000_000 / u128::from(ns)) as u64;
        let bin = self.bins.entry(before.min(WORKERS_MAX)).or_default();
        let weight = bin.samples.min(SAMPLES_MAX);
        let sum = u128::from(bin.bytes_per_s) * u128::from(weight) + u128::from(rate);
        bin.bytes_per_s = (sum / u128::from(weight + 1)) as u64;
        bin.samples = bin.samples.saturating_add(1);
        bin.at_ns = at_ns;
        true
    }

    /// The writers stayed, and what was written is theirs.
    fn is_of_its_writers(&mut self, sample: Sample) -> bool {
        let [before, after] = sample.workers;
        let late_bytes = self.late_bytes.unwrap_or(sample.unwritten_bytes);
        let is_same = before == after;
        self.late_bytes = Some(match is_same {
            true => late_bytes.saturating_sub(sample.bytes),
            false => sample.unwritten_bytes,
        });
        is_same && late_bytes == 0
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

    /// To be called after some intervals: whether more writers brought less in them.
    pub fn weigh(&mut self) {
        let points = self.seen();
        let best = points.iter().map(|point| point.bytes_per_s).max().unwrap_or(0);
        let last = points.last().map_or(0, |point| point.bytes_per_s);
        let has_fallen = u128::from(last) * 100 < u128::from(best) * u128::from(FALLEN_PERCENT);
        self.falls = if has_fallen { self.falls.saturating_add(1) } else { 0 };
    }

    /// The curve that follows from what was seen and the `measured` one; none where nothing does,
    /// or does any more.
    pub fn curve(&mut self, measured: &Curve, now_ns: u64) -> Option<Curve> {
        self.bins.retain(|_, bin| now_ns.saturating_sub(bin.at_ns) < COUNTS_FOR_NS);
        let mut points = self.seen();
        let last = *points.last()?;
        let Some(limit_min) = measured.useful_workers() else {
            // What brought less may be gone.
            let best = points.iter().map(|point| point.bytes_per_s).max()?;
            let is_limit = self.falls >= FALLS_MIN && last.bytes_per_s < best;
            return is_limit.then(|| limited(points, LIMIT_MIN));
        };
        let both = points
            .iter()
            .filter_map(|point| measured.at(point.workers).map(|there| (point.bytes_per_s, there)));
        let (seen, as_measured) =
            both.fold((0_u128, 0_u128), |(seen, as_measured), (here, there)| {
                (seen + u128::from(here), as_measured + u128::from(there))
            });
        if as_measured == 0 {
            return None;
        }
        let others = measured.points().iter().filter(|point| !self.has_seen(point.workers));
        let others: Vec<_> = others
            .map(|point| Point {
                bytes_per_s: (u128::from(point.bytes_per_s) * seen / as_measured) as u64,
                ..*point
            })
            .collect();
        points.extend(others);
        Some(limited(points, limit_min))
    }

    fn has_seen(&self, workers: u16) -> bool {
        self.bins.get(&workers).is_some_and(|bin| bin.samples >= SAMPLES_MIN)
    }
}

/// A curve that shows no lower limit than `limit_min`: fewer writers are taken for so many.
fn limited(mut points: Vec<Point>, limit_min: u16) -> Curve {
    points.iter_mut().for_each(|point| point.workers = point.workers.max(limit_min));
    Curve::new(points)
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

    fn sample(workers: u16, mb_per_s: u64) -> Sample {
        let (bytes, busy_ns) = (mb_per_s * MB / 10, INTERVAL_NS / 100 * 95);
        let (at_ns, ns, read_bytes) = (0, INTERVAL_NS, 0);
        let (workers, unwritten_bytes) = ([workers; 2], 0);
        Sample { workers, at_ns, ns, bytes, read_bytes, busy_ns, unwritten_bytes }
    }

    /// So many intervals of writers at a rate in MB/s, weighed after each ten.
    fn run(online: &mut OnlineCurve, times: u32, workers: u16, mb_per_s: u64) {
        for time in 1..=times {
            assert!(online.add(sample(workers, mb_per_s)));
            if time.is_multiple_of(10) {
                online.weigh();
            }
        }
    }

    #[test]
    fn an_interval_counts_where_the_writers_stayed_and_the_device_was_busy_with_them() {
        for (workers, bytes, read_bytes, busy_percent, counts) in [
            ([4, 4], 5 * MB, 0, 90, true),
            ([4, 4], 5 * MB, 0, 89, false),
            ([4, 5], 5 * MB, 0, 100, false),
            ([0, 0], 5 * MB, 0, 100, false),
            ([4, 4], 0, 0, 100, false),
            ([4, 4], 5 * MB, 4 * MB, 100, true),
            ([4, 4], 5 * MB, 5 * MB, 100, false),
            ([400, 400], 5 * MB, 0, 100, true),
        ] {
            let busy_ns = INTERVAL_NS / 100 * busy_percent;
            let sample = Sample { workers, bytes, read_bytes, busy_ns, ..sample(1, 1) };
            assert_eq!(OnlineCurve::default().add(sample), counts, "{sample:?}");
        }
    }

    /// Of each interval: writers before and after, MB that were written, MB that are held back at
    /// its end, and whether it counts.
    type Intervals<'a> = &'a [([u16; 2], u64, u64, bool)];

    #[test]
    fn what_earlier_writers_left_to_be_written_does_not_count_to_later_ones() {
        let script: [(&str, Intervals); 5] = [
            (
                "nothing is held back",
                &[([4, 4], 5, 0, true), ([4, 8], 5, 0, false), ([8, 8], 5, 0, true)],
            ),
            (
                "the first look is amid writing",
                &[
                    ([4, 4], 5, 12, false),
                    ([4, 4], 5, 99, false),
                    ([4, 4], 5, 99, false),
                    ([4, 4], 5, 99, true),
                ],
            ),
            (
                "more writers",
                &[
                    ([4, 4], 5, 0, true),
                    ([4, 8], 5, 12, false),
                    ([8, 8], 5, 99, false),
                    ([8, 8], 5, 99, false),
                    ([8, 8], 5, 99, false),
                    ([8, 8], 5, 99, true),
                ],
            ),
            (
                "others again before the rest is written",
                &[
                    ([4, 8], 5, 12, false),
                    ([8, 8], 5, 20, false),
                    ([8, 4], 5, 15, false),
                    ([4, 4], 20, 0, false),
                    ([4, 4], 5, 0, true),
                ],
            ),
            (
                "the rest is written at rest",
                &[
                    ([8, 0], 5, 12, false),
                    ([0, 0], 12, 0, false),
                    ([0, 3], 1, 0, false),
                    ([3, 3], 5, 0, true),
                ],
            ),
        ];
        for (what, intervals) in script {
            let mut online = OnlineCurve::default();
            for (number, (workers, mb, held_mb, counts)) in intervals.iter().enumerate() {
                let (workers, bytes, unwritten_bytes) = (*workers, mb * MB, held_mb * MB);
                let sample = Sample { workers, bytes, unwritten_bytes, ..sample(1, 1) };
                assert_eq!(online.add(sample), *counts, "{what}: interval {number}");
            }
        }
    }

    #[test]
    fn traffic_moves_the_measured_curve_and_its_knee() {
        let stored = curve(&[(1, 200), (2, 400), (4, 800), (8, 400), (16, 200)]);
        // What follows: useful workers, best MB/s.
        let script: [(Runs, Option<(u16, u64)>); 6] = [
            (&[], None),
            (&[(9, 4, 100)], None),
            // Half of what was measured: smaller blocks, an older device. The shape stays.
            (&[(10, 4, 400)], Some((4, 400))),
            // A device that takes more writers than it seemed.
            (&[(10, 4, 400), (10, 8, 500), (10, 16, 700)], Some((16, 700))),
            // One that seems to take fewer: the limit is the measured one still.
            (&[(10, 2, 800), (10, 4, 500), (10, 8, 300)], Some((4, 800))),
            // It has changed: what is older goes.
            (&[(20, 4, 800), (80, 4, 400)], Some((4, 402))),
        ];
        for (runs, expected) in script {
            let mut online = OnlineCurve::default();
            runs.iter().for_each(|(times, workers, mb)| run(&mut online, *times, *workers, *mb));
            let found = online.curve(&stored, 0);
            let found = found.map(|curve| {
                (curve.useful_workers().unwrap(), curve.bytes_per_s_max().unwrap() / MB)
            });
            assert_eq!(found, expected, "{runs:?}");
        }
    }

    #[test]
    fn without_a_measured_curve_a_limit_is_seen_only_where_more_writers_brought_less() {
        let nothing = Curve::default();
        let script: [(Runs, Option<u16>); 7] = [
            (&[(20, 1, 200)], None),
            (&[(20, 1, 200), (20, 4, 500)], None),
            (&[(20, 1, 200), (20, 4, 500), (90, 16, 410)], None),
            (&[(20, 1, 200), (20, 4, 500), (20, 16, 226)], None),
            (&[(20, 1, 200), (20, 4, 500), (30, 16, 226)], Some(4)),
            (&[(20, 1, 200), (20, 8, 500), (30, 16, 226)], Some(8)),
            // One writer was best, and is not all that may write.
            (&[(20, 1, 500), (30, 8, 20)], Some(4)),
        ];
        for (runs, expected) in script {
            let mut online = OnlineCurve::default();
            runs.iter().for_each(|(times, workers, mb)| run(&mut online, *times, *workers, *mb));
            let found = online.curve(&nothing, 0).and_then(|curve| curve.useful_workers());
            assert_eq!(found, expected, "{runs:?}");
        }
    }

    #[test]
    fn a_limit_goes_when_more_writers_bring_more_and_after_an_hour() {
        let nothing = Curve::default();
        let mut online = OnlineCurve::default();
        run(&mut online, 20, 4, 500);
        run(&mut online, 30, 16, 226);
        let mut later = online.clone();
        assert!(online.curve(&nothing, COUNTS_FOR_NS - 1).is_some());
        run(&mut online, 60, 16, 600);
        assert_eq!(online.curve(&nothing, 0), None);
        assert_eq!(later.curve(&nothing, COUNTS_FOR_NS), None);
    }
}
