//! The rules that hold in a store: those of its settings' variant, as an experiment changes them.

use crate::environment::experiments::{DemotionPolicy, Experiments, Pinning, Promotion, Rule};
use crate::settings::hybrid::{HybridSettings, Variant};
use thermocline_popularity::{CANDIDATES, ReadTriggeredSettings};

/// Sorted runs over each other while the fast tier is small.
const SMALL_TIER_RUNS: usize = 6;
/// Demotions end so many percent of the room below where they begin.
const DRAINED_PERCENT: u32 = 3;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RuleSet {
    pub policy: DemotionPolicy,
    /// Ranges that a choice looks at.
    pub candidates: usize,
    /// Consecutive tables of a range.
    pub range_tables: usize,
    /// Sorted runs over each other in a range; and while the fast tier is small.
    pub runs: usize,
    pub small_tier_runs: usize,
    pub low_watermark_percent: u32,
    pub high_watermark_percent: u32,
    pub pinning: Pinning,
    pub promotion: Promotion,
    /// Reads ask for merges.
    pub read_triggered: bool,
    pub epoch_operations: u64,
    pub cool_down_operations: u64,
    /// With the rules that are left out.
    pub experiments: Experiments,
}

impl RuleSet {
    /// What `settings` and an experiment come to.
    pub fn of(settings: &HybridSettings, experiments: &Experiments) -> Self {
        let is_paper = settings.variant == Variant::Paper;
        let (promotion, read_triggered, runs, small_tier_runs, experiments) = if is_paper {
            let without = Rule::ALL.into_iter().fold(*experiments, Experiments::without);
            (Promotion::Demotion, true, 1, 1, without)
        } else {
            let runs = settings.runs as usize;
            (Promotion::Read, false, runs, runs.max(SMALL_TIER_RUNS), *experiments)
        };
        let epochs = ReadTriggeredSettings::default();
        let high_watermark_percent = settings.high_watermark_percent;
        let low_watermark_percent = high_watermark_percent.saturating_sub(DRAINED_PERCENT).max(1);
        Self {
            policy: experiments.policy.unwrap_or(DemotionPolicy::Approximate),
            candidates: experiments.candidates.unwrap_or(CANDIDATES),
            range_tables: experiments.range_tables.unwrap_or(1),
            runs: experiments.runs.unwrap_or(runs),
            small_tier_runs: experiments.runs.unwrap_or(small_tier_runs),
            low_watermark_percent: experiments
                .low_watermark_percent
                .unwrap_or(low_watermark_percent),
            high_watermark_percent,
            pinning: experiments.pinning.unwrap_or(Pinning::Fixed),
            promotion: experiments.promotion.unwrap_or(promotion),
            read_triggered: experiments.read_triggered.unwrap_or(read_triggered),
            epoch_operations: experiments.epoch_operations.unwrap_or(epochs.epoch_operations),
            cool_down_operations: experiments
                .cool_down_operations
                .unwrap_or(epochs.cool_down_operations),
            experiments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PrismDB, sections 4.3, 5.1, 5.3 and 7.
    #[test]
    fn the_paper_s_variant_has_its_rules_and_parameters_and_none_of_ours() {
        let settings = HybridSettings { variant: Variant::Paper, ..HybridSettings::default() };
        let rules = RuleSet::of(&settings, &Experiments::default());
        assert_eq!(rules.policy, DemotionPolicy::Approximate);
        assert_eq!((rules.candidates, rules.range_tables), (8, 1));
        assert_eq!((rules.runs, rules.small_tier_runs), (1, 1));
        assert_eq!((rules.high_watermark_percent, rules.low_watermark_percent), (98, 95));
        assert_eq!((rules.pinning, settings.pinning_percent), (Pinning::Fixed, 70));
        assert_eq!((rules.promotion, rules.read_triggered), (Promotion::Demotion, true));
        let epochs = (rules.epoch_operations, rules.cool_down_operations);
        assert_eq!(epochs, (1_000_000, 10_000_000));
        assert_eq!(rules.experiments.left_out().count(), Rule::ALL.len());
    }

    #[test]
    fn ours_keep_more_runs_and_move_up_what_is_read() {
        let rules = RuleSet::of(&HybridSettings::default(), &Experiments::default());
        assert_eq!((rules.runs, rules.small_tier_runs), (3, 6));
        assert_eq!((rules.promotion, rules.read_triggered), (Promotion::Read, false));
        assert_eq!(rules.experiments.left_out().count(), 0);
    }

    #[test]
    fn demotions_end_three_percent_below_where_they_begin_and_above_nothing() {
        for (high_watermark_percent, low) in [(99, 96), (98, 95), (5, 2), (4, 1), (3, 1), (2, 1)] {
            let settings = HybridSettings { high_watermark_percent, ..HybridSettings::default() };
            assert!(settings.check().is_ok(), "{high_watermark_percent}");
            let rules = RuleSet::of(&settings, &Experiments::default());
            assert_eq!(rules.low_watermark_percent, low, "{high_watermark_percent}");
        }
    }

    #[test]
    fn an_experiment_goes_before_either() {
        for variant in [Variant::Tuned, Variant::Paper] {
            let settings = HybridSettings { variant, ..HybridSettings::default() };
            let experiments = Experiments {
                policy: Some(DemotionPolicy::Random),
                candidates: Some(64),
                range_tables: Some(3),
                runs: Some(2),
                low_watermark_percent: Some(1),
                pinning: Some(Pinning::Auto),
                promotion: Some(Promotion::None),
                read_triggered: Some(false),
                epoch_operations: Some(100),
                cool_down_operations: Some(300),
                ..Experiments::default()
            };
            let rules = RuleSet::of(&settings, &experiments);
            assert_eq!(rules.policy, DemotionPolicy::Random);
            assert_eq!((rules.candidates, rules.range_tables), (64, 3));
            assert_eq!((rules.runs, rules.small_tier_runs), (2, 2));
            assert_eq!(rules.low_watermark_percent, 1);
            assert_eq!((rules.pinning, rules.promotion), (Pinning::Auto, Promotion::None));
            assert!(!rules.read_triggered);
            assert_eq!((rules.epoch_operations, rules.cool_down_operations), (100, 300));
        }
    }
}
