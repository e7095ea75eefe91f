//! Settings of the preset `hybrid`. The defaults are PrismDB's own parameters where the paper names
//! them; each field says where. What only experiments vary is no setting
//! (`environment/experiments.rs`).

use crate::error::{Error, Result};
use crate::limits::LEVELS;
use crate::settings::Compression;
use serde::{Deserialize, Serialize};

/// Whose rules say what lies on which tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// Ours: what is read twice moves up by itself.
    #[default]
    Tuned,
    /// PrismDB's as published: records move up where merges meet them, and reads ask for merges
    /// (sections 5.1 and 5.3); one sorted run. It is there to be compared with.
    Paper,
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
    /// Whose rules hold; default `tuned`. To be changed for comparisons with the paper.
    pub variant: Variant,
    /// Sorted runs that may lie over each other in a range of the slow tier before they become one,
    /// 1 to 6, default 3; and 6 while the fast tier is below 10 % of the data, where each merge
    /// gathers less for what it rewrites (section 4.1 has several levels there). More of them mean
    /// fewer bytes written, and more reads for a scan. The paper has 1, as its variant.
    pub runs: u32,
    /// Share of the fast tier's room at which demotions begin, in percent, 2 to 99; default 98.
    /// They end three percent lower (section 4.2). To be lowered where writers come in bursts.
    pub high_watermark_percent: u32,
    /// Keys that are remembered, in percent of all; 1 to 100, or 0, the default: a fifth of all, as
    /// in section 7, and a quarter more than fast tier and memory have records, if that is more. To
    /// be lowered where keys are many and memory is short.
    pub tracker_percent: u32,
    /// Share of the remembered keys that stay on the fast tier, in percent; default 70
    /// (section 7). Demotions take it of a fifth of all keys where `tracker_percent = 0` remembers
    /// more than that. More suits readers, less writers (section 7.4).
    pub pinning_percent: u32,
    /// How values are kept on the fast tier and in memory, each alone, so that both hold more of
    /// them; default `lz4`. Tables have `compression` for their blocks. To be switched off where
    /// values do not compress.
    pub record_compression: Compression,
    /// Which tables have a copy of their index and filters on the fast tier (section 4.1); default
    /// `auto`. With one a look-up reads one block of the slow tier at most, whatever memory holds.
    /// The copies take 0.4 % of the slow tier's data (2 % with records of 100 bytes) of the fast
    /// tier, before slots, and a quarter of what is for slots at most.
    pub index_copies: IndexCopies,
    /// Bytes that may be written to the second tier a day, in capacities of it; 0 (the default) for
    /// no bound. To be set where the slow tier's endurance is known.
    pub write_budget_dwpd: f64,
}

impl Default for HybridSettings {
    fn default() -> Self {
        Self {
            variant: Variant::default(),
            runs: 3,
            high_watermark_percent: 98,
            tracker_percent: 0,
            pinning_percent: 70,
            record_compression: Compression::Lz4,
            index_copies: IndexCopies::default(),
            write_budget_dwpd: 0.0,
        }
    }
}

impl HybridSettings {
    /// Which tables have copies of their indexes: in the paper's variant all of them, unless it is
    /// set.
    pub(crate) fn index_copies_of_variant(&self) -> IndexCopies {
        match (self.variant, self.index_copies) {
            (Variant::Paper, IndexCopies::Auto) => IndexCopies::Always,
            (_, copies) => copies,
        }
    }

    /// Refuses values outside their ranges.
    pub(crate) fn check(&self) -> Result<()> {
        let runs_max = LEVELS as u32 - 1;
        let ranges = [
            ("runs", self.runs, 1, runs_max),
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
        let hybrid = HybridSettings { high_watermark_percent: 1, ..HybridSettings::default() };
        assert!(hybrid.check().unwrap_err().to_string().contains("it must be 2 to 99"));
        let hybrid = HybridSettings { write_budget_dwpd: f64::NAN, ..HybridSettings::default() };
        assert!(hybrid.check().is_err());
        assert!(HybridSettings::default().check().is_ok());
    }
}
