//! What tier 0 leaves the cache.
//!
//! ```text
//!   capacity x watermark | logs | journals | tables, slots, indexes | next flush | cache |
//! ```
//! Logs and journals come first with all that they may come to, then what is there, then a memtable
//! that is about to be flushed; the cache has the rest, up to its grant. One that takes what the
//! levels leave (`auto`) keeps what these are meant to come to, and a part for the outputs of
//! merges beside their inputs: they would go to a slower tier otherwise. It has nothing while the
//! tier's device refuses what the capacity leaves: what it has there is what others lack.

use super::FastCache;
use crate::shared::tier0::Account;
use thermocline_device::placement::WATERMARK_PERCENT;
use thermocline_device::{FileKind, TierIndex};
use thermocline_foundation::{Planted, planted};

/// Share of the tier that a cache of what the levels leave keeps free for merges: as much as guests
/// that are fetched leave.
const MARGIN_SHARE: u64 = 20;

impl FastCache {
    /// Bytes that the cache may take now.
    pub(super) fn room_bytes(&self) -> u64 {
        if self.shared.files.tiers()[0].is_refused() {
            return 0;
        }
        let (mut logs, mut journals, mut others) = (0, 0, 0);
        for file in self.shared.files.files() {
            match file.kind {
                _ if file.tier != TierIndex(0) => {}
                FileKind::BlockCache => {}
                FileKind::Log => logs += file.bytes,
                FileKind::Manifest | FileKind::Map => journals += file.bytes,
                FileKind::Table { .. } | FileKind::Slab | FileKind::TableIndex => {
                    others += file.bytes;
                }
            }
        }
        if planted(Planted::CacheTakesLogRoom) {
            return self.tier_bytes.saturating_sub(logs + journals + others);
        }
        let tier0 = &self.shared.tier0;
        let logs = tier0.grant(Account::Logs).max(logs);
        let journals = tier0.grant(Account::Journals).max(journals);
        let flush = self.shared.settings.division().memtable_bytes;
        let usable = u128::from(self.tier_bytes) * u128::from(WATERMARK_PERCENT) / 100;
        if self.shared.settings.cache_takes_rest() {
            others = others.max(self.shared.files.claimed_bytes());
            others += self.tier_bytes / MARGIN_SHARE;
        }
        let left = (usable as u64).saturating_sub(logs + journals + others + flush);
        left.min(tier0.grant(Account::BlockCache))
    }
}
