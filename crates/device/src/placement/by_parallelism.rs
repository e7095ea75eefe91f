//! Levels on the fastest tier while it can take their writers (Keigo, section 4.2).
//!
//! The log and levels 0 and 1 are on tier 0, because writers of the database wait for them. A next
//! level comes along while the writers of all of these, summed, are no more than the tier's useful
//! workers, and the targets fit its room. Further levels lie on the other tiers by room, as
//! [`ByLevel`](super::ByLevel) has it.
//!
//! 1. The number of levels on tier 0 changes by one at a time, after [`EQUAL_ANSWERS`] measurements
//!    in a row that ask for the same direction: a level that moves is written again.
//! 2. A curve that is not known, and writers that are not, limit nothing: room alone decides.
//!
//! Threads: `measured` from one, the rest from any.

/// Levels that stay on tier 0 whatever their writers do.
const LEVELS_MIN: u8 = 2;
/// So many answers in a row change the number of levels.
const EQUAL_ANSWERS: u8 = 3;
/// The first place of a tier's writers is the log's.
const LOG: usize = 0;

/// What is known of tier 0 at a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastTier {
    /// The fewest writers that are as good as any number; none where that is not known.
    pub useful_writers: Option<u16>,
    /// Mean writers, in thousandths: of the log, of levels 0, 1, 2 and on. The last counts for all
    /// deeper ones.
    pub milliwriters: Vec<u32>,
    /// Bytes that tables may take.
    pub table_bytes: u64,
}

/// How many levels are on tier 0, from measurement to measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    levels: u8,
    /// Answers in a row that ask for more (positive) or fewer.
    answers: i8,
}

impl Levels {
    /// The levels that have to be there.
    pub fn new() -> Self {
        Self { levels: LEVELS_MIN, answers: 0 }
    }

    /// Levels on tier 0.
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// One measurement, every ten seconds; `targets` are bytes of each level, 0 first.
    pub fn measured(&mut self, tier: &FastTier, targets: &[u64]) {
        let wanted = levels_that_fit(tier, targets);
        let answer = (i16::from(wanted) - i16::from(self.levels)).signum() as i8;
        self.answers = match answer {
            0 => 0,
            answer if answer == self.answers.signum() => self.answers + answer,
            answer => answer,
        };
        if self.answers.unsigned_abs() >= EQUAL_ANSWERS {
            self.levels = self.levels.saturating_add_signed(answer);
            self.answers = 0;
        }
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::new()
    }
}

/// Levels whose writers tier 0 can take together, and whose targets it has room for.
fn levels_that_fit(tier: &FastTier, targets: &[u64]) -> u8 {
    let writers_of = |level: usize| {
        let last = tier.milliwriters.len().saturating_sub(1);
        let at = (level + 1).min(last);
        if at > LOG { tier.milliwriters.get(at).copied().unwrap_or(0) } else { 0 }
    };
    let writers_max = tier.useful_writers.map_or(u64::MAX, |writers| u64::from(writers) * 1000);
    let mut writers = u64::from(tier.milliwriters.get(LOG).copied().unwrap_or(0));
    let mut bytes = 0_u64;
    let mut levels = 0_u8;
    for (level, target) in targets.iter().enumerate() {
        writers += u64::from(writers_of(level));
        bytes = bytes.saturating_add(*target);
        if levels >= LEVELS_MIN && (writers > writers_max || bytes > tier.table_bytes) {
            break;
        }
        levels += 1;
    }
    levels.max(LEVELS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: [u64; 6] = [10, 10, 100, 1_000, 10_000, 100_000];

    fn tier(useful_writers: u16, milliwriters: &[u32], table_bytes: u64) -> FastTier {
        let (useful_writers, milliwriters) = (Some(useful_writers), milliwriters.to_vec());
        FastTier { useful_writers, milliwriters, table_bytes }
    }

    #[test]
    fn levels_come_along_while_their_writers_and_their_targets_fit() {
        // Log 0.5, levels 0.5, 1, 1, 2, 4 writers; the last counts for all deeper ones.
        let writers = [500, 500, 1000, 1000, 2000, 4000];
        for (useful, bytes, levels) in [
            (4, u64::MAX, 3),
            (5, u64::MAX, 4),
            (9, u64::MAX, 5),
            (16, u64::MAX, 6),
            (64, u64::MAX, 6),
            (64, 120, 3),
            (64, 119, 2),
            // The log and levels 0 and 1 are there whatever they cost.
            (1, u64::MAX, 2),
            (64, 0, 2),
        ] {
            assert_eq!(levels_that_fit(&tier(useful, &writers, bytes), &TARGETS), levels);
        }
    }

    #[test]
    fn what_is_not_known_limits_nothing() {
        let nothing = FastTier { table_bytes: 1_120, ..FastTier::default() };
        assert_eq!(levels_that_fit(&nothing, &TARGETS), 4);
        let busy = FastTier { milliwriters: vec![90_000; 8], ..nothing };
        assert_eq!(levels_that_fit(&busy, &TARGETS), 4);
        assert_eq!(levels_that_fit(&busy, &[]), 2);
    }

    #[test]
    fn one_level_at_a_time_follows_three_equal_answers() {
        let (idle, busy) = (tier(64, &[], 1_120), tier(1, &[1000; 8], 1_120));
        let mut levels = Levels::new();
        let mut measured = |tier: &FastTier| {
            levels.measured(tier, &TARGETS);
            levels.levels()
        };
        let script = [&idle, &idle, &busy, &idle, &idle, &idle, &idle, &idle, &idle, &idle, &busy];
        let expected = [2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4];
        assert_eq!(script.map(&mut measured), expected);
        assert_eq!([&busy, &idle, &busy, &busy, &busy].map(&mut measured), [4, 4, 4, 4, 3]);
    }
}
