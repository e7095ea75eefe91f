//! Pacing: smooth back-pressure. When flushed tables pile up in level 0, reads slow down and space
//! grows; writers are then slowed to about the rate at which compactions drain the level, instead
//! of being stopped now and then.
//!
//! The allowed rate falls from twice the measured drain rate at `level0_slowdown` tables to a small
//! share of it at
//! `level0_stop`, where writers wait. A write of n bytes reserves n / rate of time; who comes early
//! sleeps until its turn, looking every `delay_max` whether it still has to.

use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::{Clock, Counter, Planted, planted};

/// Rate taken before anything was measured, and the least one, in bytes a second.
const RATE_START: u64 = 32 << 20;
const RATE_MIN: u64 = 1 << 20;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Pacing {
    clock: Arc<dyn Clock>,
    slowdown: u32,
    stop: u32,
    delay_max: Duration,
    /// Tables in level 0.
    backlog: AtomicU32,
    drain_rate: AtomicU64,
    /// Until when the writers so far have used up their time, in the clock's nanoseconds.
    reserved_until_ns: Mutex<u64>,
    /// Time writers slept, in nanoseconds.
    pub delayed_ns: Counter,
}

impl Pacing {
    pub fn new(clock: Arc<dyn Clock>, slowdown: u32, stop: u32, delay_max: Duration) -> Self {
        Self {
            clock,
            slowdown,
            stop,
            delay_max,
            backlog: AtomicU32::new(0),
            drain_rate: AtomicU64::new(RATE_START),
            reserved_until_ns: Mutex::new(0),
            delayed_ns: Counter::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        if planted(Planted::PacingReadsWallClock) {
            return self.clock.wall_s().saturating_mul(1_000_000_000);
        }
        self.clock.now_ns()
    }

    /// Level 0 has `tables` now.
    pub fn set_backlog(&self, tables: usize) {
        self.backlog.store(tables as u32, Relaxed);
    }

    /// The fast tier is so far on the way from its high watermark (0) to its end (1). Writers are
    /// slowed down, never stopped: the memory for what they write ends before the tier does.
    pub fn set_fullness(&self, share: f64) {
        if share <= 0.0 {
            return self.set_backlog(0);
        }
        let span = f64::from((self.stop - self.slowdown).saturating_sub(1));
        let backlog = self.slowdown as usize + (share.min(1.0) * span) as usize;
        self.set_backlog(backlog.min(self.stop as usize - 1));
    }

    /// A compaction took `bytes` out of level 0 in `elapsed_ns`.
    pub fn drained(&self, bytes: u64, elapsed_ns: u64) {
        let rate = (bytes as f64 / (elapsed_ns.max(1) as f64 / 1e9)) as u64;
        let before = self.drain_rate.load(Relaxed);
        self.drain_rate.store(((before * 3 + rate) / 4).max(RATE_MIN), Relaxed);
    }

    /// Bytes a second that writers may write; none if they need not wait.
    pub fn rate(&self) -> Option<u64> {
        let backlog = self.backlog.load(Relaxed);
        if backlog < self.slowdown {
            return None;
        }
        let span = f64::from((self.stop - self.slowdown).max(1));
        let filled = (f64::from(backlog - self.slowdown) / span).min(1.0);
        let share = 2.0 * (1.0 - filled) + 0.05;
        Some(((self.drain_rate.load(Relaxed) as f64 * share) as u64).max(RATE_MIN))
    }

    /// Lets the calling writer pass with `bytes` when its time has come, or at once when `give_up`
    /// says so. Called without any lock.
    pub fn admit(&self, bytes: usize, give_up: impl Fn() -> bool) {
        let Some(rate) = self.rate() else { return };
        let cost_ns = (bytes as f64 / rate as f64 * 1e9) as u64;
        let turn_ns = {
            let mut until = self.reserved_until_ns.lock();
            // Time that nobody used is gone, or a pause would be followed by a burst.
            let start = (*until).max(self.now_ns());
            *until = start + cost_ns;
            start
        };
        loop {
            // What was reserved at a low rate is not owed any more once the backlog is gone.
            if self.rate().is_none() {
                *self.reserved_until_ns.lock() = 0;
                return;
            }
            let stopped = self.backlog.load(Relaxed) >= self.stop;
            let left_ns = turn_ns.saturating_sub(self.now_ns());
            if give_up() || (left_ns == 0 && !stopped) {
                return;
            }
            let most_ns = self.delay_max.as_nanos() as u64;
            let nap = Duration::from_nanos(if stopped { most_ns } else { left_ns.min(most_ns) });
            self.clock.sleep(nap);
            self.delayed_ns.add(nap.as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::still_clock::StillClock;

    #[test]
    fn the_rate_falls_smoothly_with_the_backlog() {
        let clock = Arc::new(StillClock::default());
        let pacing = Pacing::new(clock.clone(), 10, 30, Duration::from_secs(1));
        pacing.set_backlog(9);
        assert_eq!(pacing.rate(), None);
        pacing.admit(1 << 30, || false);
        assert_eq!(clock.now_ns(), 0);
        let rates: Vec<_> = (10..=40)
            .map(|backlog| {
                pacing.set_backlog(backlog);
                pacing.rate().unwrap()
            })
            .collect();
        assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
        assert!(rates[0] >= RATE_START && *rates.last().unwrap() >= RATE_MIN);
        assert!(rates.windows(2).all(|pair| pair[0] - pair[1] <= RATE_START / 8), "no cliff");
    }

    #[test]
    fn writers_get_about_the_allowed_rate() {
        let clock = Arc::new(StillClock::default());
        let pacing = Pacing::new(clock.clone(), 10, 30, Duration::from_secs(1));
        pacing.set_backlog(20);
        let rate = pacing.rate().unwrap();
        (0..1000).for_each(|_| pacing.admit(64 << 10, || false));
        let seconds = clock.now_ns() as f64 / 1e9;
        let reached = 999.0 * f64::from(64 << 10) / seconds;
        assert!((reached / rate as f64 - 1.0).abs() < 0.01, "{reached} against {rate}");
    }

    #[test]
    fn at_the_stop_writers_wait_until_the_backlog_falls_or_the_store_fails() {
        let clock = Arc::new(StillClock::default());
        let pacing = Pacing::new(clock.clone(), 10, 30, Duration::from_millis(20));
        pacing.set_backlog(30);
        let naps = AtomicU32::new(0);
        pacing.admit(1, || {
            if naps.fetch_add(1, Relaxed) == 5 {
                pacing.set_backlog(29);
            }
            false
        });
        assert!(clock.now_ns() >= 5 * 20_000_000);
        pacing.set_backlog(30);
        pacing.admit(1, || true);
    }
}
