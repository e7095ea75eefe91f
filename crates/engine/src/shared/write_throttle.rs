//! WriteThrottle: smooth back-pressure. When flushed tables pile up in level 0, reads slow down and
//! space grows; with a fast tier of slots its room ends. Writers are then slowed to about the rate
//! at which compactions and demotions drain what has piled up, instead of being stopped now and
//! then.
//!
//! ```text
//!   level 0            level0_slowdown ............................. level0_stop
//!   fast tier          high watermark ........................ end      (15/16)
//!   allowed rate       2.05 times the drain rate ............ 0.17 ..... writers wait
//! ```
//!
//! The rate falls evenly on the way, which is counted in parts of itself and not in tables: a fast
//! tier has none that pile up, and its fullness takes nothing from the settings of level 0. A write
//! of n bytes reserves n / rate of time; a writer that comes early sleeps until its turn, and looks
//! every `delay_max` whether it still has to.

use crate::settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::{Clock, Counter, Planted, planted};

/// Rate taken before anything was measured, and the least one, in bytes a second.
const RATE_START: u64 = 32 << 20;
const RATE_MIN: u64 = 1 << 20;

/// Bytes for which a writer reserves time at once: at the least rate the writers that come next
/// wait a quarter of a second for them.
const PIECE_BYTES: usize = 256 << 10;

/// Parts of the way from where writers are slowed down to where they wait.
const PARTS: u32 = 1 << 20;
/// Where the way ends for a fast tier: writers are slowed down, never stopped, for the memory for
/// what they write ends before the tier does.
const FULL_TIER_PARTS: u32 = PARTS / 16 * 15;
/// Before the way begins.
const NOT_SLOWED: u32 = u32::MAX;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct WriteThrottle {
    clock: Arc<dyn Clock>,
    slowdown: u32,
    stop: u32,
    delay_max: Duration,
    /// How far the backlog is on the way, in [`PARTS`], or [`NOT_SLOWED`].
    backlog: AtomicU32,
    drain_rate: AtomicU64,
    /// Until when the writers so far have used up their time, in the clock's nanoseconds.
    reserved_until_ns: Mutex<u64>,
    /// Time writers slept, in nanoseconds.
    pub delayed_ns: Counter,
}

impl WriteThrottle {
    pub fn new(clock: Arc<dyn Clock>, settings: &Settings) -> Self {
        let (slowdown, stop) = (settings.level0_slowdown, settings.level0_stop);
        Self::between(clock, slowdown, stop, settings.delay_max.0)
    }

    /// Writers are slowed down from `slowdown` tables on, and wait at `stop`.
    fn between(clock: Arc<dyn Clock>, slowdown: u32, stop: u32, delay_max: Duration) -> Self {
        Self {
            clock,
            slowdown,
            stop,
            delay_max,
            backlog: AtomicU32::new(NOT_SLOWED),
            drain_rate: AtomicU64::new(RATE_START),
            reserved_until_ns: Mutex::new(0),
            delayed_ns: Counter::default(),
        }
    }

    fn now_ns(&self) -> u64 {
        if planted(Planted::ThrottleReadsWallClock) {
            return self.clock.wall_s().saturating_mul(1_000_000_000);
        }
        self.clock.now_ns()
    }

    /// Level 0 has `tables` now.
    pub fn set_backlog(&self, tables: usize) {
        let (slowdown, stop) = (u64::from(self.slowdown), u64::from(self.stop));
        let parts = match tables as u64 {
            tables if tables < slowdown => NOT_SLOWED,
            tables if tables >= stop => PARTS,
            tables => ((tables - slowdown) * u64::from(PARTS) / (stop - slowdown)) as u32,
        };
        self.backlog.store(parts, Relaxed);
    }

    /// The fast tier is so far on the way from its high watermark (0) to its end (1).
    pub fn set_fullness(&self, share: f64) {
        let parts = match share {
            share if share > 0.0 => (share.min(1.0) * f64::from(FULL_TIER_PARTS)) as u32,
            _ => NOT_SLOWED,
        };
        self.backlog.store(parts, Relaxed);
    }

    /// A compaction took `bytes` out of level 0, or a demotion out of slots, in `elapsed_ns`.
    pub fn drained(&self, bytes: u64, elapsed_ns: u64) {
        let rate = (bytes as f64 / (elapsed_ns.max(1) as f64 / 1e9)) as u64;
        let before = self.drain_rate.load(Relaxed);
        self.drain_rate.store(((before * 3 + rate) / 4).max(RATE_MIN), Relaxed);
    }

    /// Bytes a second that writers may write; none if they need not wait.
    pub fn rate(&self) -> Option<u64> {
        let parts = self.backlog.load(Relaxed);
        if parts == NOT_SLOWED {
            return None;
        }
        let share = 2.0 * (1.0 - f64::from(parts) / f64::from(PARTS)) + 0.05;
        Some(((self.drain_rate.load(Relaxed) as f64 * share) as u64).max(RATE_MIN))
    }

    /// Lets the calling writer pass with `bytes` when its time has come, or at once when `give_up`
    /// says so. Called without any lock. A long write reserves its time piece by piece and waits
    /// for each, so that others come in between and none of them pays for all of it.
    pub fn admit(&self, bytes: usize, give_up: impl Fn() -> bool) {
        let mut left = bytes;
        while left > PIECE_BYTES && self.rate().is_some() && !give_up() {
            self.admit_piece(PIECE_BYTES, &give_up);
            left -= PIECE_BYTES;
        }
        self.admit_piece(left.min(PIECE_BYTES), &give_up);
    }

    fn admit_piece(&self, bytes: usize, give_up: &impl Fn() -> bool) {
        let Some(rate) = self.rate() else { return };
        let cost_ns = (bytes as f64 / rate as f64 * 1e9) as u64;
        let turn_ns = {
            let mut until = self.reserved_until_ns.lock();
            // Unused time is gone, or a burst would follow a pause.
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
            let stopped = self.backlog.load(Relaxed) == PARTS;
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
    use crate::support::still_clock::StillClock;

    #[test]
    fn the_rate_falls_smoothly_with_the_backlog() {
        let clock = Arc::new(StillClock::default());
        let write_throttle = WriteThrottle::between(clock.clone(), 10, 30, Duration::from_secs(1));
        write_throttle.set_backlog(9);
        assert_eq!(write_throttle.rate(), None);
        write_throttle.admit(1 << 30, || false);
        assert_eq!(clock.now_ns(), 0);
        let rates: Vec<_> = (10..=40)
            .map(|backlog| {
                write_throttle.set_backlog(backlog);
                write_throttle.rate().unwrap()
            })
            .collect();
        assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
        assert!(rates[0] >= RATE_START && *rates.last().unwrap() >= RATE_MIN);
        assert!(rates.windows(2).all(|pair| pair[0] - pair[1] <= RATE_START / 8), "no cliff");
    }

    /// Rates from the high watermark to the end of the fast tier, and beyond, with these tables of
    /// level 0.
    fn rates_of_fullness(slowdown: u32, stop: u32) -> Vec<Option<u64>> {
        let clock = Arc::new(StillClock::default());
        let write_throttle = WriteThrottle::between(clock, slowdown, stop, Duration::from_secs(1));
        let rate = |share| {
            write_throttle.set_fullness(share);
            write_throttle.rate()
        };
        [-1.0, 0.0].into_iter().chain((1..=120).map(|at| f64::from(at) / 100.0)).map(rate).collect()
    }

    #[test]
    fn a_full_fast_tier_slows_writers_evenly_whatever_is_said_of_level_0() {
        let rates = rates_of_fullness(20, 36);
        assert_eq!(rates[..2], [None, None], "up to the high watermark");
        let slowed: Vec<_> = rates[2..].iter().map(|rate| rate.unwrap()).collect();
        assert!(slowed.is_sorted_by(|a, b| a >= b), "{slowed:?}");
        assert!(slowed[0] > RATE_START * 2, "{slowed:?}");
        assert!(slowed.windows(2).all(|pair| pair[0] - pair[1] <= RATE_START / 40), "no cliff");
        let least = slowed[99] as f64 / RATE_START as f64;
        assert!((0.17..0.18).contains(&least), "{least} of the drain rate at the end");
        assert!(slowed[99..].iter().all(|rate| *rate == slowed[99]), "and beyond");
        assert!(slowed[..99].iter().all(|rate| *rate > slowed[99]));
        for (slowdown, stop) in [(1, 1), (4, 4), (20, 20), (20, 21), (3, 1000)] {
            assert_eq!(rates_of_fullness(slowdown, stop), rates, "{slowdown} to {stop} tables");
        }
    }

    #[test]
    fn writers_are_slowed_by_a_full_fast_tier_and_never_stopped() {
        let clock = Arc::new(StillClock::default());
        let write_throttle = WriteThrottle::between(clock.clone(), 4, 4, Duration::from_secs(1));
        write_throttle.set_fullness(0.0);
        write_throttle.admit(1 << 30, || false);
        assert_eq!(clock.now_ns(), 0, "there is room");
        write_throttle.set_fullness(1.0);
        let rate = write_throttle.rate().unwrap();
        // No job makes room meanwhile, and all writes pass.
        (0..100).for_each(|_| write_throttle.admit(64 << 10, || false));
        let waited_s = clock.now_ns() as f64 / 1e9;
        let reached = 99.0 * f64::from(64 << 10) / waited_s;
        assert!((reached / rate as f64 - 1.0).abs() < 0.01, "{reached} against {rate}");
    }

    #[test]
    fn writers_get_about_the_allowed_rate() {
        let clock = Arc::new(StillClock::default());
        let write_throttle = WriteThrottle::between(clock.clone(), 10, 30, Duration::from_secs(1));
        write_throttle.set_backlog(20);
        let rate = write_throttle.rate().unwrap();
        (0..1000).for_each(|_| write_throttle.admit(64 << 10, || false));
        let seconds = clock.now_ns() as f64 / 1e9;
        let reached = 999.0 * f64::from(64 << 10) / seconds;
        assert!((reached / rate as f64 - 1.0).abs() < 0.01, "{reached} against {rate}");
    }

    /// The clock moves for sleeping threads only: a small write sleeps only as long as it waits for
    /// others.
    #[test]
    fn a_small_write_behind_a_large_one_waits_for_a_piece_of_it() {
        let clock = Arc::new(StillClock::default());
        let throttle = WriteThrottle::between(clock.clone(), 10, 30, Duration::from_secs(1));
        throttle.set_backlog(20);
        let rate = throttle.rate().unwrap() as f64;
        let waited_s = |bytes: usize| {
            let before_ns = clock.now_ns();
            throttle.admit(bytes, || false);
            (clock.now_ns() - before_ns) as f64 / 1e9
        };
        let piece_s = PIECE_BYTES as f64 / rate;
        for bytes in [PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES, 256 << 20] {
            let large_s = waited_s(bytes);
            let own_s = bytes as f64 / rate;
            assert!(large_s <= own_s + 0.001, "{bytes} bytes waited {large_s} s of {own_s}");
            assert!(large_s >= own_s - 1.01 * piece_s, "{bytes} bytes waited {large_s} s");
            let small_s = waited_s(100);
            assert!(small_s <= 1.01 * piece_s, "behind {bytes} bytes {small_s} s");
            waited_s(1);
        }
    }

    #[test]
    fn a_large_value_goes_on_at_once_when_the_backlog_is_gone_or_the_store_fails() {
        let clock = Arc::new(StillClock::default());
        let throttle = WriteThrottle::between(clock.clone(), 10, 30, Duration::from_secs(1));
        for ends in [true, false] {
            throttle.set_backlog(20);
            let asked = AtomicU32::new(0);
            let rate = throttle.rate().unwrap() as f64;
            let before_ns = clock.now_ns();
            throttle.admit(256 << 20, || {
                let is_over = asked.fetch_add(1, Relaxed) >= 20;
                if is_over && !ends {
                    throttle.set_backlog(0);
                }
                is_over && ends
            });
            let waited_s = (clock.now_ns() - before_ns) as f64 / 1e9;
            assert!(waited_s < 25.0 * PIECE_BYTES as f64 / rate, "{waited_s} s");
        }
    }

    #[test]
    fn at_the_stop_writers_wait_until_the_backlog_falls_or_the_store_fails() {
        let clock = Arc::new(StillClock::default());
        let write_throttle =
            WriteThrottle::between(clock.clone(), 10, 30, Duration::from_millis(20));
        write_throttle.set_backlog(30);
        let naps = AtomicU32::new(0);
        write_throttle.admit(1, || {
            if naps.fetch_add(1, Relaxed) == 5 {
                write_throttle.set_backlog(29);
            }
            false
        });
        assert!(clock.now_ns() >= 5 * 20_000_000);
        write_throttle.set_backlog(30);
        write_throttle.admit(1, || true);
    }
}
