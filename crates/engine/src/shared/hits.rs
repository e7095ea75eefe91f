//! Hits and misses of a cache, as statistics show them.

use serde::{Deserialize, Serialize};

/// Hits and misses.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct HitStats {
    /// Found.
    pub hits: u64,
    /// Not found and read.
    pub misses: u64,
    /// hits / (hits + misses); 0 before the first.
    pub hit_ratio: f64,
}

impl HitStats {
    pub(crate) fn of(hits: u64, misses: u64) -> Self {
        Self {
            hits,
            misses,
            hit_ratio: if hits == 0 { 0.0 } else { hits as f64 / (hits + misses) as f64 },
        }
    }
}
