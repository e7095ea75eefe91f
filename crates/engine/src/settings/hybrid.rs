//! Settings of the preset `hybrid`. The defaults are PrismDB's own parameters where the paper names
//! them; each field says where.

use crate::error::{Error, Result};
use crate::limits::LEVELS;
use crate::settings::Compression;
use serde::{Deserialize, Serialize};

/// Of fewer operations chance says more than what was done.
const EPOCH_OPERATIONS_MIN: u64 = 100;
const OPERATIONS_MAX: u64 = 1_000_000_000_000;

/// How the next range to demote is chosen (PrismDB, sections 5.1 and 5.2; its figure 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemotionPolicy {
    /// Best score of cost and benefit, counted record by record.
    Precise,
    /// Best score, estimated from buckets of keys.
    #[default]
    Approximate,
    /// Any range: the baseline.
    Random,
}

/// What is remembered of how often keys are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PopularityKind {
    /// Two bits a key and a clock hand (PrismDB, section 4.3).
    #[default]
    Clock,
    /// Frequencies that age.
    Frequency,
}

/// How the pinning threshold is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// `pinning_percent` as it is (PrismDB, section 4.3).
    #[default]
    Fixed,
    /// Hill climbing from there on the slow tier's I/O for an operation, of look-ups and of merges
    /// (section 7.4 leaves it as future work).
    Auto,
}

/// When a record that was read from the slow tier moves up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promotion {
    /// Never: the baseline.
    None,
    /// When a demotion rewrites its table, as in PrismDB (section 5.1).
    Demotion,
    /// Soon after the read, and when a demotion meets it.
    #[default]
    Read,
}

/// Which tables of slower tiers have what finds their records on the fast tier, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexCopies {
    /// All of them while memory does not hold the index and filter partitions of all tables.
    #[default]
    Auto,
    /// All of them, as in PrismDB (section 4.1).
    Always,
    /// None: the baseline.
    Never,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HybridSettings {
    /// How the next range to demote is chosen; default `approximate`.
    pub policy: DemotionPolicy,
    /// Ranges that a choice looks at, 1 to 64; default 8 (section 5.3: power of k choices).
    pub candidates: u32,
    /// Consecutive tables of a range, 1 to 64; default 1 (section 5.1: i).
    pub range_tables: u32,
    /// Sorted runs that may lie over each other in a range of the slow tier before they become one,
    /// 1 (the paper) to 6; default 3. More of them mean fewer bytes written, and more reads for a
    /// scan.
    pub runs: u32,
    /// The same while the fast tier is below 10 % of the data, where each merge gathers less for
    /// what it rewrites (section 4.1 has several levels there); `runs` to 6, default 6.
    pub small_tier_runs: u32,
    /// Share of the fast tier's room at which demotions begin, in percent; default 98.
    pub high_watermark_percent: u32,
    /// Share at which they end, in percent; default 95.
    pub low_watermark_percent: u32,
    /// What is remembered of how often keys are asked for; default `clock`.
    pub popularity: PopularityKind,
    /// Keys that are remembered, in percent of all; 1 to 100, or 0, the default: a fifth of all, as
    /// in section 7, and a quarter more than fast tier and memory have records, if that is more.
    pub tracker_percent: u32,
    /// Share of the remembered keys that stay on the fast tier, in percent; default 70
    /// (section 7). Demotions take it of a fifth of all keys where `tracker_percent = 0` remembers
    /// more than that.
    pub pinning_percent: u32,
    /// Whether that share is fixed or tunes itself; default `fixed`.
    pub pinning: Pinning,
    /// When records move up; default `read`.
    pub promotion: Promotion,
    /// Merging ranges that are mostly read from the slow tier although nothing is written
    /// (section 5.3); default off: with
    /// `promotion = read` what is asked for moves up without them.
    pub read_triggered: bool,
    /// Operations of an epoch, after which it is judged whether such merges go on, and whether a
    /// step of `pinning = auto` was better; 100 to 10^12, default 1,000,000 (section 5.3).
    pub epoch_operations: u64,
    /// Operations for which such merges rest once an epoch of them brought too little; 1 to 10^12,
    /// default 10,000,000 (section 5.3).
    pub cool_down_operations: u64,
    /// How values are kept on the fast tier and in memory, each alone, so that both hold more of
    /// them; default `lz4`. Tables have `compression` for their blocks.
    pub record_compression: Compression,
    /// Which tables have a copy of their index and filters on the fast tier (section 4.1); default
    /// `auto`. With one a look-up reads one block of the slow tier at most, whatever memory holds.
    /// The copies take 0.4 % of the slow tier's data (2 % with records of 100 bytes) of the fast
    /// tier, before slots, and a quarter of what is for slots at most.
    pub index_copies: IndexCopies,
    /// Bytes that may be written to the second tier a day, in capacities of it; 0 (the default) for
    /// no bound.
    pub write_budget_dwpd: f64,
}

impl Default for HybridSettings {
    fn default() -> Self {
        Self {
            policy: DemotionPolicy::default(),
            candidates: 8,
            range_tables: 1,
            runs: 3,
            small_tier_runs: 6,
            high_watermark_percent: 98,
            low_watermark_percent: 95,
            popularity: PopularityKind::default(),
            tracker_percent: 0,
            pinning_percent: 70,
            pinning: Pinning::default(),
            promotion: Promotion::default(),
            read_triggered: false,
            epoch_operations: 1_000_000,
            cool_down_operations: 10_000_000,
            record_compression: Compression::Lz4,
            index_copies: IndexCopies::default(),
            write_budget_dwpd: 0.0,
        }
    }
}

impl HybridSettings {
    /// Refuses values outside their ranges.
    pub(crate) fn check(&self) -> Result<()> {
        let runs_max = LEVELS as u32 - 1;
        let ranges = [
            ("candidates", self.candidates, 1, 64),
            ("range_tables", self.range_tables, 1, 64),
            ("runs", self.runs, 1, runs_max),
            ("small_tier_runs", self.small_tier_runs, self.runs, runs_max),
            ("low_watermark_percent", self.low_watermark_percent, 1, self.high_watermark_percent),
            ("high_watermark_percent", self.high_watermark_percent, 2, 99),
            ("tracker_percent", self.tracker_percent, 0, 100),
            ("pinning_percent", self.pinning_percent, 0, 100),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::invalid(format!(
                    "hybrid.{name} = {value} is out of range; it must be {low} to {high}"
                )));
            }
        }
        let epochs = [
            ("epoch_operations", self.epoch_operations, EPOCH_OPERATIONS_MIN),
            ("cool_down_operations", self.cool_down_operations, 1),
        ];
        for (name, value, low) in epochs {
            if !(low..=OPERATIONS_MAX).contains(&value) {
                return Err(Error::invalid(format!(
                    "hybrid.{name} = {value} is out of range; it must be {low} to {OPERATIONS_MAX}"
                )));
            }
        }
        let dwpd = self.write_budget_dwpd;
        if !(0.0..=1000.0).contains(&dwpd) {
            return Err(Error::invalid(format!(
                "hybrid.write_budget_dwpd = {dwpd} is out of range; it must be 0 to 1000 a day"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn a_value_out_of_range_is_named_with_its_range() {
        let hybrid = HybridSettings { runs: 7, ..HybridSettings::default() };
        let error = Settings { hybrid, ..Settings::default() }.check().unwrap_err();
        assert!(error.to_string().contains("hybrid.runs = 7 is out of range; it must be 1 to 6"));
        let hybrid = HybridSettings { low_watermark_percent: 99, ..HybridSettings::default() };
        assert!(hybrid.check().unwrap_err().to_string().contains("it must be 1 to 98"));
        let hybrid = HybridSettings { epoch_operations: 99, ..HybridSettings::default() };
        let error = hybrid.check().unwrap_err().to_string();
        assert!(error.contains("hybrid.epoch_operations = 99 is out of range"), "{error}");
        let hybrid = HybridSettings { cool_down_operations: 0, ..HybridSettings::default() };
        assert!(hybrid.check().unwrap_err().to_string().contains("it must be 1 to 10000000000"));
        let hybrid = HybridSettings { write_budget_dwpd: f64::NAN, ..HybridSettings::default() };
        assert!(hybrid.check().is_err());
        assert!(HybridSettings::default().check().is_ok());
    }
}
