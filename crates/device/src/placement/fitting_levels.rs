//! How many upper levels are on the fastest tier: as many as it can take the writers of (Keigo,
//! section 4.2).
//!
//! The log and levels 0 and 1 are there, because writers of the database wait for them. A next
//! level comes along while the writers of all of these, summed, are no more than the tier's useful
//! workers, and the targets fit its room. Levels count that are in use: level 0, and those with a
//! target.
//!
//! 1. The number changes by one at a time, after [`EQUAL_ANSWERS`] measurements in a row that ask
//!    for the same direction: a level that moves is written again.
//! 2. A curve that is not known, and writers that are not, limit nothing: room alone decides.
//!
//! Pure: no clock, no I/O, no counters. [`ByParallelism`](super::ByParallelism) holds it.

/// Levels that stay on tier 0 whatever their writers do.
const LEVELS_MIN: u8 = 2;
/// So many answers in a row change the number of levels.
const EQUAL_ANSWERS: u8 = 3;
/// Of writers, the first place is the log's.
const LOG: usize = 0;

/// What is known of tier 0 at a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastTier {
    /// The fewest writers that are as good as any number; none where that is not known.
    pub useful_writers: Option<u16>,
    /// Mean writers, in thousandths: of the log, of levels 0, 1, 2 and on, wherever these are.
    pub milliwriters: [u32; 8],
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

    /// So many, and no fewer than have to be there.
    pub fn found(levels: u8) -> Self {
        Self { levels: levels.max(LEVELS_MIN), answers: 0 }
    }

    /// Levels on tier 0.
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// One measurement; `targets` are the bytes that each level is meant to have, level 0 first.
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

/// Levels in use whose writers tier 0 can take together, and whose targets it has room for.
fn levels_that_fit(tier: &FastTier, targets: &[u64]) -> u8 {
    let writers_max = tier.useful_writers.map_or(u64::MAX, |writers| u64::from(writers) * 1000);
    let mut writers = u64::from(tier.milliwriters[LOG]);
    let (mut bytes, mut levels) = (0_u64, 0_u8);
    let by_level = tier.milliwriters[LOG + 1..].iter().chain(std::iter::repeat(&0));
    for (level, (target, milliwriters)) in targets.iter().zip(by_level).enumerate() {
        writers += u64::from(*milliwriters);
        if level > 0 && *target == 0 {
            continue;
        }
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

    fn tier(useful_writers: u16, writers: &[u32], table_bytes: u64) -> FastTier {
        let mut milliwriters = [0; 8];
        milliwriters[..writers.len()].copy_from_slice(writers);
        FastTier { useful_writers: Some(useful_writers), milliwriters, table_bytes }
    }

    #[test]
    fn levels_come_along_while_their_writers_and_their_targets_fit() {
        // Of the log a half, of the levels a half, 1, 1, 2, 4, 1.
        let writers = [500, 500, 1000, 1000, 2000, 4000, 1000];
        for (useful, bytes, levels) in [
            (4, u64::MAX, 3),
            (5, u64::MAX, 4),
            (9, u64::MAX, 5),
            (10, u64::MAX, 6),
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
        let busy = FastTier { milliwriters: [90_000; 8], ..nothing };
        assert_eq!(levels_that_fit(&busy, &TARGETS), 4);
        assert_eq!(levels_that_fit(&busy, &[]), 2);
    }

    #[test]
    fn levels_out_of_use_do_not_count_and_their_writers_do() {
        let writers = [0, 1000, 0, 0, 0, 1000, 1000, 1000];
        let targets = [10, 0, 0, 0, 30, 100, 1000];
        for (useful, levels) in [(1, 2), (2, 2), (3, 3), (4, 4)] {
            let tier = tier(useful, &writers, u64::MAX);
            assert_eq!(levels_that_fit(&tier, &targets), levels, "{useful}");
        }
        // A level that is being left still has a writer.
        let writers = [0, 1000, 0, 0, 1000, 1000, 0, 0];
        assert_eq!(levels_that_fit(&tier(2, &writers, u64::MAX), &targets), 2);
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
