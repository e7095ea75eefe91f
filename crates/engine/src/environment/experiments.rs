//! What experiments vary. In the preset `hybrid`: rules that they leave out, to see what each is
//! worth (decision 77), and parameters of PrismDB's evaluation. In all presets: the schedule of
//! asynchronous requests, which I/O goes first, and zeros in logs. In `indexed`: the order of
//! merges, what chooses their tables (decision 102), when tables are entered and how many fences
//! writes have (decision 95). With a cache of blocks: a trace of what it is asked for, and how well
//! it tells blocks apart. No settings file reaches them.
//!
//! Without a rule its place does the simplest thing that is correct. So a store may be opened with
//! other experiments than it was made with, and every record is found in any case.

use crate::error::{Error, Result};
use std::str::FromStr;

/// How the next range to demote is chosen (PrismDB, sections 5.1 and 5.2; its figure 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemotionPolicy {
    /// Best score of cost and benefit, counted record by record.
    Precise,
    /// Best score, estimated from buckets of keys.
    Approximate,
    /// Any range: the baseline.
    Random,
}

/// When a record that was read from the slow tier moves up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promotion {
    /// Never: the baseline.
    None,
    /// When a demotion rewrites its table, as in PrismDB (section 5.1).
    Demotion,
    /// Soon after the read.
    Read,
}

/// How the pinning threshold is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// `pinning_percent` as it is (PrismDB, section 4.3).
    Fixed,
    /// Hill climbing from there on the slow tier's I/O for an operation, of look-ups and of merges
    /// (section 7.4 leaves it as future work).
    Auto,
}

/// Which sparse table is merged first with the preset `indexed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOrder {
    /// The one with the smallest share of live records (SLM-DB, section 3.3).
    Sparsest,
    /// The one that was written first: the baseline.
    Oldest,
}

/// How many loggers write asynchronous requests, and which reads come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSchedule {
    /// One logger, and looks before gets before pages: the baseline.
    Fixed,
    /// By what waits (SpanDB, section 4.1).
    ByLoad,
}

/// A rule that an experiment may leave out, with what happens without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// While most records here are not asked for, the first read moves a record up. Without: the
    /// second.
    FirstRead,
    /// Reads that do not recur, of tables or of slots, move nothing up. Without: all reads recur.
    ReadsRecur,
    /// Copies that are replaced more than they are read get no slots. Without: they do.
    CopiesWorthSlots,
    /// More than a fifth of all keys is tracked where more are up. Without: a fifth.
    TrackerBeyondFifth,
}

impl Rule {
    /// All of them, as they are declared.
    pub const ALL: [Self; 4] =
        [Self::FirstRead, Self::ReadsRecur, Self::CopiesWorthSlots, Self::TrackerBeyondFifth];

    /// Its name, as command lines have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstRead => "first_read",
            Self::ReadsRecur => "reads_recur",
            Self::CopiesWorthSlots => "copies_worth_slots",
            Self::TrackerBeyondFifth => "tracker_beyond_fifth",
        }
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no rule '{text}'; there are {names}"))
        })
    }
}

/// Rules that are left out, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(u8);

/// What an experiment changes; what is none is as the settings' variant has it. By default nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiments {
    /// Rules that are left out.
    pub left_out: LeftOut,
    /// How the next range to demote is chosen.
    pub policy: Option<DemotionPolicy>,
    /// Ranges that a choice looks at (section 5.3: power of k choices, 8).
    pub candidates: Option<usize>,
    /// Consecutive tables of a range (section 5.1: i, 1).
    pub range_tables: Option<usize>,
    /// Sorted runs over each other in a range, however small the fast tier is.
    pub runs: Option<usize>,
    /// Share of the fast tier's room at which demotions end, in percent.
    pub low_watermark_percent: Option<u32>,
    /// How the pinning threshold is found.
    pub pinning: Option<Pinning>,
    /// When records move up.
    pub promotion: Option<Promotion>,
    /// Merging ranges that are mostly read from the slow tier although nothing is written
    /// (section 5.3).
    pub read_triggered: Option<bool>,
    /// Operations of an epoch, after which it is judged whether such merges go on, and whether a
    /// step of `Pinning::Auto` was better (section 5.3: a million).
    pub epoch_operations: Option<u64>,
    /// Operations for which such merges rest once an epoch of them brought too little (section 5.3:
    /// ten million).
    pub cool_down_operations: Option<u64>,
    /// Background work makes way for writes of the log on their tier (SpanDB, section 4.3).
    /// Without: the baseline.
    pub log_first: Option<bool>,
    /// Logs get zeros before durable writes go to them (SpanDB, section 4.2: its log's blocks are
    /// written over and over). Without: the baseline.
    pub log_zeros: Option<bool>,
    /// How asynchronous requests are scheduled.
    pub requests: Option<RequestSchedule>,
    /// Which sparse table is merged first with the preset `indexed`.
    pub merge_order: Option<MergeOrder>,
    /// With `indexed`, walks over the leaves of the index find tables to merge (SLM-DB, section
    /// 3.3).
    pub leaf_scan: Option<bool>,
    /// With `indexed`, scans find tables to merge (section 3.3).
    pub scan_merges: Option<bool>,
    /// With `indexed`, the table of a merge that overlaps most comes first (section 3.3). Without:
    /// by `merge_order`.
    pub by_overlap: Option<bool>,
    /// With `indexed`, tables with few live records are merged (section 3.3). Without: those that
    /// hold neighbouring keys apart alone; a table without any live record still leaves.
    pub live_ratio: Option<bool>,
    /// With `indexed`, tables are entered into the index while memtables are flushed (section 3.2).
    /// Without: when no memtable waits to be flushed.
    pub enter_beside: Option<bool>,
    /// Without a log, a group of writes has one fence. Without this: four for each record, and a
    /// line more, as in the paper (SLM-DB, Algorithm 1).
    pub group_fence: Option<bool>,
    /// With a cache of blocks on tier 0, so many requests of it are noted in their order from the
    /// opening on ([`Db::block_trace`](crate::Db::block_trace)), 24 bytes of memory each.
    pub traced_blocks: Option<usize>,
    /// With a cache of blocks on tier 0, so many bits of a block's signature in its look-up, at
    /// most the 24 that it has else: with 4, copies of other blocks are read all the time.
    pub signature_bits: Option<u32>,
}

impl Experiments {
    /// Nothing is changed.
    pub const NONE: Self = Self {
        left_out: LeftOut(0),
        policy: None,
        candidates: None,
        range_tables: None,
        runs: None,
        low_watermark_percent: None,
        pinning: None,
        promotion: None,
        read_triggered: None,
        epoch_operations: None,
        cool_down_operations: None,
        log_first: None,
        log_zeros: None,
        requests: None,
        merge_order: None,
        leaf_scan: None,
        scan_merges: None,
        by_overlap: None,
        live_ratio: None,
        enter_beside: None,
        group_fence: None,
        traced_blocks: None,
        signature_bits: None,
    };

    /// The same without `rule`.
    #[must_use]
    pub fn without(self, rule: Rule) -> Self {
        Self { left_out: LeftOut(self.left_out.0 | 1 << rule as u16), ..self }
    }

    /// `rule` is in force.
    pub fn has(self, rule: Rule) -> bool {
        self.left_out.0 & 1 << rule as u16 == 0
    }

    /// The rules that are left out.
    pub fn left_out(self) -> impl Iterator<Item = Rule> {
        Rule::ALL.into_iter().filter(move |rule| !self.has(*rule))
    }
}

impl Default for Experiments {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_name_of_its_own_and_is_left_out_alone() {
        for (at, rule) in Rule::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, at);
            assert_eq!(rule.name().parse::<Rule>().unwrap(), rule);
            let experiments = Experiments::default().without(rule);
            assert_eq!(experiments.left_out().collect::<Vec<_>>(), [rule]);
        }
        assert_eq!(Experiments::default().left_out().count(), 0);
        let refused = "luck".parse::<Rule>().unwrap_err().to_string();
        assert!(refused.contains("there is no rule 'luck'; there are first_read, reads_recur"));
    }
}
