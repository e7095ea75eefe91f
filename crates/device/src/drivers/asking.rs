//! Waiting for a completion by asking, as `waiting.rs` decides and by a clock: for rings
//! (`ring.rs`) and for emulated devices (`emulated.rs`) alike.
//!
//! ```text
//!   not done ── pause ── not done ── pause ── done ── learn
//!                 |                    |
//!      the pause of the way        a moment; after `ASK_NS_MAX` no more: the caller waits
//! ```
//!
//! Threads: one `Asking` serves all callers of a driver; a `Caller` is a value of its caller.

use super::waiting::{ASK_NS_MAX, Awaited, Means, Waiting};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::Clock;

/// How the callers of a driver wait.
#[derive(Debug)]
pub(super) struct Asking {
    waiting: Waiting,
    means: Means,
    pub clock: Arc<dyn Clock>,
}

/// Requests that were handed in together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub started_ns: u64,
    /// What its first request is.
    pub first: Awaited,
    /// There is no other, so how long it takes says something of it.
    pub is_single: bool,
}

/// A caller that asks.
#[derive(Debug)]
pub(super) struct Caller {
    batch: Batch,
    /// When it asked for the first time, and whether it has asked again.
    first_ns: Option<u64>,
    again: bool,
}

impl Caller {
    /// Of what waits for a batch.
    pub fn new(batch: Batch) -> Self {
        Self { batch, first_ns: None, again: false }
    }
}

impl Asking {
    /// Of callers that wait in this way, by `clock`.
    pub fn new(waiting: Waiting, clock: Arc<dyn Clock>) -> Self {
        Self { waiting, means: Means::default(), clock }
    }

    /// Lets time pass before `caller` asks again; false where it is to wait until it is told.
    pub fn pause(&self, caller: &mut Caller) -> bool {
        let Batch { started_ns, first, .. } = caller.batch;
        let Some(pause_ns) = self.means.pause_ns(self.waiting, first) else { return false };
        let now_ns = self.clock.now_ns();
        match caller.first_ns {
            None => {
                let from_ns = started_ns.saturating_add(pause_ns);
                if from_ns > now_ns {
                    sharpen_timer();
                    self.clock.sleep(Duration::from_nanos(from_ns - now_ns));
                }
                caller.first_ns = Some(now_ns.max(from_ns));
                true
            }
            Some(first_ns) if now_ns.saturating_sub(first_ns) > ASK_NS_MAX => false,
            Some(_) => {
                self.clock.pause();
                caller.again = true;
                true
            }
        }
    }

    /// What `caller` asked for is done.
    pub fn learn(&self, caller: &Caller) {
        let Batch { started_ns, first, is_single } = caller.batch;
        if is_single && caller.first_ns.is_some() {
            let took_ns = self.clock.now_ns().saturating_sub(started_ns);
            self.means.observe(first, took_ns, !caller.again);
        }
    }
}

/// The kernel lets sleeps end up to 50 us late to save power, eight times the latency of the
/// fastest profile. Each thread that waits asks for 1 us once; where that is refused it stays slow.
pub(super) fn sharpen_timer() {
    const SLACK_NS: Option<NonZeroU64> = NonZeroU64::new(1_000);
    thread_local!(static SHARP: Cell<bool> = const { Cell::new(false) });
    SHARP.with(|sharp| {
        if !sharp.replace(true)
            && let Err(error) = rustix::thread::set_current_timer_slack(SLACK_NS)
        {
            tracing::debug!(%error, "timer slack stays as it is");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// A clock that only sleeping and pausing move, which counts both.
    #[derive(Debug, Default)]
    struct CountingClock {
        now_ns: AtomicU64,
        sleeps: AtomicU64,
        pauses: AtomicU64,
    }

    impl Clock for CountingClock {
        fn now_ns(&self) -> u64 {
            self.now_ns.load(Relaxed)
        }

        fn wall_s(&self) -> u64 {
            0
        }

        fn sleep(&self, duration: Duration) {
            self.sleeps.fetch_add(1, Relaxed);
            self.now_ns.fetch_add(duration.as_nanos() as u64, Relaxed);
        }

        fn pause(&self) {
            self.pauses.fetch_add(1, Relaxed);
            self.now_ns.fetch_add(1_000, Relaxed);
        }
    }

    /// Waits for a read that takes `device_ns`: whether asking came to its end, and how often the
    /// caller slept and paused.
    fn read(asking: &Asking, clock: &CountingClock, device_ns: u64, first: Awaited) -> Asked {
        let before = (clock.sleeps.load(Relaxed), clock.pauses.load(Relaxed));
        let started_ns = clock.now_ns();
        let mut caller = Caller::new(Batch { started_ns, first, is_single: true });
        let mut is_told = false;
        while clock.now_ns() < started_ns + device_ns && !is_told {
            is_told = !asking.pause(&mut caller);
        }
        asking.learn(&caller);
        Asked {
            is_told,
            sleeps: clock.sleeps.load(Relaxed) - before.0,
            pauses: clock.pauses.load(Relaxed) - before.1,
        }
    }

    #[derive(Debug, PartialEq, Eq)]
    struct Asked {
        is_told: bool,
        sleeps: u64,
        pauses: u64,
    }

    fn asked(sleeps: u64, pauses: u64) -> Asked {
        Asked { is_told: false, sleeps, pauses }
    }

    #[test]
    fn callers_ask_until_it_is_done_and_sleep_before_as_their_way_says() {
        let clock = Arc::new(CountingClock::default());
        let page = Awaited::Read(4096);
        let of = |waiting| Asking::new(waiting, Arc::clone(&clock) as _);
        let told = Asked { is_told: true, sleeps: 0, pauses: 0 };
        assert_eq!(read(&of(Waiting::Interrupt), &clock, 80_000, page), told);
        assert_eq!(read(&of(Waiting::Poll), &clock, 80_000, page), asked(0, 80));
        assert_eq!(read(&of(Waiting::Fixed(40)), &clock, 80_000, page), asked(1, 40));
        assert_eq!(read(&of(Waiting::Poll), &clock, 80_000, Awaited::Durable), told);
        let dynamic = of(Waiting::Dynamic(75));
        assert_eq!(read(&dynamic, &clock, 80_000, page), asked(0, 80), "nothing is known yet");
        assert_eq!(read(&dynamic, &clock, 80_000, page), asked(1, 20));
    }

    #[test]
    fn asking_ends_and_what_comes_of_several_requests_teaches_nothing() {
        let clock = Arc::new(CountingClock::default());
        let page = Awaited::Read(4096);
        let asking = Asking::new(Waiting::Poll, Arc::clone(&clock) as _);
        let slow = read(&asking, &clock, 3 * ASK_NS_MAX, page);
        assert!(slow.is_told && slow.pauses <= ASK_NS_MAX / 1_000 + 1, "{slow:?}");
        let dynamic = Asking::new(Waiting::Dynamic(50), Arc::clone(&clock) as _);
        let mut caller =
            Caller::new(Batch { started_ns: clock.now_ns(), first: page, is_single: false });
        assert!(dynamic.pause(&mut caller) && dynamic.pause(&mut caller));
        dynamic.learn(&caller);
        assert_eq!(read(&dynamic, &clock, 8_000, page), asked(0, 8), "nothing is known");
    }
}
