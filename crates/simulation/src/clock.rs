//! Simulated time: it passes when a caller sleeps or a device stalls, and jumps when told to.
//!
//! A caller that sleeps lets background work have a step, because in a real store it would. A
//! caller that sleeps on and on although there is no work would wait for ever, and a panic says so.

use crate::recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline::Stepper;
use thermocline_foundation::Clock;

/// See the module's header.
#[derive(Debug)]
pub struct SimulatedClock {
    now_ns: AtomicU64,
    /// How much of that the clock jumped, without a sleep that took as long.
    jumped_ns: AtomicU64,
    /// How far the wall clock was set forward, in nanoseconds; negative: back.
    wall_set_ns: AtomicI64,
    /// Sleeps in a row without any background work.
    vain_sleeps: AtomicU64,
    stepper: Arc<Stepper>,
}

/// So many vain sleeps in a row are for ever.
const VAIN_SLEEPS_MAX: u64 = 20_000;

/// Where simulated time begins: far from zero, so that the wall clock can be set back.
const START_NS: u64 = 1 << 50;

impl SimulatedClock {
    /// A clock whose sleepers give `stepper`'s work a turn.
    pub fn new(stepper: Arc<Stepper>) -> Self {
        let (now_ns, zero) = (AtomicU64::new(START_NS), AtomicU64::default);
        let wall_set_ns = AtomicI64::default();
        Self { now_ns, jumped_ns: zero(), wall_set_ns, vain_sleeps: zero(), stepper }
    }

    /// Lets `ns` pass.
    pub fn advance(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Relaxed);
    }

    /// The clock jumps forward by `ns`, as when a machine was suspended; both clocks do.
    pub fn jump(&self, ns: u64) {
        self.advance(ns);
        self.jumped_ns.fetch_add(ns, Relaxed);
    }

    /// Sets the wall clock forward by `ns`, or back where it is negative, as its owner may.
    pub fn set_wall(&self, ns: i64) {
        self.wall_set_ns.fetch_add(ns, Relaxed);
    }

    /// What time it is, without any passing.
    pub fn peek_ns(&self) -> u64 {
        self.now_ns.load(Relaxed)
    }

    /// Nanoseconds by which the clock jumped so far.
    pub fn jumped_ns(&self) -> u64 {
        self.jumped_ns.load(Relaxed)
    }
}

impl Clock for SimulatedClock {
    fn now_ns(&self) -> u64 {
        // Time passes a little at each look. Not while calls are recorded: the manifest keeps
        // times, and how often the engine looks is no device call.
        let look_ns = if recorder::is_on() { 0 } else { 100 };
        self.now_ns.fetch_add(look_ns, Relaxed)
    }

    fn wall_s(&self) -> u64 {
        self.peek_ns().saturating_add_signed(self.wall_set_ns.load(Relaxed)) / 1_000_000_000
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration.as_nanos() as u64);
        let vain = if self.stepper.step() { 0 } else { self.vain_sleeps.load(Relaxed) + 1 };
        self.vain_sleeps.store(vain, Relaxed);
        assert!(vain < VAIN_SLEEPS_MAX, "a caller waits for ever: there is no background work");
    }
}
