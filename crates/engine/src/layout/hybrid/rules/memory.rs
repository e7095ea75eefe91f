//! How memory is divided: keys that are tracked, blocks of tables, records.

/// Share of all keys that popularity knows at least, where the settings do not say (PrismDB,
/// section 7), and of how few keys.
const TRACKED_PERCENT: u32 = 20;
const TRACKED_MIN: u64 = 1 << 10;
/// Beyond that it knows more only while it takes no more than this share of what records, blocks
/// and the index have, at so many bytes a key.
const TRACKER_SHARE: u64 = 8;
const TRACKER_KEY_BYTES: u64 = 12;

/// What the number of tracked keys follows from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// Keys of the fast tier.
    pub fast: u64,
    /// Entries of tables.
    pub in_tables: u64,
    /// Bytes of records, blocks, the index and the tracker together.
    pub share_bytes: u64,
    /// Share of all keys that the settings name; 0: none.
    pub percent: u32,
    /// More may be known than a share of all keys.
    pub may_be_beyond: bool,
}

/// How many keys popularity should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// The share of all keys that the pinning threshold is a share of.
    pub share_of_keys: u64,
    /// Keys to know.
    pub keys: u64,
}

impl Tracked {
    /// What is not tracked is cold. Where fast tier and memory have room for more than the share of
    /// all keys, the rest of them would be there by chance; and to choose which records stay, some
    /// more must be known than stay. A clock that is never full forgets nothing, so not all keys
    /// are tracked; and where no record has left there is nothing to choose.
    pub fn of(keys: Keys) -> Self {
        let all = keys.fast + keys.in_tables;
        let is_set = keys.percent > 0;
        let percent = if is_set { keys.percent } else { TRACKED_PERCENT };
        let share_of_keys = (all * u64::from(percent) / 100).max(TRACKED_MIN);
        let beyond = (keys.fast + keys.fast / 4).min(all - all / 5);
        let beyond = beyond.min(keys.share_bytes / TRACKER_SHARE / TRACKER_KEY_BYTES);
        let keys = match is_set || keys.in_tables == 0 || !keys.may_be_beyond {
            true => share_of_keys,
            false => share_of_keys.max(beyond),
        };
        Self { share_of_keys, keys }
    }

    /// A tracker of `capacity` keys should be made anew for as many as this.
    pub fn is_far_from(&self, capacity: u64) -> bool {
        self.keys > capacity + capacity / 8 || self.keys < capacity / 2
    }
}

/// Divides what is left of `share_bytes` beside pinned bytes and what is known of keys: bytes of
/// blocks, and bytes of records. Blocks have their partitions and some more.
pub(crate) fn blocks_and_records(
    share_bytes: u64,
    used_bytes: u64,
    partition_bytes: u64,
) -> (u64, u64) {
    let left = share_bytes.saturating_sub(used_bytes).max(share_bytes / 8);
    let blocks = (partition_bytes + partition_bytes / 4 + left / 16).min(left / 2);
    (blocks, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_all_keys_is_tracked_and_more_where_the_fast_tier_has_more() {
        let table = [
            // fast, in tables, bytes, percent: share of keys, tracked
            ((0, 0, 1 << 30, 0), (1024, 1024)),
            ((50_000, 0, 1 << 30, 0), (10_000, 10_000)),
            ((10_000, 90_000, 1 << 30, 0), (20_000, 20_000)),
            ((40_000, 60_000, 1 << 30, 0), (20_000, 50_000)),
            ((90_000, 10_000, 1 << 30, 0), (20_000, 80_000)),
            ((40_000, 60_000, 96 * 30_000, 0), (20_000, 30_000)),
            ((40_000, 60_000, 1 << 30, 50), (50_000, 50_000)),
            ((40_000, 60_000, 1 << 30, 5), (5_000, 5_000)),
        ];
        for ((fast, in_tables, share_bytes, percent), (share_of_keys, keys)) in table {
            let known = Keys { fast, in_tables, share_bytes, percent, may_be_beyond: true };
            let found = Tracked::of(known);
            assert_eq!(found, Tracked { share_of_keys, keys }, "{fast} {in_tables} {percent}");
            // Without the rule.
            let found = Tracked::of(Keys { may_be_beyond: false, ..known });
            assert_eq!(found, Tracked { share_of_keys, keys: share_of_keys });
        }
    }

    #[test]
    fn a_tracker_is_made_anew_where_it_is_far_from_what_it_should_be() {
        let tracked = Tracked { share_of_keys: 0, keys: 1000 };
        let far = [800, 888, 889, 1000, 2000, 2002].map(|capacity| tracked.is_far_from(capacity));
        assert_eq!(far, [true, true, false, false, false, true]);
    }

    #[test]
    fn blocks_have_their_partitions_and_at_most_half_of_what_is_left() {
        assert_eq!(blocks_and_records(1600, 0, 0), (100, 1600));
        assert_eq!(blocks_and_records(1600, 0, 400), (600, 1600));
        assert_eq!(blocks_and_records(1600, 0, 4000), (800, 1600));
        assert_eq!(blocks_and_records(1600, 800, 0), (50, 800));
        assert_eq!(blocks_and_records(1600, 9000, 0), (12, 200), "an eighth is left whatever is");
    }
}
