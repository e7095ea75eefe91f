//! What a label of the preset `indexed` may set besides what all presets share: what chooses the
//! tables of a merge (SLM-DB, section 3.3), each rule of which can be left out.
//!
//! ```text
//!   thermocline-indexed@tiers+persistent-memory=1GiB+leaf-scan=off+scan-merges=off
//! ```

use super::hybrid::choose;
use crate::Outcome;
use crate::store::OpenOptions;
use thermocline::{Experiments, MergeOrder};

/// Names and meanings.
pub(super) const OPTIONS: [(&str, &str); 4] = [
    ("merge-order", "which sparse table is merged first: sparsest or oldest; default sparsest"),
    ("leaf-scan", "on or off: walks over the index find tables to merge; default on"),
    ("scan-merges", "on or off: scans find tables to merge; default on"),
    ("overlap", "on or off: the table that overlaps most is merged first; default on"),
];

/// Adds what the label varies to `experiments`.
pub(super) fn add(options: &OpenOptions, experiments: &mut Experiments) -> Outcome<()> {
    let orders = [("sparsest", Some(MergeOrder::Sparsest)), ("oldest", Some(MergeOrder::Oldest))];
    choose(options, "merge-order", &orders, &mut experiments.merge_order)?;
    let switch = [("on", Some(true)), ("off", Some(false))];
    choose(options, "leaf-scan", &switch, &mut experiments.leaf_scan)?;
    choose(options, "scan-merges", &switch, &mut experiments.scan_merges)?;
    choose(options, "overlap", &switch, &mut experiments.by_overlap)
}
