//! What a label of the preset `indexed` may set besides what all presets share: what chooses the
//! tables of a merge (SLM-DB, section 3.3), when tables are entered and how many fences writes have
//! (sections 3.1 and 3.2), each of which can be left out.
//!
//! ```text
//!   thermocline-indexed@tiers+persistent-memory=1GiB+leaf-scan=off+scan-merges=off
//! ```

use super::hybrid::choose;
use crate::Outcome;
use crate::store::OpenOptions;
use std::path::Path;
use thermocline::{Environment, Experiments, MergeOrder};

/// Names and meanings.
pub(super) const OPTIONS: [(&str, &str); 8] = [
    ("merge-order", "which sparse table is merged first: sparsest or oldest; default sparsest"),
    ("leaf-scan", "on or off: walks over the index find tables to merge; default on"),
    ("scan-merges", "on or off: scans find tables to merge; default on"),
    ("overlap", "on or off: the table that overlaps most is merged first; default on"),
    ("live-ratio", "on or off: tables with few live records are merged; default on"),
    ("enter-beside", "on or off: tables are entered while memtables are flushed; default on"),
    (
        "fences",
        "group or each: one fence a group of writes, or those of a skip list; default group",
    ),
    ("rebuild-index", "on or off: an opening makes the index anew from the tables; default off"),
];

/// Adds what the label varies to `experiments`.
pub(super) fn add(options: &OpenOptions, experiments: &mut Experiments) -> Outcome<()> {
    let orders = [("sparsest", Some(MergeOrder::Sparsest)), ("oldest", Some(MergeOrder::Oldest))];
    choose(options, "merge-order", &orders, &mut experiments.merge_order)?;
    let switch = [("on", Some(true)), ("off", Some(false))];
    choose(options, "leaf-scan", &switch, &mut experiments.leaf_scan)?;
    choose(options, "scan-merges", &switch, &mut experiments.scan_merges)?;
    choose(options, "overlap", &switch, &mut experiments.by_overlap)?;
    choose(options, "live-ratio", &switch, &mut experiments.live_ratio)?;
    choose(options, "enter-beside", &switch, &mut experiments.enter_beside)?;
    let fences = [("group", Some(true)), ("each", Some(false))];
    choose(options, "fences", &fences, &mut experiments.group_fence)
}

/// Makes the index of the store at `home` anew, where the label says so and it is not being loaded.
pub(super) fn rebuild(
    options: &OpenOptions,
    environment: &Environment,
    home: &Path,
) -> Outcome<()> {
    let mut is_asked = false;
    choose(options, "rebuild-index", &[("on", true), ("off", false)], &mut is_asked)?;
    if is_asked && !options.loading {
        environment.rebuild_index(home, None)?;
    }
    Ok(())
}
