//! Nutanix's metadata store, as KVell (Lepers et al., SOSP 2019) gives it: 58 % writes,
//! 40 % reads, 2 % scans of 1 to 99 records, and four lengths of values.
//!
//! Its popularity is not published; uniform here, the harder case.

use super::{Distribution, Kind, ScanLength, Workload};
use crate::values::Sizes;

/// Shares in per cent and lengths in bytes.
const SIZES: &[(u32, u32)] = &[(1, 100), (81, 400), (16, 1024), (2, 4096)];

/// The mix.
pub fn mixed() -> Workload {
    let mix =
        [("update", Kind::Update, 58.0), ("read", Kind::Read, 40.0), ("scan", Kind::Scan, 2.0)];
    Workload {
        sizes: Some(Sizes::Mixture(SIZES)),
        scan: ScanLength::Uniform(99),
        ..Workload::new("nutanix", "Nutanix as in KVell (SOSP 2019)", &mix, Distribution::Uniform)
    }
}
