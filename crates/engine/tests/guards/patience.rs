//! A clock whose patience ends: a caller that waits for what never comes, as a claim that is not
//! given back or a budget whose promises stay, sleeps and looks again for ever. With this clock its
//! test fails instead, and says so.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline_foundation::{Clock, SystemClock};

/// What all callers of a store sleep together: several times what any test needs.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The clock of this machine, up to so much sleep.
#[derive(Debug, Default)]
pub struct PatientClock {
    system: SystemClock,
    slept_ns: AtomicU64,
}

impl Clock for PatientClock {
    fn now_ns(&self) -> u64 {
        self.system.now_ns()
    }

    fn wall_s(&self) -> u64 {
        self.system.wall_s()
    }

    fn sleep(&self, duration: Duration) {
        let slept_ns = self.slept_ns.fetch_add(duration.as_nanos() as u64, Relaxed);
        assert!(
            u128::from(slept_ns) < SLEEP_MAX.as_nanos(),
            "callers have slept {SLEEP_MAX:?} for what does not come: the end of another's claim, \
             room, or what the budget of writes allows"
        );
        self.system.sleep(duration);
    }
}
