//! A slow tier without room: a demotion that finds none changes nothing, and is tried again.
//!
//! Nothing is lost meanwhile, for what was to leave is still on the fast tier. Writers go on for as
//! long as that has slots. A flush that finds none waits; once demotions were tried again it says
//! that no tier has room, which writers that wait for it hear.

use crate::error::Error;
use std::time::Duration;
use thermocline_foundation::sync::Mutex;

/// How long the slow tier is left alone after it had no room, at first and at most: a merge may
/// have written all but the last of its tables for nothing.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(16);

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct SlowTierBackoff {
    refusal: Mutex<Option<Refusal>>,
}

/// Demotions have found no room since the last that found some.
#[derive(Debug)]
struct Refusal {
    /// How many.
    count: u64,
    /// When another is worth trying.
    retry_ns: u64,
    error: Error,
}

impl SlowTierBackoff {
    /// A demotion found no room.
    pub fn refuse(&self, error: &Error, now_ns: u64) {
        let mut refusal = self.refusal.lock();
        let count = match &*refusal {
            None => {
                tracing::warn!(%error, "records stay on the fast tier until there is room below");
                1
            }
            // It began before the last one failed.
            Some(refusal) if now_ns < refusal.retry_ns => return,
            Some(refusal) => refusal.count + 1,
        };
        let wait = RETRY_MIN.saturating_mul(1 << (count - 1).min(16)).min(RETRY_MAX);
        let retry_ns = now_ns + wait.as_nanos() as u64;
        *refusal = Some(Refusal { count, retry_ns, error: error.clone() });
    }

    /// A flush waits for room: the next attempt is soon.
    pub fn hurry(&self, now_ns: u64) {
        if let Some(refusal) = &mut *self.refusal.lock() {
            refusal.retry_ns = refusal.retry_ns.min(now_ns + RETRY_MIN.as_nanos() as u64);
        }
    }

    /// A demotion found room.
    pub fn found(&self) {
        if self.refusal.lock().take().is_some() {
            tracing::info!("records leave the fast tier again");
        }
    }

    /// How long it is until another demotion is worth trying; zero where one is now.
    pub fn wait(&self, now_ns: u64) -> Duration {
        let refusal = self.refusal.lock();
        let wait_ns = refusal.as_ref().map_or(0, |refusal| refusal.retry_ns.saturating_sub(now_ns));
        Duration::from_nanos(wait_ns)
    }

    /// Demotions that were tried and found no room, one after the other.
    pub fn refusals(&self) -> u64 {
        self.refusal.lock().as_ref().map_or(0, |refusal| refusal.count)
    }

    /// What the last of them met, where it was the last of all.
    pub fn reason(&self) -> Option<String> {
        self.refusal.lock().as_ref().map(|refusal| refusal.error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn demotions_are_tried_again_after_a_while_until_there_is_room() {
        let room = SlowTierBackoff::default();
        let full = |text: &str| Error::new(ErrorKind::OutOfSpace, text);
        assert_eq!((room.wait(0), room.refusals(), room.reason()), (Duration::ZERO, 0, None));
        let mut now_ns = 5;
        for (count, wait_s) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 16)] {
            room.refuse(&full("still full"), now_ns);
            assert_eq!(room.wait(now_ns), Duration::from_secs(wait_s));
            // Another, which was under way.
            room.refuse(&full("full"), now_ns + 1);
            assert_eq!((room.refusals(), room.reason().as_deref()), (count, Some("still full")));
            now_ns += wait_s * 1_000_000_000;
            assert_eq!(room.wait(now_ns), Duration::ZERO);
        }
        room.refuse(&full("full"), now_ns);
        room.hurry(now_ns);
        assert_eq!(room.wait(now_ns), RETRY_MIN);
        room.hurry(now_ns + 5);
        assert_eq!(room.wait(now_ns), RETRY_MIN, "no later than that");
        room.found();
        assert_eq!((room.wait(now_ns), room.refusals(), room.reason()), (Duration::ZERO, 0, None));
    }
}
