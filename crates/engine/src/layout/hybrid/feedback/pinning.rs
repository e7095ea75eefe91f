//! Which records stay on the fast tier (PrismDB, section 4.3).

use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::rules::pinning::{FastRecords, draw_of, pinned_keys_max};
use thermocline_popularity::Pinning;
use thermocline_table::key_hash;

impl FastTier {
    /// Which records stay on the fast tier, as of now: what the threshold says, as far as that
    /// leaves room for others.
    pub fn pinning(&self) -> Pinning {
        let records = FastRecords {
            in_slots: self.index.slot_records(),
            slot_bytes: self.slabs.stats().bytes_live(),
            limit_bytes: self.room.limit_bytes(),
            in_memory: self.index.memory_records(),
        };
        let histogram = self.popularity.histogram();
        self.feedback.threshold().pinning_within(&histogram, pinned_keys_max(records))
    }

    /// The key is one of those that stay.
    pub fn is_pinned(&self, pinning: &Pinning, key: &[u8]) -> bool {
        let hash = key_hash(key);
        pinning.decide(self.popularity.value(hash), draw_of(hash))
    }
}
