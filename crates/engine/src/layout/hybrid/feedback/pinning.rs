//! Which records stay on the fast tier (PrismDB, section 4.3).

use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::rules::pinning::{FastRecords, draw_of, pinned_keys_max};
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_popularity::Pinning;
use thermocline_table::key_hash;

impl FastTier {
    /// Which records demotions leave on the fast tier, as of now: what the threshold says of a
    /// fifth of all keys, though more may be known than that. With more of them each merge finds
    /// fewer that may leave, and rewrites as much for these.
    pub fn pinning(&self) -> Pinning {
        let share = self.feedback.threshold().share();
        self.pinning_of(share * self.feedback.share_of_keys.load(Relaxed) as f64)
    }

    /// Which copies of what tables have stay, as of now: what the threshold says of all that is
    /// known.
    pub fn pinning_of_copies(&self) -> Pinning {
        self.pinning_of(f64::INFINITY)
    }

    /// What the threshold says, as far as this is `keys_max` at most and leaves room for others.
    fn pinning_of(&self, keys_max: f64) -> Pinning {
        let records = FastRecords {
            in_slots: self.index.slot_records(),
            slot_bytes: self.slabs.stats().bytes_live(),
            limit_bytes: self.room.limit_bytes(),
            in_memory: self.index.memory_records(),
        };
        let histogram = self.popularity.histogram();
        let keys_max = pinned_keys_max(keys_max, records);
        self.feedback.threshold().pinning_within(&histogram, keys_max)
    }

    /// The key is one of those that stay.
    pub fn is_pinned(&self, pinning: &Pinning, key: &[u8]) -> bool {
        let hash = key_hash(key);
        pinning.decide(self.popularity.value(hash), draw_of(hash))
    }
}
