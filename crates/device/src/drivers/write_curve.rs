//! A device whose writes get slower when there are many at once, as those of persistent memory do
//! (Keigo, section 3.1, figure 1).
//!
//! ```text
//!   writes under way    1     4    16    64
//!   writes a second   210k  500k  226k  188k      between two points: in proportion
//! ```
//! Writes are served one behind the other. Each takes as long as the rate at the number of those
//! that are under way when it comes, so that `n` writers which wait for their writes have the rate
//! of `n` together. A write longer than [`UNIT_BYTES`] takes as long as several.
//!
//! Pure: times come in and go out.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

const NS_PER_S: u64 = 1_000_000_000;

/// Bytes that the rates are for: the blocks of figure 1.
const UNIT_BYTES: u64 = 4 << 10;

/// Writes a second by the number of writers: points in ascending order of writers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCurve(Vec<(u32, u64)>);

impl WriteCurve {
    /// Through these points: writers, and the writes of 4 KiB that they make in a second together.
    pub fn new(mut points: Vec<(u32, u64)>) -> Self {
        points.sort_unstable();
        Self(points)
    }

    /// There is none: writers do not hinder each other.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes a second of so many writers, at least 1.
    pub fn rate(&self, writers: u32) -> u64 {
        let after = self.0.partition_point(|(point, _)| *point < writers);
        let rate = match (after.checked_sub(1).map(|at| self.0[at]), self.0.get(after).copied()) {
            (None, None) => 0,
            (None, Some((_, rate))) | (Some((_, rate)), None) => rate,
            (Some((below, low)), Some((above, high))) => {
                let (part, whole) = (i128::from(writers - below), i128::from(above - below));
                let (low, high) = (i128::from(low), i128::from(high));
                (low + (high - low) * part / whole) as u64
            }
        };
        rate.max(1)
    }
}

/// Writes that were asked for.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// When each is done, in order.
    done_ns: VecDeque<u64>,
}

impl WriteQueue {
    /// When a write of `len` bytes is done that comes at `now_ns`.
    pub fn book(&mut self, curve: &WriteCurve, now_ns: u64, len: usize) -> u64 {
        while self.done_ns.front().is_some_and(|done| *done <= now_ns) {
            self.done_ns.pop_front();
        }
        let start = self.done_ns.back().copied().unwrap_or(now_ns).max(now_ns);
        let units = (len as u64).div_ceil(UNIT_BYTES).max(1);
        let writers = u32::try_from(self.done_ns.len() + 1).unwrap_or(u32::MAX);
        let done = start.saturating_add(units.saturating_mul(NS_PER_S) / curve.rate(writers));
        self.done_ns.push_back(done);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure_1() -> WriteCurve {
        WriteCurve::new(vec![(4, 500_000), (1, 210_000), (16, 226_000), (64, 188_000)])
    }

    /// Writes a second of writers that wait for each of their writes.
    fn reached(curve: &WriteCurve, writers: usize, len: usize) -> u64 {
        let mut queue = WriteQueue::default();
        let mut next = vec![0; writers];
        let rounds = 1000;
        for _ in 0..rounds {
            for done in &mut next {
                *done = queue.book(curve, *done, len);
            }
        }
        rounds * writers as u64 * NS_PER_S / next.iter().max().unwrap()
    }

    #[test]
    fn rates_lie_on_the_curve_and_between_its_points() {
        for (writers, rate) in [
            (0, 210_000),
            (1, 210_000),
            (2, 306_666),
            (4, 500_000),
            (10, 363_000),
            (16, 226_000),
            (40, 207_000),
            (64, 188_000),
            (1000, 188_000),
        ] {
            assert_eq!(figure_1().rate(writers), rate, "{writers}");
        }
        assert_eq!(WriteCurve::default().rate(3), 1);
    }

    #[test]
    fn writers_that_wait_for_their_writes_reach_what_the_curve_says() {
        for (writers, rate) in [(1, 210_000), (4, 500_000), (16, 226_000), (64, 188_000)] {
            let reached = reached(&figure_1(), writers, 4096);
            assert!(reached.abs_diff(rate) < rate / 50, "{writers}: {reached}");
            let long = self::reached(&figure_1(), writers, 65_536);
            assert!(long.abs_diff(rate / 16) < rate / 800, "{writers}: {long}");
        }
    }

    #[test]
    fn a_device_that_was_idle_begins_at_once() {
        let mut queue = WriteQueue::default();
        assert_eq!(queue.book(&figure_1(), 0, 1), NS_PER_S / 210_000);
        assert_eq!(queue.book(&figure_1(), 1_000_000, 0), 1_000_000 + NS_PER_S / 210_000);
    }
}
