//! How many records may be pinned to the fast tier (PrismDB, section 4.3).

/// Share of the records that fit the fast tier which may be pinned: the rest come and go.
const PINNED_SHARE_MAX: f64 = 0.9;

/// The records of the fast tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FastRecords {
    /// Records that have slots.
    pub in_slots: u64,
    /// Bytes of these slots.
    pub slot_bytes: u64,
    /// Bytes that slots may have.
    pub limit_bytes: u64,
    /// Records that are in memory only; they take no room.
    pub in_memory: u64,
}

/// The most keys that may be pinned: `keys_max`, as far as this leaves room for others.
pub(crate) fn pinned_keys_max(keys_max: f64, records: FastRecords) -> f64 {
    let fit = match records.slot_bytes {
        0 => f64::INFINITY,
        bytes => records.in_slots as f64 * records.limit_bytes as f64 / bytes as f64,
    };
    keys_max.min(PINNED_SHARE_MAX * (fit + records.in_memory as f64))
}

/// A number in 0..1 that is always the same for a key.
pub(crate) fn draw_of(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_what_fits_is_left_to_others() {
        let records = |in_slots, in_memory| FastRecords {
            in_slots,
            slot_bytes: in_slots * 100,
            limit_bytes: 100_000,
            in_memory,
        };
        let table = [
            // keys_max, in slots, in memory: pinned at most
            (f64::INFINITY, 500, 0, 900.0),
            (f64::INFINITY, 1000, 0, 900.0),
            (f64::INFINITY, 1000, 200, 1080.0),
            (300.0, 1000, 200, 300.0),
            (f64::INFINITY, 0, 200, f64::INFINITY),
            (300.0, 0, 0, 300.0),
        ];
        for (keys_max, in_slots, in_memory, pinned) in table {
            let found = pinned_keys_max(keys_max, records(in_slots, in_memory));
            assert!((found - pinned).abs() < 1e-6 || found == pinned, "{found} for {pinned}");
        }
    }

    #[test]
    fn draws_are_even() {
        let tenth = draw_of(u64::MAX / 10);
        assert!((tenth - 0.1).abs() < 1e-9, "{tenth}");
        assert!(draw_of(0) == 0.0 && draw_of(u64::MAX) < 1.0);
    }
}
