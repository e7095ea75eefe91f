//! How a device's throughput grows with the number of threads that use it, and where it stops
//! (Keigo, section 3.1).
//!
//! 1. A curve has its points in order of workers, each count once.
//! 2. Nothing is guessed beyond the points: a curve without any says that nothing is known.
//!
//! Threads: plain data.

use serde::{Deserialize, Serialize};

/// Throughput within so many percent of the best is as good as the best: between runs of one
/// measurement there is more than that.
const AS_GOOD_PERCENT: u64 = 95;

/// What so many threads reach together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Threads that read or write at once.
    pub workers: u16,
    /// Bytes that they move in a second, all together.
    pub bytes_per_s: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    points: Vec<Point>,
}

impl Curve {
    /// The curve through these points; of several with the same number of workers the best counts.
    pub fn new(mut points: Vec<Point>) -> Self {
        points.sort_by_key(|point| (point.workers, std::cmp::Reverse(point.bytes_per_s)));
        points.dedup_by_key(|point| point.workers);
        points.retain(|point| point.workers > 0 && point.bytes_per_s > 0);
        Self { points }
    }

    /// The points, in order of workers.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Bytes a second at most; none where nothing is known.
    pub fn bytes_per_s_max(&self) -> Option<u64> {
        self.points.iter().map(|point| point.bytes_per_s).max()
    }

    /// Bytes a second of so many workers, between two points in proportion; none where nothing is
    /// known of so few or so many.
    pub fn at(&self, workers: u16) -> Option<u64> {
        let after = self.points.partition_point(|point| point.workers < workers);
        let next = self.points.get(after)?;
        if next.workers == workers {
            return Some(next.bytes_per_s);
        }
        let before = self.points.get(after.checked_sub(1)?)?;
        let (part, whole) = (workers - before.workers, next.workers - before.workers);
        let (low, high) = (i128::from(before.bytes_per_s), i128::from(next.bytes_per_s));
        Some((low + (high - low) * i128::from(part) / i128::from(whole)) as u64)
    }

    /// The fewest workers that are as good as any number of them; none where nothing is known.
    pub fn useful_workers(&self) -> Option<u16> {
        let best = self.bytes_per_s_max()?;
        let is_as_good = |point: &&Point| {
            u128::from(point.bytes_per_s) * 100 >= u128::from(best) * u128::from(AS_GOOD_PERCENT)
        };
        self.points.iter().find(is_as_good).map(|point| point.workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u16, u64)]) -> Curve {
        let point = |(workers, bytes_per_s): &(u16, u64)| Point {
            workers: *workers,
            bytes_per_s: *bytes_per_s,
        };
        Curve::new(points.iter().map(point).collect())
    }

    #[test]
    fn the_fewest_workers_within_five_percent_of_the_best_are_useful() {
        // The devices of figure 1, in thousands of writes a second.
        let nvmm =
            curve(&[(1, 210), (2, 390), (4, 500), (8, 330), (16, 226), (32, 194), (64, 188)]);
        assert_eq!((nvmm.useful_workers(), nvmm.bytes_per_s_max()), (Some(4), Some(500)));
        let nvme = curve(&[(1, 60), (2, 110), (4, 190), (8, 225), (16, 235), (32, 210)]);
        assert_eq!(nvme.useful_workers(), Some(8));
        assert_eq!(curve(&[(1, 95), (2, 104), (4, 105)]).useful_workers(), Some(2));
        assert_eq!(curve(&[(1, 100), (2, 104)]).useful_workers(), Some(1));
    }

    #[test]
    fn points_are_put_in_order_and_no_point_says_nothing() {
        let curve = curve(&[(4, 9), (0, 50), (1, 0), (2, 5), (4, 12)]);
        let points: Vec<_> = curve.points().iter().map(|p| (p.workers, p.bytes_per_s)).collect();
        assert_eq!(points, [(2, 5), (4, 12)]);
        let between = [1, 2, 3, 4, 5].map(|workers| curve.at(workers));
        assert_eq!(between, [None, Some(5), Some(8), Some(12), None]);
        let nothing = Curve::default();
        assert_eq!((nothing.useful_workers(), nothing.bytes_per_s_max()), (None, None));
    }
}
