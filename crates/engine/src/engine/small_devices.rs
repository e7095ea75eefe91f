//! Devices that have less than their tiers' capacities, of which a user is to hear before files go
//! elsewhere.

use crate::engine::stats::TierStats;
use thermocline_device::driver::Space;
use thermocline_device::{TieredFiles, shortfall};

/// Warns of each tier whose device cannot hold what the capacity promises.
pub(super) fn warn(files: &TieredFiles) {
    for usage in files.usage() {
        let shortfall =
            usage.space.and_then(|space| shortfall(usage.capacity_bytes, usage.used_bytes, space));
        if let Some(shortfall) = shortfall {
            tracing::warn!("{}, {} {shortfall}", usage.tier, usage.spec.path.display());
        }
    }
}

impl TierStats {
    /// What a user should know of a device that cannot hold what the capacity promises; none where
    /// it can, or where that cannot be told.
    pub fn shortfall(&self) -> Option<String> {
        let (total_bytes, free_bytes) = (self.device_total_bytes?, self.device_free_bytes?);
        shortfall(self.capacity_bytes, self.used_bytes, Space { total_bytes, free_bytes })
    }
}
