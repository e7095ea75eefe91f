//! A slow tier without room: a demotion that finds none changes nothing, and is tried again.
//!
//! Nothing is lost meanwhile, for what was to leave is still on the fast tier. Writers go on for as
//! long as that has slots. A flush that finds none waits until demotions were tried again, and then
//! says that no tier has room; from then on the store is read-only, as after any failed write.

use crate::error::Error;
use std::time::Duration;
use thermocline_foundation::sync::Mutex;

/// How long the slow tier is left alone after it had no room: a failed merge has written up to a
/// table for nothing.
const RETRY: Duration = Duration::from_secs(1);

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct SlowRoom {
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

impl SlowRoom {
    /// A demotion found no room.
    pub fn refuse(&self, error: &Error, now_ns: u64) {
        let mut refusal = self.refusal.lock();
        let count = refusal.as_ref().map_or(0, |refusal| refusal.count) + 1;
        if count == 1 {
            tracing::warn!(%error, "records stay on the fast tier until there is room below");
        }
        let retry_ns = now_ns + RETRY.as_nanos() as u64;
        *refusal = Some(Refusal { count, retry_ns, error: error.clone() });
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

    /// Demotions that found no room, one after the other.
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
        let room = SlowRoom::default();
        assert_eq!((room.wait(0), room.refusals(), room.reason()), (Duration::ZERO, 0, None));
        room.refuse(&Error::new(ErrorKind::OutOfSpace, "full"), 5);
        assert_eq!(room.wait(5), RETRY);
        assert_eq!(room.wait(5 + RETRY.as_nanos() as u64), Duration::ZERO);
        room.refuse(&Error::new(ErrorKind::OutOfSpace, "still full"), 10);
        assert_eq!((room.refusals(), room.reason().as_deref()), (2, Some("still full")));
        room.found();
        assert_eq!((room.wait(10), room.refusals(), room.reason()), (Duration::ZERO, 0, None));
    }
}
