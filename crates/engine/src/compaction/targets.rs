//! Size targets of the levels, counted from the bottom (LevelDB; RocksDB's dynamic level sizes).
//!
//! The deepest level holds most of the data, and each level above is the same factor smaller, the
//! last step being the one into level 0 as it is while writes press ([`batch_bytes`]). The factor
//! is `level_ratio` at most: 20 times such a level 0 at the bottom makes one level between them and
//! two steps of 4.5, not 10 and 2. Data enters at the *base* level, the first below 0 that is used;
//! an empty store has its base at the bottom.

use crate::limits::LEVELS;
use crate::settings::Settings;
use crate::table_set::levels::Levels;

/// The deepest level.
pub(super) const BOTTOM: usize = LEVELS - 1;

/// A level has about this many tables at least, so that a compaction takes a part of it.
const TABLES_PER_LEVEL: u64 = 8;
/// But no table is planned to be smaller than this, in bytes.
const TABLE_BYTES_MIN: u64 = 1 << 20;

/// Size targets of the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// The level that level 0 is merged into.
    pub base: usize,
    /// Bytes; 0 for levels that should be empty.
    pub bytes: [u64; LEVELS],
}

impl Targets {
    /// Bytes that compactions below level 0 move for each byte that comes into the base level,
    /// where the levels are as large as they should be.
    pub fn work(&self) -> f64 {
        let steps = self.bytes[self.base..].windows(2).filter(|pair| pair[0] > 0);
        steps.map(|pair| 1.0 + pair[1] as f64 / pair[0] as f64).sum()
    }
}

/// Tables that level 0 collects while writes press: half of what slows writers down.
pub(super) fn batch_tables(settings: &Settings) -> u32 {
    settings.level0_tables.max(settings.level0_slowdown / 2)
}

/// Bytes of level 0 when it is merged while writes press. Where a fast tier has to hold the upper
/// levels and what a merge of them makes beside them, level 0 does not wait to grow.
pub(crate) fn batch_bytes(settings: &Settings) -> u64 {
    let tables = if settings.is_tiered() { settings.level0_tables } else { batch_tables(settings) };
    settings.division().memtable_bytes * u64::from(tables)
}

/// See [`Targets`].
pub(crate) fn targets(levels: &Levels, settings: &Settings) -> Targets {
    let largest = (1..LEVELS).map(|level| levels.level_bytes(level)).max();
    targets_over(largest.unwrap_or(0), settings)
}

/// The targets over a largest level of so many bytes.
fn targets_over(largest: u64, settings: &Settings) -> Targets {
    let batch = batch_bytes(settings);
    let mut bytes = [0; LEVELS];
    bytes[BOTTOM] = largest.max(batch);
    let growth = bytes[BOTTOM] as f64 / batch as f64;
    let steps = growth.ln() / f64::from(settings.level_ratio).ln();
    // One more level, as large as level 0, where a merge of level 0 must stay small.
    let more = usize::from(settings.is_tiered());
    let steps = (steps.ceil() as usize).clamp(1, BOTTOM - more);
    let factor = growth.powf(1.0 / steps as f64);
    for up in 1..steps + more {
        bytes[BOTTOM - up] = (bytes[BOTTOM] as f64 / factor.powi(up as i32)) as u64;
    }
    let base = BOTTOM + 1 - steps - more;
    fit_fast_tier(&mut bytes, base, batch, settings);
    Targets { base, bytes }
}

/// Changes the deepest level that can be made to fit so that whole levels fill the fast tier. A
/// level half as large costs more merging, and one twice as large saves some; more than that is not
/// worth it.
fn fit_fast_tier(bytes: &mut [u64; LEVELS], base: usize, batch: u64, settings: &Settings) {
    let Some(room) = settings.fast_table_bytes().filter(|_| settings.is_tiered()) else { return };
    for level in (base + 1..BOTTOM).rev() {
        // Level 0, and what a merge of it into the base makes while both are still there.
        let above: u64 = bytes[base..level].iter().sum::<u64>() + 2 * batch;
        let left = room.saturating_sub(above);
        if left >= bytes[level] / 2 {
            bytes[level] = left.min(2 * bytes[level]);
            return;
        }
    }
}

/// Bytes after which a table of `level` is closed.
pub(crate) fn table_bytes(levels: &Levels, settings: &Settings, level: usize) -> u64 {
    let share = targets(levels, settings).bytes[level] / TABLES_PER_LEVEL;
    share.max(TABLE_BYTES_MIN).min(settings.table_size.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByteSize, Preset, Tier};

    const MIB: u64 = 1 << 20;

    fn settings(tiers_mib: &[u64]) -> Settings {
        let tier = |mib: &u64| Tier::new("/tier", ByteSize::mib(*mib));
        let tiers = tiers_mib.iter().map(tier).collect();
        Settings {
            preset: Some(Preset::Leveled),
            tiers,
            memory: ByteSize::mib(96),
            ..Settings::default()
        }
    }

    /// Bytes of the level above, level 0 as it is when it is merged, for each level from the base.
    fn factors(targets: &Targets, settings: &Settings) -> Vec<f64> {
        let sizes = std::iter::once(batch_bytes(settings))
            .chain(targets.bytes[targets.base..].iter().copied())
            .collect::<Vec<_>>();
        sizes.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64).collect()
    }

    #[test]
    fn as_few_equal_steps_as_the_ratio_allows_lead_from_level_0_to_the_bottom() {
        let settings = settings(&[1 << 20]);
        for (times, steps) in [(1, 1), (9, 1), (11, 2), (99, 2), (101, 3), (100_000, 5)] {
            let targets = targets_over(batch_bytes(&settings) * times, &settings);
            let factors = factors(&targets, &settings);
            assert_eq!(factors.len(), steps, "{times} times level 0: {factors:?}");
            let equal = (times as f64).powf(1.0 / steps as f64);
            assert!(factors.iter().all(|factor| (factor / equal - 1.0).abs() < 0.01));
        }
        assert_eq!(targets_over(0, &settings).base, BOTTOM, "an empty store begins at the bottom");
    }

    #[test]
    fn work_is_what_the_steps_from_the_base_down_move_for_each_byte() {
        let mut bytes = [0; LEVELS];
        (bytes[BOTTOM - 2], bytes[BOTTOM - 1], bytes[BOTTOM]) = (10 * MIB, 50 * MIB, 500 * MIB);
        assert_eq!(Targets { base: BOTTOM - 2, bytes }.work(), (1.0 + 5.0) + (1.0 + 10.0));
        assert_eq!(Targets { base: BOTTOM, bytes }.work(), 0.0, "nothing is below the base");
    }

    #[test]
    fn the_upper_levels_fill_the_fast_tier_and_leave_room_for_merging_level_0() {
        let data = 1500 * MIB;
        for fast in [280, 300, 400, 500] {
            let settings = settings(&[fast, 1 << 20]);
            let targets = targets_over(data, &settings);
            let batch = batch_bytes(&settings);
            let upper: u64 = targets.bytes[..BOTTOM].iter().sum();
            let room = settings.fast_table_bytes().unwrap();
            assert_eq!(upper + 2 * batch, room, "{fast} MiB");
            let factors = factors(&targets, &settings);
            assert!((factors[0] - 1.0).abs() < 0.01, "the base is as large as level 0");
            assert_eq!(targets.bytes[BOTTOM], data);
        }
        // Too small for the level above the bottom: that is not cut to a fraction for it.
        let small = targets_over(data, &settings(&[160, 1 << 20]));
        let large = targets_over(data, &settings(&[1 << 20, 1 << 20]));
        assert!(small.bytes[BOTTOM - 1] >= large.bytes[BOTTOM - 1] / 2);
    }
}
