//! Rows of placement: levels by the device's parallelism beside fixed hierarchies.
//!
//! ```text
//!   H1  log alone      H2  and level 0     H3  and level 1     H4, H5  and levels 2, 3
//! ```
//! The fast device is emulated persistent memory, whose writes get slower beyond four writers, a
//! tenth as fast as the real one: two processors can use it up. What is known of it is its model's
//! curve, but for the row that learns it. Figure 3 has the rig's own devices.

use super::rows::{Group, Labels, PAPER, Row, over};
use crate::rows::{point, points};

const DEVICE: &str = "+fast-device=dcpmm-tenth";

/// Levels of each hierarchy, as the plugin writes it.
const HIERARCHIES: [&str; 5] =
    ["log_only", "top_levels(1)", "top_levels(2)", "top_levels(3)", "top_levels(4)"];

/// The best of the hierarchies with `more` options is what `parallelism` is against.
fn against_all(name: &str, labels: &Labels, more: &str, workload: &str) -> Row {
    let label = |placement: &str| labels.tiered(&format!("+placement={placement}{more}"));
    let fixed = HIERARCHIES.map(label);
    let under = points(&fixed.each_ref().map(String::as_str), workload);
    let ours = point(&label("parallelism"), workload);
    Row::in_paper(&PAPER, Group::Work, name, ours, under).at_least(0.95, 1.0)
}

/// Figures 2, 3, 4 and 10, and the profile that is learnt.
pub fn rows(labels: &Labels) -> Vec<Row> {
    let known = format!("{DEVICE}+profile=fixed");
    let on = |name: &str, more: &str, workload: &str| {
        against_all(name, labels, &format!("{known}{more}"), workload)
    };
    let of_device = |profile: &str| labels.tiered(&format!("{DEVICE}{profile}"));
    let (learnt, told) = (of_device("+profile=online"), of_device("+profile=fixed"));
    let learning = |workload: &str| {
        over(&format!("online/{workload}"), Group::Learning, &learnt, &told, workload)
    };
    vec![
        on("2/ycsb-a", "", "ycsb-a"),
        on("2/ycsb-c", "", "ycsb-c"),
        against_all("3/ycsb-a/uniform", labels, "", "ycsb-a/uniform"),
        against_all("3/ycsb-c/uniform", labels, "", "ycsb-c/uniform"),
        on("4/jobs-2", "+jobs=2", "ycsb-a"),
        on("4/jobs-16", "+jobs=16", "ycsb-a"),
        on("10/ycsb-a/threads-1", "", "ycsb-a/zipf-0.8/threads-1"),
        on("10/ycsb-a/threads-16", "", "ycsb-a/zipf-0.8/threads-16"),
        on("10/ycsb-c/threads-16", "", "ycsb-c/zipf-0.8/threads-16"),
        learning("ycsb-a/threads-16").at_least(0.95, 1.0),
    ]
}
