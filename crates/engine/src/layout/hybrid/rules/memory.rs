//! How memory is divided: keys that are tracked, blocks of tables, records.

/// Share of all keys that popularity knows at least, where the settings do not say (PrismDB,
/// section 7), and of how few keys.
const TRACKED_PERCENT: u32 = 20;
const TRACKED_MIN: u64 = 1 << 10;

/// How many keys popularity should know, of `all` keys of both tiers: a share of them, which the
/// settings may name. What is not tracked is cold.
pub(crate) fn tracked_keys(all: u64, percent: u32) -> u64 {
    let percent = if percent > 0 { percent } else { TRACKED_PERCENT };
    (all * u64::from(percent) / 100).max(TRACKED_MIN)
}

/// A tracker of `capacity` keys should be made anew for `keys`.
pub(crate) fn is_far_from(keys: u64, capacity: u64) -> bool {
    keys > capacity + capacity / 8 || keys < capacity / 2
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
    fn a_fifth_of_all_keys_is_tracked_or_what_the_settings_say() {
        let table = [
            // keys, percent: tracked
            (0, 0, 1024),
            (50_000, 0, 10_000),
            (100_000, 0, 20_000),
            (100_000, 50, 50_000),
            (100_000, 5, 5_000),
        ];
        for (all, percent, tracked) in table {
            assert_eq!(tracked_keys(all, percent), tracked, "{all} {percent}");
        }
    }

    #[test]
    fn a_tracker_is_made_anew_where_it_is_far_from_what_it_should_be() {
        let far = [800, 888, 889, 1000, 2000, 2002].map(|capacity| is_far_from(1000, capacity));
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
