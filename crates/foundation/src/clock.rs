//! The door for time.

use std::fmt;
use std::time::Duration;
#[cfg(not(shuttle))]
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time. The engine holds one and asks nothing else, so that a simulation can make time
/// jump or stop.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Nanoseconds since some fixed moment; never goes back.
    fn now_ns(&self) -> u64;

    /// Wall-clock seconds since 1970; may jump either way, so it is shown to people and decides
    /// nothing.
    fn wall_s(&self) -> u64;

    /// Lets `duration` pass on the calling thread.
    fn sleep(&self, duration: Duration);

    /// Lets a moment pass on the calling thread, which is about to ask for something once more and
    /// keeps its processor unless another thread wants it.
    fn pause(&self) {
        self.sleep(Duration::from_nanos(100));
    }
}

/// The operating system's clocks. Where schedules are checked (`--cfg shuttle`, see `sync`) a clock
/// that only sleeping and being asked moves, so that a schedule has the same times each time.
#[derive(Debug)]
pub struct SystemClock {
    #[cfg(not(shuttle))]
    start: Instant,
    #[cfg(shuttle)]
    now_ns: std::sync::atomic::AtomicU64,
}

#[cfg(not(shuttle))]
impl SystemClock {
    /// A clock that reads zero now.
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(shuttle))]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    fn wall_s(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    fn pause(&self) {
        // About a microsecond. With as many callers that ask as there are processors nothing else
        // would run.
        (0..16).for_each(|_| std::hint::spin_loop());
        std::thread::yield_now();
    }
}

#[cfg(shuttle)]
mod scheduled {
    use super::{Clock, Duration, SystemClock};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    impl SystemClock {
        /// A clock that reads zero now.
        pub fn new() -> Self {
            Self { now_ns: AtomicU64::new(0) }
        }
    }

    impl Clock for SystemClock {
        fn now_ns(&self) -> u64 {
            self.now_ns.fetch_add(1000, Relaxed)
        }

        fn wall_s(&self) -> u64 {
            0
        }

        fn sleep(&self, duration: Duration) {
            self.now_ns.fetch_add(duration.as_nanos() as u64, Relaxed);
            shuttle::thread::yield_now();
        }
    }
}
