//! The rate of compactions below level 0: as fast as writes make work for them, and no faster.
//!
//! A merge of level 0 leaves work for every level below it at once. Done at the device's speed it
//! takes the slow tier away from readers for seconds, and is then over long before the next merge
//! of level 0 brings more. Spread over that time it is hardly noticed.
//!
//! ```text
//!   bytes moved a second = bytes flushed a second * work for each * HEADROOM
//!   work for each        = sum over the levels from the base on of 1 + size of the next / own size
//! ```
//! There is no limit while nothing is written, while a caller waits for background work, and while
//! the levels are behind: then compactions run at full speed.
//!
//! Threads: any; the lock is held for moments. The compactions that run share one rate.

use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The least rate, in bytes a second: below it a limit would spare readers nothing.
const RATE_MIN: u64 = 16 << 20;

/// How much faster than what flushes bring, so that what was left over is worked off too.
const HEADROOM: f64 = 1.5;

/// The longest nap: a store that closes waits for it.
const NAP_MAX: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct State {
    /// When the last flush ended, and what flushes bring, in bytes a second.
    flushed_ns: u64,
    flush_rate: f64,
    /// Until when the compactions so far have used up their time.
    used_until_ns: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct CompactionRate {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Bytes that compactions move for each that is flushed, in hundredths.
    work_percent: AtomicU64,
    behind: AtomicBool,
    hurried: AtomicU32,
}

/// While it lives there is no limit.
pub(crate) struct Hurry<'a>(&'a CompactionRate);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Relaxed);
    }
}

impl CompactionRate {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State { flushed_ns: clock.now_ns(), flush_rate: 0.0, used_until_ns: 0 };
        Self {
            clock,
            state: Mutex::new(state),
            work_percent: AtomicU64::new(0),
            behind: AtomicBool::new(false),
            hurried: AtomicU32::new(0),
        }
    }

    /// The store is about to be open: what flushes bring is measured from here.
    pub fn begin(&self) {
        self.state.lock().flushed_ns = self.clock.now_ns();
    }

    /// A caller waits for background work until it drops the guard.
    pub fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Relaxed);
        Hurry(self)
    }

    /// Whether a caller waits for background work at this moment.
    pub fn is_hurried(&self) -> bool {
        self.hurried.load(Relaxed) > 0
    }

    /// A flush has brought `bytes`.
    pub fn flushed(&self, bytes: u64) {
        let mut state = self.state.lock();
        let now_ns = self.clock.now_ns();
        let elapsed_ns = now_ns.saturating_sub(state.flushed_ns).max(1);
        let rate = bytes as f64 / (elapsed_ns as f64 / 1e9);
        // A burst counts at once, its end after some flushes.
        state.flush_rate = rate.max((state.flush_rate * 3.0 + rate) / 4.0);
        state.flushed_ns = now_ns;
    }

    /// The levels have changed: `work` is what compactions move for each byte flushed.
    pub fn set_levels(&self, work: f64, behind: bool) {
        self.work_percent.store((work * 100.0) as u64, Relaxed);
        self.behind.store(behind, Relaxed);
    }

    /// Bytes a second that compactions may move; none if they need not wait.
    pub fn rate(&self) -> Option<u64> {
        if self.behind.load(Relaxed) || self.is_hurried() {
            return None;
        }
        let work = self.work_percent.load(Relaxed) as f64 / 100.0;
        let rate = self.state.lock().flush_rate * work * HEADROOM;
        Some((rate as u64).max(RATE_MIN))
    }

    /// Naps if the compactions so far have been faster than they may be. Says whether the caller
    /// may move on, which uses up the time of `bytes`; if not, it is to come again.
    pub fn admit(&self, bytes: u64) -> bool {
        let Some(rate) = self.rate() else { return true };
        let now_ns = self.clock.now_ns();
        let left_ns = {
            let mut state = self.state.lock();
            let left_ns = state.used_until_ns.saturating_sub(now_ns);
            if left_ns < NAP_MAX.as_nanos() as u64 {
                // Unused time is gone, or a burst would follow a pause.
                let start_ns = state.used_until_ns.max(now_ns);
                state.used_until_ns = start_ns + (bytes as f64 / rate as f64 * 1e9) as u64;
            }
            left_ns
        };
        let nap = Duration::from_nanos(left_ns).min(NAP_MAX);
        if !nap.is_zero() {
            self.clock.sleep(nap);
        }
        nap < NAP_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::still_clock::StillClock;
    use crate::support::until;

    const MIB: u64 = 1 << 20;

    /// Seconds in which `mib` MiB are moved.
    fn seconds(rate: &CompactionRate, clock: &StillClock, mib: u64) -> f64 {
        let start_ns = clock.now_ns();
        for _ in 0..mib {
            until("another MiB to be admitted", || rate.admit(MIB));
        }
        (clock.now_ns() - start_ns) as f64 / 1e9
    }

    #[test]
    fn compactions_move_as_much_as_flushes_make_them_and_half_as_much_again() {
        let clock = Arc::new(StillClock::default());
        let rate = CompactionRate::new(clock.clone());
        rate.set_levels(20.0, false);
        for _ in 0..10 {
            clock.sleep(Duration::from_secs(4));
            rate.flushed(8 * MIB);
        }
        // 2 MiB/s, each moved 20 times, and the headroom.
        assert_eq!(rate.rate(), Some(60 * MIB));
        let seconds = seconds(&rate, &clock, 600);
        assert!((9.9..10.1).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_burst_of_flushes_is_followed_at_once_and_its_end_slowly() {
        let clock = Arc::new(StillClock::default());
        let rate = CompactionRate::new(clock.clone());
        rate.set_levels(10.0, false);
        let flush = |seconds| {
            clock.sleep(Duration::from_secs(seconds));
            rate.flushed(64 * MIB);
            rate.rate().unwrap() / MIB
        };
        assert_eq!(flush(16), 60);
        assert_eq!(flush(1), 960);
        assert_eq!(flush(16), 735, "three quarters of the last, a quarter of now");
    }

    #[test]
    fn nothing_waits_while_the_levels_are_behind_or_a_caller_waits_for_them() {
        let clock = Arc::new(StillClock::default());
        let rate = CompactionRate::new(clock.clone());
        assert_eq!(rate.rate(), Some(RATE_MIN), "before the first flush");
        rate.set_levels(10.0, true);
        assert_eq!(seconds(&rate, &clock, 1000), 0.0);
        rate.set_levels(10.0, false);
        let hurry = rate.hurry();
        assert_eq!(seconds(&rate, &clock, 1000), 0.0);
        drop(hurry);
        assert!(seconds(&rate, &clock, 1000) > 60.0);
    }

    #[test]
    fn a_compaction_that_has_to_wait_for_long_naps_shortly() {
        let clock = Arc::new(StillClock::default());
        let rate = CompactionRate::new(clock.clone());
        assert!(rate.admit(RATE_MIN));
        for nap in 1..=49 {
            assert!(!rate.admit(RATE_MIN));
            assert_eq!(clock.now_ns(), nap * 20_000_000);
        }
    }
}
