//! When it is worth to look for what gives space of the slow tier back: tombstones, and records
//! that hide others.

use thermocline_foundation::Sequence;

/// Another look is worth it once there is so much more garbage than at the last one, as a share
/// of that.
const MORE_SHARE: u64 = 8;

/// The last look at all ranges, where it found none worth a merge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceLooks {
    /// Tombstones, and records that hide others or may: the fewest since then.
    pub garbage: u64,
    /// The oldest sequence that a reader could ask for.
    pub oldest_read: Sequence,
    /// A range was worth a merge but for what a snapshot needs.
    pub waits_for_snapshot: bool,
}

impl SpaceLooks {
    /// Another look may find more than the last one. Where there is less garbage by now, more than
    /// that counts.
    pub fn is_due(&mut self, garbage: u64, oldest_read: Sequence) -> bool {
        self.garbage = self.garbage.min(garbage);
        garbage > self.garbage + self.garbage / MORE_SHARE
            || self.waits_for_snapshot && oldest_read != self.oldest_read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_due_after_an_eighth_more_garbage_or_the_end_of_a_snapshot() {
        let look = |waits_for_snapshot| SpaceLooks {
            garbage: 800,
            oldest_read: Sequence(5),
            waits_for_snapshot,
        };
        let table = [
            // waits, garbage, oldest: due
            (false, 900, 5, false),
            (false, 901, 5, true),
            (false, 800, 9, false),
            (true, 800, 5, false),
            (true, 800, 9, true),
        ];
        for (waits, garbage, oldest, due) in table {
            let found = look(waits).is_due(garbage, Sequence(oldest));
            assert_eq!(found, due, "{waits} {garbage} {oldest}");
        }
        let mut looks = look(false);
        assert!(!looks.is_due(80, Sequence(5)), "most of it is gone");
        assert!(!looks.is_due(90, Sequence(5)));
        assert!(looks.is_due(91, Sequence(5)), "and as much as an eighth of the rest is new");
        assert!(SpaceLooks::default().is_due(1, Sequence(1)), "the first is always due");
        assert!(!SpaceLooks::default().is_due(0, Sequence(1)), "but for nothing");
    }
}
