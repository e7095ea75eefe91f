//! Which records stay on the fast tier (PrismDB, section 4.3).

use crate::layout::hybrid::FastTier;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_popularity::Pinning;
use thermocline_table::key_hash;
/// Share of the records that fit the fast tier which may be pinned: the rest come and go.
const PINNED_SHARE_MAX: f64 = 0.9;
/// A number in 0..1 that is always the same for a key.
pub(crate) fn draw_of(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

impl FastTier {
    /// Which records demotions leave on the fast tier, as of now: what the threshold says of a
    /// fifth of all keys, though more may be known than that. With more of them each merge finds
    /// fewer that may leave, and rewrites as much for these.
    pub fn pinning(&self) -> Pinning {
        let share = self.regulation.threshold().share();
        self.pinning_of(share * self.regulation.share_of_keys.load(Relaxed) as f64)
    }

    /// Which copies of what tables have stay, as of now: what the threshold says of all that is
    /// known.
    pub fn pinning_of_copies(&self) -> Pinning {
        self.pinning_of(f64::INFINITY)
    }

    /// What the threshold says, as far as this is `keys_max` at most and leaves room for others.
    /// Records in memory only take no room.
    fn pinning_of(&self, keys_max: f64) -> Pinning {
        let live_bytes = self.slabs.stats().bytes_live();
        let in_slots = self.index.slot_records() as f64;
        let records = match live_bytes {
            0 => f64::INFINITY,
            bytes => in_slots * self.room.limit_bytes() as f64 / bytes as f64,
        };
        let records = records + self.index.memory_records() as f64;
        let histogram = self.popularity.histogram();
        let keys_max = keys_max.min(PINNED_SHARE_MAX * records);
        self.regulation.threshold().pinning_within(&histogram, keys_max)
    }

    /// The key is one of those that stay.
    pub fn is_pinned(&self, pinning: &Pinning, key: &[u8]) -> bool {
        let hash = key_hash(key);
        pinning.decide(self.popularity.value(hash), draw_of(hash))
    }
}
