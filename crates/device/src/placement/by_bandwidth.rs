//! How many upper levels go to the fast tier, by how much of its bandwidth is used (SpanDB, section
//! 4.3).
//!
//! The fast tier is for logs first. What their writes leave of its bandwidth serves tables, and it
//! is worth more to the upper levels, which are rewritten and read most for each byte. A
//! [`Pointer`] says how many levels there are on the fast tier: 3 are levels 0, 1 and 2. It is
//! raised where little of the bandwidth is used, and lowered where much is.
//!
//! ```text
//!   use of the tier   0 %          low               high          100 %
//!                     |-- raised ---|-- raised, if ---|-- lowered ---|
//!                                      begun below low
//! ```
//!
//! 1. Only where a new table goes follows the pointer; tables that there are stay until they are
//!    rewritten. So a level changes tiers table by table, and part of one can lie on each.
//! 2. A full tier stops the pointer on its way up, and takes no more tables while it points there.
//! 3. The pointer moves by one level, after as many periods of the same answer as [`STEADY`] says:
//!    a burst moves nothing.
//! 4. A use over several periods counts as the same use in each of them.
//!
//! Pure: no clock, no I/O, no counters. `TopLevels` holds the pointer, a meter above measures.

/// Periods of the same answer before the pointer moves.
const STEADY: u32 = 3;

/// Levels that there can be on the fast tier: all.
const LEVELS_MAX: u8 = 7;

/// What the bandwidth of a tier is taken for at least, in bytes a second: before a tier has shown
/// what it can do, its best second says how little was asked of it. Cloud disks of the smallest
/// size do as much.
pub const PEAK_MIN: u64 = 128 << 20;

/// Settings of the policy. The paper leaves both thresholds to its users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthSettings {
    /// Use of the fast tier, in percent of its peak, below which a level more goes there.
    pub low_percent: u32,
    /// Use from which on a level less does.
    pub high_percent: u32,
}

impl Default for BandwidthSettings {
    fn default() -> Self {
        Self { low_percent: 40, high_percent: 65 }
    }
}

/// How much of the fast tier's bandwidth was used over some periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierUse {
    /// Bytes read and written a second.
    pub bytes_per_s: u64,
    /// What the tier can do.
    pub peak_bytes_per_s: u64,
    /// Periods that it was measured over.
    pub periods: u32,
}

impl TierUse {
    fn percent(&self) -> u64 {
        let percent = u128::from(self.bytes_per_s) * 100 / u128::from(self.peak_bytes_per_s.max(1));
        percent.try_into().unwrap_or(u64::MAX)
    }
}

/// The way that one period moves the pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Raise,
    Lower,
}

/// Levels whose new tables go to the fast tier. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    levels: u8,
    /// The use has been low, and was not high since.
    is_raised: bool,
    /// The answer of the last periods, and how many they were.
    steady: Option<(Answer, u32)>,
}

impl Default for Pointer {
    /// Level 0, which flushes wait for.
    fn default() -> Self {
        Self { levels: 1, is_raised: false, steady: None }
    }
}

impl Pointer {
    /// How many levels there are on the fast tier.
    pub fn levels(self) -> u8 {
        self.levels
    }

    /// The pointer after the tier was used so; `is_full` where it takes no more tables.
    #[must_use]
    pub fn after(mut self, used: TierUse, is_full: bool, settings: &BandwidthSettings) -> Self {
        // More of them move it to an end and leave it there.
        for _ in 0..used.periods.min(STEADY * u32::from(LEVELS_MAX)) {
            self.pass_period(used.percent(), is_full, settings);
        }
        self
    }

    fn pass_period(&mut self, percent: u64, is_full: bool, settings: &BandwidthSettings) {
        let answer = self.answer(percent, is_full, settings);
        let before = match self.steady {
            Some((last, periods)) if Some(last) == answer => periods,
            _ => 0,
        };
        self.steady = answer.map(|answer| (answer, before + 1));
        if before + 1 < STEADY {
            return;
        }
        match answer {
            Some(Answer::Raise) => self.levels = (self.levels + 1).min(LEVELS_MAX),
            Some(Answer::Lower) => self.levels = self.levels.saturating_sub(1),
            None => return,
        }
        self.steady = None;
    }

    fn answer(
        &mut self,
        percent: u64,
        is_full: bool,
        settings: &BandwidthSettings,
    ) -> Option<Answer> {
        if percent >= u64::from(settings.high_percent) {
            self.is_raised = false;
            return Some(Answer::Lower);
        }
        self.is_raised |= percent < u64::from(settings.low_percent);
        (self.is_raised && !is_full).then_some(Answer::Raise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tier of 1,000 bytes a second: the use is in thousandths.
    fn used(bytes_per_s: u64, periods: u32) -> TierUse {
        TierUse { bytes_per_s, peak_bytes_per_s: 1000, periods }
    }

    /// Follows a script: each line has the use in percent, for how many periods, whether the tier
    /// is full, and the levels on it afterwards.
    fn follow(script: &str) {
        let mut pointer = Pointer::default();
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [percent, "for", periods, tier, "->", levels] = words[..] else {
                panic!("a line of another form: {line}");
            };
            let percent: u64 = percent.trim_end_matches('%').parse().unwrap();
            let (periods, is_full) = (periods.parse().unwrap(), tier == "full");
            let settings = BandwidthSettings::default();
            pointer = pointer.after(used(percent * 10, periods), is_full, &settings);
            assert_eq!(pointer.levels().to_string(), levels, "after: {line}");
        }
    }

    #[test]
    fn a_busy_tier_gives_up_levels_one_by_one_down_to_the_log_alone() {
        follow(
            "50% for 9 room -> 1
             65% for 2 room -> 1
             64% for 1 room -> 1
             65% for 2 room -> 1
             99% for 1 room -> 0
             99% for 9 room -> 0",
        );
    }

    #[test]
    fn an_idle_tier_takes_levels_until_its_use_is_high() {
        follow(
            "39% for 3 room -> 2
             41% for 3 room -> 3
             64% for 3 room -> 4
             65% for 1 room -> 4
             64% for 9 room -> 4
             41% for 9 room -> 4
             39% for 3 room -> 5",
        );
    }

    #[test]
    fn a_full_tier_takes_no_more_levels_and_keeps_what_it_has() {
        follow(
            "10% for 6 room -> 3
             10% for 9 full -> 3
             70% for 3 full -> 2
             10% for 9 full -> 2
             10% for 3 room -> 3",
        );
    }

    #[test]
    fn a_burst_moves_nothing_and_a_use_over_periods_counts_in_each() {
        follow(
            "90% for 2 room -> 1
             10% for 2 room -> 1
             90% for 1 room -> 1
             10% for 99 room -> 7
             10% for 99 room -> 7
             90% for 6 room -> 5
             90% for 99 room -> 0",
        );
        let settings = BandwidthSettings::default();
        for percent in [0, 39, 40, 64, 65, 100, 250] {
            let mut one_by_one = Pointer::default();
            for periods in 1..20 {
                one_by_one = one_by_one.after(used(percent * 10, 1), false, &settings);
                let at_once =
                    Pointer::default().after(used(percent * 10, periods), false, &settings);
                assert_eq!(at_once, one_by_one, "{percent} % for {periods}");
            }
        }
    }

    #[test]
    fn a_tier_whose_peak_is_not_known_or_beyond_all_numbers_is_no_matter() {
        let settings = BandwidthSettings::default();
        let unknown = TierUse { bytes_per_s: 0, peak_bytes_per_s: 0, periods: 3 };
        assert_eq!(Pointer::default().after(unknown, false, &settings).levels(), 2);
        let huge = TierUse { bytes_per_s: u64::MAX, peak_bytes_per_s: 1, periods: 3 };
        assert_eq!(Pointer::default().after(huge, false, &settings).levels(), 0);
    }
}
