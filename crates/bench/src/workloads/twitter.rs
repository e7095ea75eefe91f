//! Workloads like Twitter's cache clusters (Yang et al., OSDI 2020), by their published
//! characteristics: sizes, shares of gets and sets, and the Zipf exponent of popularity.
//!
//! The traces themselves are not to be had in full, so this is a seeded generator: all values of a
//! cluster have its average length, sets write present records anew, and nothing expires.

use super::{Distribution, Kind, Workload};
use crate::values::Sizes;

/// Cluster, key and value in bytes, gets in per cent, exponent (none: uniform).
const CLUSTERS: [(u32, u32, u32, f64, Option<f64>); 6] = [
    (39, 41, 80, 6.0, None),
    (19, 42, 101, 75.0, Some(0.735)),
    (51, 44, 221, 90.0, Some(1.97)),
    (11, 24, 170, 96.0, Some(1.49)),
    (17, 19, 212, 99.0, Some(2.11)),
    (29, 36, 799, 86.0, Some(1.23)),
];

/// The six clusters.
pub fn all() -> Vec<Workload> {
    CLUSTERS
        .into_iter()
        .map(|(cluster, key, value, gets, alpha)| {
            let distribution =
                alpha.map_or(Distribution::Uniform, |alpha| Distribution::Zipf { alpha });
            let mix = [("read", Kind::Read, gets), ("update", Kind::Update, 100.0 - gets)];
            let source = "Twitter's cache clusters (OSDI 2020), published characteristics";
            Workload {
                key_bytes: Some(key),
                sizes: Some(Sizes::Fixed(value)),
                ..Workload::new(&format!("twitter-{cluster}"), source, &mix, distribution)
            }
        })
        .collect()
}
