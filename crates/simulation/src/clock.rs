//! Simulated time: it passes when somebody sleeps or a device stalls, and jumps when told to.
//!
//! A caller that sleeps lets background work have a step, because in a real store it would.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline::Stepper;
use thermocline_foundation::Clock;

/// See the module's header.
#[derive(Debug)]
pub struct SimulatedClock {
    now_ns: AtomicU64,
    stepper: Arc<Stepper>,
}

/// Where simulated time begins: far from zero, so that jumps back have somewhere to go.
const START_NS: u64 = 1 << 50;

impl SimulatedClock {
    /// A clock whose sleepers give `stepper`'s work a turn.
    pub fn new(stepper: Arc<Stepper>) -> Self {
        Self { now_ns: AtomicU64::new(START_NS), stepper }
    }

    /// Lets `ns` pass.
    pub fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Relaxed);
    }

    /// Goes back by `ns`, which no clock should do and some have done.
    pub fn go_back(&self, ns: u64) {
        self.now_ns.fetch_sub(ns.min(START_NS / 2), Relaxed);
    }
}

impl Clock for SimulatedClock {
    fn now_ns(&self) -> u64 {
        // Time passes a little whenever somebody looks.
        self.now_ns.fetch_add(100, Relaxed)
    }

    fn wall_s(&self) -> u64 {
        self.now_ns.load(Relaxed) / 1_000_000_000
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration.as_nanos() as u64);
        self.stepper.step();
    }
}
