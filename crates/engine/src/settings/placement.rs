//! Where the tables of the preset `leveled` go: the setting's word, its figures, and the policy
//! that they make.

use super::fast_cache::{CacheCapacity, FastCacheSettings};
use super::{Preset, Settings};
use crate::error::{Error, Result};
use crate::limits::LEVELS;
use std::sync::Arc;
use thermocline_device::placement::{BandwidthSettings, BelowFirst, ByLevelSettings};
use thermocline_device::{Placement, PlacementChoice};
use thermocline_foundation::ByteSize;

// What `settings.toml` leaves out, so that builds without these settings open the database.

pub(super) fn is_room(placement: &PlacementChoice) -> bool {
    *placement == PlacementChoice::Room
}

pub(super) fn is_low(percent: &u32) -> bool {
    *percent == BandwidthSettings::default().low_percent
}

pub(super) fn is_high(percent: &u32) -> bool {
    *percent == BandwidthSettings::default().high_percent
}

pub(super) fn is_measured(peak: &ByteSize) -> bool {
    peak.0 == 0
}

impl Settings {
    /// Which tier a file goes to.
    ///
    /// Does not look at `tiers`: at an opening it is wanted before they are known.
    pub(crate) fn placement_policy(&self) -> Arc<dyn Placement> {
        if self.preset() == Preset::Hybrid {
            return Arc::new(BelowFirst::default());
        }
        self.placement.policy(self.by_level(), self.bandwidth())
    }

    fn bandwidth(&self) -> BandwidthSettings {
        let (low_percent, high_percent) = (self.bandwidth_low, self.bandwidth_high);
        BandwidthSettings { low_percent, high_percent }
    }

    /// The placement is one of this preset: another preset would not look at it.
    pub(crate) fn check_placement(&self) -> Result<()> {
        if let PlacementChoice::TopLevels(level) = self.placement
            && usize::from(level) >= LEVELS
        {
            return Err(Error::invalid(format!(
                "placement = \"{}\" is out of range; levels are 0 to {}",
                self.placement,
                LEVELS - 1
            )));
        }
        if self.preset == Some(Preset::Hybrid) && !is_room(&self.placement) {
            return Err(Error::invalid(format!(
                "placement = \"{}\" is of the preset leveled, and this is hybrid, which places \
                 records by how often they are asked for; name preset = \"leveled\", or leave \
                 placement out",
                self.placement
            )));
        }
        if self.preset == Some(Preset::Indexed) && !is_room(&self.placement) {
            return Err(Error::invalid(format!(
                "placement = \"{}\" is of the preset leveled, and this is indexed, which has one \
                 level and fills the fast tier first; name preset = \"leveled\", or leave \
                 placement out",
                self.placement
            )));
        }
        Ok(())
    }

    /// How levels are placed. Logs are on the fast tier.
    ///
    /// Does not look at `tiers`: at an opening it is wanted before they are known, and what it
    /// decides must not change by it. The policy knows how small tier 0 is.
    pub(crate) fn by_level(&self) -> ByLevelSettings {
        let log_reserve = ByteSize(self.full_logs_bytes());
        let (cache_reserve, cache_takes_rest) = match self.fast_cache.capacity {
            CacheCapacity::Bytes(bytes) => (bytes, false),
            CacheCapacity::Auto => (ByteSize(0), true),
        };
        ByLevelSettings { log_reserve, cache_reserve, cache_takes_rest }
    }

    /// Bytes of tier 0 that a cache of blocks may come to, as far as settings say. One that takes
    /// what the levels leave is no larger than the memory has room to look up.
    pub(crate) fn fast_cache_bytes(&self) -> u64 {
        match self.fast_cache.capacity {
            CacheCapacity::Bytes(bytes) => bytes.0,
            CacheCapacity::Auto if self.cache_takes_rest() && self.is_tiered() => {
                let most = FastCacheSettings::BYTES_MAX.min(self.fast_cache_bytes_by_memory());
                self.tiers[0].capacity.0.min(most)
            }
            CacheCapacity::Auto => 0,
        }
    }

    /// A cache that takes what the levels leave needs to know what that is.
    pub(crate) fn check_cache_capacity(&self) -> Result<()> {
        let is_known = matches!(self.placement, PlacementChoice::Room | PlacementChoice::LogOnly);
        let is_leveled = self.preset.is_none_or(|preset| preset == Preset::Leveled);
        if self.fast_cache.capacity != CacheCapacity::Auto || is_known && is_leveled {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "fast_cache.capacity = \"auto\" is of the preset leveled with the placement room or \
             log_only, and this is {} with {}; name a size, or 0 for no cache",
            self.preset().name(),
            self.placement
        )))
    }

    /// Whether a cache of blocks takes what the levels leave of tier 0.
    pub(crate) fn cache_takes_rest(&self) -> bool {
        self.fast_cache.capacity == CacheCapacity::Auto && self.preset() == Preset::Leveled
    }

    /// Whether tier 0 gets neither tables nor slots, so that a cache of blocks may have all that
    /// logs leave.
    pub(crate) fn all_tables_lie_below(&self) -> bool {
        self.preset() == Preset::Leveled && self.placement == PlacementChoice::LogOnly
    }

    /// What tables may take of the fast tier without pushing anything out; none where its size is
    /// that of its disk.
    pub(crate) fn fast_table_bytes(&self) -> Option<u64> {
        Some(self.by_level().table_bytes(self.tiers.first()?.capacity.0))
    }
}
