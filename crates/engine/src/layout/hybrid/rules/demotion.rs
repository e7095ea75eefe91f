//! Demotions: how few bytes are too few, and what becomes of hot records that a merge meets.

use crate::environment::experiments::{Experiments, Promotion, Rule};
use crate::layout::hybrid::rules::rule_set::RuleSet;

/// Records are few where they come to less than this share of a table: a demotion of so few costs a
/// table's file, a sync and an edit for next to no room.
const FEW_OF_TABLE: u64 = 64;
/// And no more than this share of what a range has of the fast tier in the mean, where that is
/// small: a tenth of it may come and go (`rules/pinning.rs`).
const FEW_OF_RANGE: u64 = 16;

/// What becomes of a key in a demotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// All its versions leave.
    Leaves,
    /// They leave, and memory keeps the newest.
    MemoryOnly,
    /// The newest stays where it is.
    Stays,
}

impl Judgement {
    /// What becomes of a hot record, which may be one that must leave for want of cold ones.
    pub fn of_hot(
        experiments: Experiments,
        must_leave: bool,
        is_in_memory: impl FnOnce() -> bool,
    ) -> Self {
        if experiments.has(Rule::MemoryOnly) && is_in_memory() {
            Self::MemoryOnly
        } else if must_leave {
            Self::Leaves
        } else {
            Self::Stays
        }
    }
}

/// Bytes of records that are too few for a demotion, where there are so many ranges; 1 at least.
pub(crate) fn few_bytes(
    experiments: Experiments,
    table_bytes: u64,
    limit_bytes: u64,
    ranges: usize,
) -> u64 {
    if !experiments.has(Rule::FewBytes) {
        return 1;
    }
    let of_range = limit_bytes / ranges.max(1) as u64;
    (table_bytes / FEW_OF_TABLE).min(of_range / FEW_OF_RANGE)
}

/// A merge gathers the hot records of tables that it meets, so that they move up (PrismDB, section
/// 5.1).
pub(crate) fn gathers_hot(rules: &RuleSet, must_leave: bool) -> bool {
    let is_wanted = match rules.promotion {
        Promotion::None => false,
        Promotion::Demotion => true,
        Promotion::Read => rules.experiments.has(Rule::MetInMerge),
    };
    is_wanted && !must_leave
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::hybrid::HybridSettings;

    const ALL: Experiments = Experiments::NONE;

    #[test]
    fn few_is_a_share_of_a_table_or_of_a_small_range() {
        let table = [
            // bytes of a table, of slots, ranges: few with the rule, and without
            (6400, 1_000_000, 1, 100, 1),
            (6400, 16_000, 100, 10, 1),
            (6400, 16_000, 0, 100, 1),
        ];
        for (table_bytes, limit_bytes, ranges, with, without) in table {
            let few = |experiments| few_bytes(experiments, table_bytes, limit_bytes, ranges);
            assert_eq!(few(ALL), with, "{limit_bytes} {ranges}");
            assert_eq!(few(ALL.without(Rule::FewBytes)), without, "{limit_bytes} {ranges}");
        }
    }

    #[test]
    fn memory_keeps_a_hot_record_that_it_has() {
        use Judgement::{Leaves, MemoryOnly, Stays};
        let table = [
            // must leave, is in memory: with the rule, and without
            (false, false, Stays, Stays),
            (false, true, MemoryOnly, Stays),
            (true, false, Leaves, Leaves),
            (true, true, MemoryOnly, Leaves),
        ];
        for (must_leave, is_in_memory, with, without) in table {
            let of = |experiments| Judgement::of_hot(experiments, must_leave, || is_in_memory);
            assert_eq!(of(ALL), with, "{must_leave} {is_in_memory}");
            assert_eq!(of(ALL.without(Rule::MemoryOnly)), without, "{must_leave} {is_in_memory}");
        }
    }

    #[test]
    fn hot_records_are_gathered_unless_all_must_leave_or_nothing_may_move_up() {
        let of = |promotion, experiments| {
            let promotion = Some(promotion);
            RuleSet::of(&HybridSettings::default(), &Experiments { promotion, ..experiments })
        };
        let without = ALL.without(Rule::MetInMerge);
        for (rules, with) in [
            (of(Promotion::Read, ALL), true),
            (of(Promotion::Read, without), false),
            (of(Promotion::Demotion, without), true),
            (of(Promotion::None, ALL), false),
        ] {
            assert_eq!(gathers_hot(&rules, false), with, "{rules:?}");
            assert!(!gathers_hot(&rules, true));
        }
    }
}
