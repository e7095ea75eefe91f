//! The upper levels on the fast tier, as many as a number says: a fixed one, or one that follows
//! the use of the tier's bandwidth (SpanDB, section 4.3 and its figure 8).
//!
//! None is the paper's "pure logging": the fast tier has logs and metadata alone. Levels count that
//! are in use: level 0, and those with a target. Where the targets begin at level 5 it is the
//! second.
//!
//! 1. A table of a level on the fast tier goes there while tables leave the logs their reserve.
//!    Every other table goes to the next tier, from there to slower ones, and to the fast one only
//!    where all of these are full.
//! 2. With a fixed number a table that lies on the wrong side is moved: down as soon as there is
//!    room, up while the fast tier stays below [`PROMOTE_PERCENT`]. A compaction that only changes
//!    a table's level would leave it where it is.
//! 3. With a number that changes only new tables follow, as in the paper. What has overflowed to
//!    the fast tier is not told from what was put there.

use super::by_bandwidth::{BandwidthSettings, Pointer, TierUse};
use super::{
    ByLevelSettings, FileInfo, PROMOTE_PERCENT, Placement, TierState, WATERMARK_PERCENT,
    first_with_room, levels_above, share,
};
use crate::context::{FileContext, FileKind};
use crate::tier::TierIndex;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::RwLock;

/// Share of the fast tier that is to be free, beside the logs' reserve, for a level more to go
/// there.
const FULL_SHARE: u64 = 50;

/// How many levels are on the fast tier.
#[derive(Debug)]
enum Levels {
    Fixed(u8),
    Pointed { pointer: RwLock<Pointer>, settings: BandwidthSettings },
}

/// See the module.
#[derive(Debug)]
pub struct TopLevels {
    room: ByLevelSettings,
    levels: Levels,
    /// Bytes that the levels are meant to have, where that is known; 0 for a level out of use.
    targets: RwLock<Vec<u64>>,
}

impl TopLevels {
    /// So many levels, always.
    pub fn fixed(levels: u8, room: ByLevelSettings) -> Self {
        Self::new(Levels::Fixed(levels), room)
    }

    /// As many as the tier's bandwidth allows.
    pub fn by_bandwidth(settings: BandwidthSettings, room: ByLevelSettings) -> Self {
        Self::new(Levels::Pointed { pointer: RwLock::default(), settings }, room)
    }

    fn new(levels: Levels, room: ByLevelSettings) -> Self {
        Self { room, levels, targets: RwLock::default() }
    }

    fn levels(&self) -> u8 {
        match &self.levels {
            Levels::Fixed(levels) => *levels,
            Levels::Pointed { pointer, .. } => pointer.read().levels(),
        }
    }

    fn is_on_fast(&self, kind: FileKind) -> bool {
        match kind {
            FileKind::Table { level } => {
                levels_above(&self.targets.read(), level) < usize::from(self.levels())
            }
            _ => true,
        }
    }

    /// The fast tier takes `more_bytes` of tables beside those that it has.
    fn has_room(&self, fast: &TierState, more_bytes: u64) -> bool {
        let tables: u64 = fast.level_bytes.iter().sum();
        tables.saturating_add(more_bytes) <= self.room.table_bytes(fast.capacity_bytes)
    }
}

impl Placement for TopLevels {
    fn name(&self) -> &'static str {
        match self.levels {
            Levels::Fixed(0) => "log_only",
            Levels::Fixed(_) => "top_levels",
            Levels::Pointed { .. } => "bandwidth",
        }
    }

    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        let is_table = matches!(context.kind, FileKind::Table { .. });
        let fits = |fast: &TierState| !is_table || self.has_room(fast, expected_bytes);
        let on_fast = self.is_on_fast(context.kind) && tiers.first().is_some_and(fits);
        let home = usize::from(!on_fast && tiers.len() > 1);
        first_with_room(context.kind, home, expected_bytes, tiers)
    }

    fn set_level_targets(&self, targets: &[u64]) {
        *self.targets.write() = targets.to_vec();
    }

    fn measured(&self, fast_tier: TierUse, tiers: &[TierState]) {
        let Levels::Pointed { pointer, settings } = &self.levels else { return };
        let full_at = |fast: &TierState| !self.has_room(fast, fast.capacity_bytes / FULL_SHARE);
        let is_full = tiers.first().is_none_or(full_at);
        let mut pointer = pointer.write();
        let after = pointer.after(fast_tier, is_full, settings);
        if after.levels() != pointer.levels() {
            let (from, to) = (pointer.levels(), after.levels());
            tracing::info!(from, to, ?fast_tier, "other levels go to the fast tier");
        }
        *pointer = after;
    }

    fn fast_levels(&self) -> Option<u8> {
        Some(self.levels())
    }

    fn misplaced(&self, files: &[FileInfo], tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        if !matches!(self.levels, Levels::Fixed(_)) {
            return Vec::new();
        }
        let mut tiers = tiers.to_vec();
        let mut moves = Vec::new();
        let tables = files.iter().filter(|file| matches!(file.kind, FileKind::Table { .. }));
        for file in tables.filter(|file| file.published) {
            let at = file.tier.position();
            let takes = |to: usize, percent| {
                let used = tiers[to].used_bytes.saturating_add(file.bytes);
                !tiers[to].is_refused && used <= share(tiers[to].capacity_bytes, percent)
            };
            let to = match self.is_on_fast(file.kind) {
                true if at > 0 => {
                    (takes(0, PROMOTE_PERCENT) && self.has_room(&tiers[0], file.bytes)).then_some(0)
                }
                false if at == 0 => (1..tiers.len()).find(|to| takes(*to, WATERMARK_PERCENT)),
                _ => None,
            };
            let Some(to) = to else { continue };
            tiers[at].remove(file.kind, file.bytes);
            tiers[to].add(file.kind, file.bytes);
            moves.push((file.number, TierIndex(to as u8)));
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Origin;
    use thermocline_foundation::ByteSize;

    /// A tier of so many bytes, of which tables have some.
    fn tier(capacity_bytes: u64, table_bytes: u64) -> TierState {
        let mut tier = TierState { capacity_bytes, ..TierState::default() };
        tier.add(FileKind::Table { level: 0 }, table_bytes);
        tier
    }

    /// 950 of 1,000 bytes are for tables, less 150 for logs.
    const ROOM: ByLevelSettings = ByLevelSettings {
        log_reserve: ByteSize(150),
        cache_reserve: ByteSize(0),
        cache_takes_rest: false,
    };

    fn place(policy: &TopLevels, kind: FileKind, tiers: &[TierState]) -> Option<u8> {
        let context = FileContext { kind, origin: Origin::Flush };
        policy.place(context, 10, tiers).map(|tier| tier.0)
    }

    fn homes(policy: &TopLevels, tiers: &[TierState]) -> Vec<Option<u8>> {
        (0..4).map(|level| place(policy, FileKind::Table { level }, tiers)).collect()
    }

    #[test]
    fn a_fixed_number_of_levels_is_on_the_fast_tier_and_logs_always_are() {
        let tiers = [tier(1000, 0), tier(1000, 0), tier(1000, 0)];
        let fixed = |levels| TopLevels::fixed(levels, ROOM);
        assert_eq!(homes(&fixed(0), &tiers), [Some(1); 4]);
        assert_eq!(homes(&fixed(2), &tiers), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(homes(&fixed(0), &tiers[..1]), [Some(0); 4], "there is no other tier");
        for kind in [FileKind::Log, FileKind::Manifest, FileKind::Map] {
            assert_eq!(place(&fixed(0), kind, &tiers), Some(0));
        }
        let names = [0, 1, 7].map(|levels| fixed(levels).name());
        assert_eq!(names, ["log_only", "top_levels", "top_levels"]);
    }

    #[test]
    fn levels_count_that_are_in_use() {
        let tiers = [tier(1000, 0), tier(1000, 0)];
        let fixed = TopLevels::fixed(2, ROOM);
        let homes = |targets: &[u64]| {
            fixed.set_level_targets(targets);
            let home = |level| place(&fixed, FileKind::Table { level }, &tiers).unwrap();
            (0..7).map(home).collect::<Vec<_>>()
        };
        assert_eq!(homes(&[]), [0, 0, 1, 1, 1, 1, 1], "as they are numbered");
        assert_eq!(homes(&[10, 0, 0, 0, 0, 0, 90])[6], 0);
        assert_eq!(homes(&[10, 0, 0, 0, 0, 30, 90])[5..], [0, 1]);
        assert_eq!(
            homes(&[10, 0, 0, 5, 0, 30, 90])[3..],
            [0, 1, 1, 1],
            "a level that is being left"
        );
    }

    #[test]
    fn tables_leave_the_logs_their_room_and_overflow_downwards_first() {
        let fixed = TopLevels::fixed(2, ROOM);
        let below = tier(1000, 0);
        assert_eq!(homes(&fixed, &[tier(1000, 790), below.clone()])[..2], [Some(0), Some(0)]);
        assert_eq!(homes(&fixed, &[tier(1000, 791), below.clone()])[..2], [Some(1), Some(1)]);
        let (full, none) = (tier(1000, 945), TopLevels::fixed(0, ROOM));
        assert_eq!(
            place(&none, FileKind::Table { level: 3 }, &[below.clone(), full.clone(), below]),
            Some(2)
        );
        let last_resort = [tier(1000, 0), full.clone(), full.clone()];
        assert_eq!(place(&none, FileKind::Table { level: 3 }, &last_resort), Some(0));
        let all_full = [full.clone(), full.clone(), full];
        assert_eq!(place(&none, FileKind::Table { level: 3 }, &all_full), None);
    }

    fn file(number: u64, level: u8, tier: u8) -> FileInfo {
        FileInfo {
            number: FileNumber(number),
            kind: FileKind::Table { level },
            tier: TierIndex(tier),
            bytes: 300,
            published: true,
        }
    }

    #[test]
    fn tables_on_the_wrong_side_of_a_fixed_number_move_and_stay() {
        let fixed = TopLevels::fixed(1, ROOM);
        let mut files = [file(1, 1, 0), file(2, 0, 1), file(3, 0, 0), file(4, 2, 1)];
        let (fast, slow) = (TierIndex(0), TierIndex(1));
        let mut tiers = [tier(1000, 0), tier(1000, 0)];
        files.iter().for_each(|file| tiers[file.tier.position()].add(file.kind, file.bytes));
        let moves = fixed.misplaced(&files, &tiers);
        assert_eq!(moves, [(FileNumber(1), slow), (FileNumber(2), fast)]);
        (files[0].tier, files[1].tier) = (slow, fast);
        assert_eq!(fixed.misplaced(&files, &tiers), []);
        let crowded = [tier(1000, 600), tier(1000, 700)];
        assert_eq!(fixed.misplaced(&[file(1, 1, 0)], &crowded), [], "no room below");
        assert_eq!(fixed.misplaced(&[file(2, 0, 1)], &crowded), [], "nor here");
        assert_eq!(fixed.worth_fetching(&files, &tiers), []);
    }

    fn used(percent: u64, periods: u32) -> TierUse {
        TierUse { bytes_per_s: percent, peak_bytes_per_s: 100, periods }
    }

    #[test]
    fn new_tables_follow_the_use_of_the_fast_tier_and_old_ones_stay() {
        let policy = TopLevels::by_bandwidth(BandwidthSettings::default(), ROOM);
        let tiers = [tier(1000, 600), tier(1000, 0)];
        assert_eq!(policy.fast_levels(), Some(1), "to begin with");
        policy.measured(used(20, 3), &tiers);
        assert_eq!(homes(&policy, &tiers), [Some(0), Some(0), Some(1), Some(1)]);
        policy.measured(used(90, 6), &tiers);
        assert_eq!(homes(&policy, &tiers), [Some(1); 4]);
        assert_eq!(policy.misplaced(&[file(1, 0, 0), file(2, 3, 1)], &tiers), []);
        policy.measured(used(20, 6), &[tier(1000, 790), tier(1000, 0)]);
        assert_eq!(policy.fast_levels(), Some(0), "a full tier takes no level more");
        let fixed = TopLevels::fixed(1, ROOM);
        fixed.measured(used(90, 6), &tiers);
        assert_eq!(fixed.fast_levels(), Some(1));
    }
}
