//! Meta's `prefix_dist` (Cao et al., FAST 2020; `mixgraph` of RocksDB's db_bench).
//!
//! Keys lie in 30 ranges of very different popularity, and popularity inside a range falls by a
//! power law, so hot records are neighbours: keys are in the order of numbers here.

use super::distribution::PrefixParameters;
use super::{Distribution, Kind, ScanLength, Workload};
use crate::keys::Order;
use crate::values::Sizes;

/// `key_dist_a`, `_b`; `keyrange_num`; `keyrange_dist_a` to `_d`.
pub const PREFIX_DIST: PrefixParameters = PrefixParameters {
    key: [0.002312, 0.3467],
    ranges: 30,
    range: [14.18, -2.917, 0.0164, -0.08082],
};

/// 83 % gets, 14 % puts, 3 % seeks.
pub fn prefix_dist() -> Workload {
    let mix =
        [("read", Kind::Read, 83.0), ("update", Kind::Update, 14.0), ("scan", Kind::Scan, 3.0)];
    let source = "Meta (FAST 2020), prefix_dist of db_bench's mixgraph";
    Workload {
        key_bytes: Some(48),
        sizes: Some(Sizes::Pareto { k: 0.2615, sigma: 25.45, max: 1024 }),
        scan: ScanLength::Pareto { k: 2.517, sigma: 14.236, max: 10_000 },
        order: Order::Sequential,
        ..Workload::new("prefix_dist", source, &mix, Distribution::Prefix(PREFIX_DIST))
    }
}
