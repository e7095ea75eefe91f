//! YCSB A to F (Cooper et al., SoCC 2010; the mixes of its `workloads/` folder).
//!
//! Zipf 0.99 over the records; D reads the latest; scans take 1 to 100 records, all lengths alike.
//! Ranks are scattered by a bijection; `/zipf-ycsb` is YCSB's own hash of 10^10 items.

use super::{Distribution, Kind, Workload, ZIPF};

const SOURCE: &str = "YCSB (SoCC 2010), core workloads";
const LATEST: Distribution = Distribution::Latest { alpha: 0.99 };

/// A to F.
pub fn all() -> Vec<Workload> {
    use Kind::{Insert, Read, ReadModifyWrite, Scan, Update};
    let of = |name: &str, mix: &[(&'static str, Kind, f64)], distribution| {
        Workload::new(name, SOURCE, mix, distribution)
    };
    vec![
        of("ycsb-a", &[("read", Read, 50.0), ("update", Update, 50.0)], ZIPF),
        of("ycsb-b", &[("read", Read, 95.0), ("update", Update, 5.0)], ZIPF),
        of("ycsb-c", &[("read", Read, 100.0)], ZIPF),
        of("ycsb-d", &[("read", Read, 95.0), ("insert", Insert, 5.0)], LATEST),
        of("ycsb-e", &[("scan", Scan, 95.0), ("insert", Insert, 5.0)], ZIPF),
        of("ycsb-f", &[("read", Read, 50.0), ("rmw", ReadModifyWrite, 50.0)], ZIPF),
    ]
}
