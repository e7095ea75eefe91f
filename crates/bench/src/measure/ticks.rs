//! The clock of a run: the processor's counter, scaled to nanoseconds.
//!
//! Two readings of the operating system's clock cost an operation 50 ns and more, a fifth of what
//! the harness takes in all; the processor's counter costs a third of that. It is scaled by the
//! operating system's clock once, before a run. Where a machine has no counter that can be relied
//! on (it must run at one speed and through sleep), `quanta` reads the operating system's clock in
//! its place, and the scale is one.
//!
//! Invariants:
//! 1. Within one thread it never goes back.
//! 2. It is as exact as the calibration: a reading of both clocks at once, told by the shortest of
//!    many attempts, at both ends of `CALIBRATION`; about 2 in a million.
//!
//! Threads: read-only once it is made.

use std::fmt;
use std::time::Duration;
use thermocline_foundation::{Clock, SystemClock};

/// How long the two clocks are compared.
const CALIBRATION: Duration = Duration::from_millis(40);
/// Readings of both clocks, of which the shortest counts: others were interrupted.
const ATTEMPTS: u32 = 100;
const SCALE_BITS: u32 = 32;

/// See the module's header.
pub struct Ticks {
    counter: quanta::Clock,
    system: SystemClock,
    base: u64,
    /// Nanoseconds of a tick, in units of 2^-[`SCALE_BITS`].
    scale: u64,
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticks").field("scale", &self.scale).finish_non_exhaustive()
    }
}

impl Ticks {
    /// A clock that begins at zero now; takes `CALIBRATION`.
    pub fn new() -> Self {
        let (counter, system) = (quanta::Clock::new(), SystemClock::new());
        let both = || {
            let attempt = || {
                let before = counter.raw();
                let ns = system.now_ns();
                let after = counter.raw();
                (after.saturating_sub(before), before + after.saturating_sub(before) / 2, ns)
            };
            let (_, ticks, ns) = (1..ATTEMPTS).fold(attempt(), |best, _| best.min(attempt()));
            (ticks, ns)
        };
        let (base, begin_ns) = both();
        system.sleep(CALIBRATION);
        let (ticks, ns) = both();
        let (ticks, ns) = (ticks.saturating_sub(base).max(1), ns - begin_ns);
        let scale = ((u128::from(ns) << SCALE_BITS) / u128::from(ticks)) as u64;
        Self { counter, system, base, scale }
    }

    /// Nanoseconds since it was made.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        let ticks = self.counter.raw().saturating_sub(self.base);
        ((u128::from(ticks) * u128::from(self.scale)) >> SCALE_BITS) as u64
    }

    /// Lets `duration` pass.
    pub fn sleep(&self, duration: Duration) {
        self.system.sleep(duration);
    }
}

impl Default for Ticks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_as_fast_as_the_system_s_clock_and_never_back() {
        let ticks = Ticks::new();
        let system = SystemClock::new();
        // A pause between the two readings must not count: the shortest of several attempts.
        let skew = || {
            let before = ticks.now_ns() as i64;
            let ns = system.now_ns() as i64;
            let after = ticks.now_ns() as i64;
            (after - before, before - ns)
        };
        let shortest = || (0..100).map(|_| skew()).min().unwrap().1;
        let before = shortest();
        let mut last = 0;
        while system.now_ns() < 100_000_000 {
            let now = ticks.now_ns();
            assert!(now >= last);
            last = now;
        }
        let drift = shortest() - before;
        assert!(drift.abs() < 20_000, "{drift} ns in 100 ms");
    }
}
