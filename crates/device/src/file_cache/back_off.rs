//! How long the cache stays away from a device that fails.
//!
//! Two files that are given up within a minute, or one failed write, switch the cache off for a
//! second; each further time within a minute of coming back, for twice as long, up to a minute.
//!
//! Plain arithmetic; its owner locks.

const SECOND_NS: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 60 * SECOND_NS;

/// What happened before is forgotten after so long.
const MEMORY_NS: u64 = 60 * SECOND_NS;

/// See the module.
#[derive(Debug, Default)]
pub struct BackOff {
    /// When a file was given up last.
    given_up_ns: Option<u64>,
    /// The last pause, and when it ended or ends.
    pause_ns: u64,
    until_ns: u64,
}

impl BackOff {
    /// A file was given up. True where that switches the cache off.
    pub fn file_given_up(&mut self, now_ns: u64) -> bool {
        let before = self.given_up_ns.replace(now_ns);
        let is_second = before
            .is_some_and(|before| now_ns.saturating_sub(before.max(self.until_ns)) < MEMORY_NS);
        if is_second {
            self.switch_off(now_ns);
        }
        is_second
    }

    /// A write failed, or the cache is to pause for another reason.
    pub fn switch_off(&mut self, now_ns: u64) {
        let is_soon = self.pause_ns > 0 && now_ns < self.until_ns.saturating_add(MEMORY_NS);
        let doubled = if is_soon { self.pause_ns * 2 } else { SECOND_NS };
        self.pause_ns = doubled.min(PAUSE_NS_MAX);
        self.until_ns = now_ns.saturating_add(self.pause_ns);
    }

    /// Until when the cache is off; a time that has passed where it is on.
    pub fn until_ns(&self) -> u64 {
        self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_begin_anew_after_a_quiet_one() {
        let mut back_off = BackOff::default();
        let mut now = 5 * SECOND_NS;
        assert!(!back_off.file_given_up(now), "one may be bad luck");
        assert_eq!(back_off.until_ns(), 0);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(back_off.file_given_up(now));
            pauses.push((back_off.until_ns() - now) / SECOND_NS);
            now = back_off.until_ns();
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        now += 61 * SECOND_NS;
        assert!(!back_off.file_given_up(now), "the last one is long ago");
        back_off.switch_off(now);
        assert_eq!(back_off.until_ns() - now, SECOND_NS);
    }
}
