//! A clock for the tests of rates, which only sleeping moves.

use std::time::Duration;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct StillClock(AtomicU64);

impl Clock for StillClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn wall_s(&self) -> u64 {
        0
    }
    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(duration.as_nanos() as u64, Relaxed);
    }
}
