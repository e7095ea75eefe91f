//! Which files leave a tier that is nearly full, and in which order (Keigo, section 4.2).
//!
//! ```text
//!   free of a tier   ...  5 %            2 %            0
//!                    stay  |  coldest go  |  .. in any case
//! ```
//! A file's *coldness* is how long it was not read, and its level: deeper levels go first, also
//! while old keys are read in a burst.
//!
//! 1. A tier gives away as much as brings it back to the upper threshold, and no more.
//! 2. What leaves goes to the next slower tier that keeps its own lower threshold. The slowest tier
//!    gives nothing away.
//! 3. Time is counted in epochs, one for each table that is made: a store at rest grows no colder.
//!
//! Pure: no clock, no I/O, no counters.

use crate::context::FileKind;
use crate::placement::TierState;
use crate::tier::TierIndex;
use std::cmp::Reverse;

/// So many epochs without a read weigh as much as a level.
const EPOCHS_OF_LEVEL: u64 = 2;

/// When a tier gives files away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Free share of a tier, in percent, below which files leave.
    pub upper_percent: u8,
    /// Free share below which they leave whatever else writes there.
    pub lower_percent: u8,
}

impl Default for Thresholds {
    /// The paper's.
    fn default() -> Self {
        Self { upper_percent: 5, lower_percent: 2 }
    }
}

/// A file that may leave its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident<N> {
    /// What its owner calls it.
    pub name: N,
    /// What it holds.
    pub kind: FileKind,
    /// Where it lies.
    pub tier: TierIndex,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Epochs since it was read last, or made.
    pub idle_epochs: u64,
}

impl<N> Resident<N> {
    /// The higher, the sooner it leaves.
    pub fn coldness(&self) -> u64 {
        let level = match self.kind {
            FileKind::Table { level } => u64::from(level),
            _ => 0,
        };
        self.idle_epochs.saturating_add(EPOCHS_OF_LEVEL * level)
    }
}

/// A file on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving<N> {
    /// What its owner calls it.
    pub name: N,
    /// Where it goes.
    pub to: TierIndex,
    /// It goes in any case.
    pub is_forced: bool,
}

/// Some tier gives files away, if it has any that may leave and a slower tier takes them.
pub fn is_due(tiers: &[TierState], thresholds: Thresholds) -> bool {
    let faster = &tiers[..tiers.len().saturating_sub(1)];
    faster.iter().any(|tier| !is_free(tier, 0, thresholds.upper_percent))
}

/// The files that leave their tiers, in the order to move them: those of the fastest tier first, of
/// each tier the coldest.
pub fn leaving<N: Clone + Ord>(
    residents: &[Resident<N>],
    tiers: &[TierState],
    thresholds: Thresholds,
) -> Vec<Leaving<N>> {
    let mut tiers = tiers.to_vec();
    let mut order: Vec<_> = residents.iter().collect();
    order.sort_by(|one, other| {
        let key = |file: &Resident<N>| (file.tier, Reverse(file.coldness()));
        key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
    });
    let mut leaving = Vec::new();
    for file in order {
        let at = file.tier.position();
        if at + 1 >= tiers.len() || is_free(&tiers[at], 0, thresholds.upper_percent) {
            continue;
        }
        let takes = |to: &usize| is_free(&tiers[*to], file.bytes, thresholds.lower_percent);
        let Some(to) = (at + 1..tiers.len()).find(takes) else { continue };
        let is_forced = !is_free(&tiers[at], 0, thresholds.lower_percent);
        tiers[at].remove(file.kind, file.bytes);
        tiers[to].add(file.kind, file.bytes);
        let (name, to) = (file.name.clone(), TierIndex(to as u8));
        leaving.push(Leaving { name, to, is_forced });
    }
    leaving
}

/// With `more_bytes` on it the tier has still this share free.
pub(crate) fn is_free(tier: &TierState, more_bytes: u64, percent: u8) -> bool {
    let used = u128::from(tier.used_bytes.saturating_add(more_bytes));
    used * 100 <= u128::from(tier.capacity_bytes) * u128::from(100 - percent.min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiers of 1,000 bytes of which some are used beside the files.
    fn tiers(files: &[Resident<u32>], others: &[u64]) -> Vec<TierState> {
        let tier = |(index, others): (usize, &u64)| {
            let mut tier = TierState { capacity_bytes: 1000, ..TierState::default() };
            tier.add(FileKind::Log, *others);
            let here = files.iter().filter(|file| file.tier.position() == index);
            here.for_each(|file| tier.add(file.kind, file.bytes));
            tier
        };
        others.iter().enumerate().map(tier).collect()
    }

    /// A table of 20 bytes.
    fn file(name: u32, level: u8, tier: u8, idle_epochs: u64) -> Resident<u32> {
        let kind = FileKind::Table { level };
        Resident { name, kind, tier: TierIndex(tier), bytes: 20, idle_epochs }
    }

    fn found(files: &[Resident<u32>], others: &[u64]) -> Vec<(u32, u8, bool)> {
        let (tiers, thresholds) = (tiers(files, others), Thresholds::default());
        let leaving = leaving(files, &tiers, thresholds);
        assert!(leaving.is_empty() || is_due(&tiers, thresholds), "{others:?}");
        leaving.into_iter().map(|file| (file.name, file.to.0, file.is_forced)).collect()
    }

    #[test]
    fn the_coldest_leave_below_the_upper_threshold_and_by_force_below_the_lower_one() {
        // Coldness 12, 13, 10, 10.
        let files = [file(1, 1, 0, 10), file(2, 6, 0, 1), file(3, 0, 0, 10), file(4, 5, 0, 0)];
        for (others, expected) in [
            // 950 of 1,000 may be used.
            (870, vec![]),
            (871, vec![(2, 1, false)]),
            (891, vec![(2, 1, false), (1, 1, false)]),
            (900, vec![(2, 1, false), (1, 1, false)]),
            (901, vec![(2, 1, true), (1, 1, false)]),
            (930, vec![(2, 1, true), (1, 1, true), (3, 1, false)]),
            (999, vec![(2, 1, true), (1, 1, true), (3, 1, true), (4, 1, true)]),
        ] {
            assert_eq!(found(&files, &[others, 0]), expected, "{others}");
        }
    }

    #[test]
    fn what_leaves_goes_to_the_next_tier_that_keeps_its_own_room() {
        let files = [file(1, 1, 0, 0), file(2, 1, 0, 0), file(3, 1, 2, 90)];
        assert_eq!(found(&files, &[935, 940, 0]), [(1, 1, false), (2, 1, false)]);
        assert_eq!(found(&files, &[935, 950, 0]), [(1, 1, false), (2, 2, false)]);
        assert_eq!(found(&files, &[935, 970, 0]), [(1, 2, false), (2, 2, false)]);
        assert_eq!(found(&files, &[935, 970, 950]), [], "no tier below takes any");
        assert_eq!(found(&files, &[0, 0, 990]), [], "the slowest has nowhere to give");
        assert_eq!(found(&files, &[990]), []);
    }

    #[test]
    fn files_are_looked_at_only_where_a_tier_is_below_its_upper_threshold() {
        let is_due = |used: &[u64]| is_due(&tiers(&[], used), Thresholds::default());
        assert!(!is_due(&[950, 950, 999]), "the slowest has nowhere to give");
        assert!(is_due(&[951, 0, 0]) && is_due(&[0, 951, 0]));
        assert!(!is_due(&[999]) && !is_due(&[]));
    }

    #[test]
    fn each_tier_gives_away_on_its_own() {
        let files = [file(1, 6, 1, 9), file(2, 5, 1, 0), file(3, 2, 0, 0)];
        assert_eq!(found(&files, &[940, 920, 0]), [(3, 1, false), (1, 2, false), (2, 2, false)]);
        assert_eq!(found(&files, &[0, 920, 0]), [(1, 2, false)]);
    }
}
