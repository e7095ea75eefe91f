//! Levels on the fastest tier while it can take their writers, the others by room (Keigo, section
//! 4.2).
//!
//! ```text
//!   writers by level (load.rs) \
//!   useful writers (profile)    > Levels -> how many of the levels in use are on tier 0
//!   targets, room              /
//!   the others: ByLevel over the tiers below
//! ```
//! 1. A table of a level on tier 0 goes there while tables leave the logs their reserve; the others
//!    go there only where all tiers below are full.
//! 2. A new number holds for new tables at once. Those on the wrong side are moved, down as soon as
//!    there is room and up while tier 0 stays below [`PROMOTE_PERCENT`].
//! 3. Room that its levels leave on tier 0 stays free: what is put there brings its writers along.
//! 4. An opening goes on with the levels that it finds on tier 0. Were it to begin with the fewest,
//!    files would go down at each opening, and up again half a minute later.

use super::fitting_levels::{FastTier, Levels};
use super::{
    ByLevel, ByLevelSettings, FileInfo, PROMOTE_PERCENT, Placement, TierState, TierUse,
    first_with_room, levels_above, share,
};
use crate::context::{FileContext, FileKind, Origin};
use crate::tier::TierIndex;
use thermocline_foundation::sync::RwLock;
use thermocline_foundation::{ByteSize, FileNumber};

/// Seconds between two answers.
const ANSWER_PERIODS: u32 = 10;

/// What changes.
#[derive(Debug, Default)]
struct State {
    levels: Levels,
    /// `levels` follows from where tables lay when the policy was asked first.
    has_looked: bool,
    /// Seconds since the last answer.
    periods: u32,
    /// Bytes that the levels are meant to have, where that is known; 0 for a level out of use.
    targets: Vec<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct ByParallelism {
    room: ByLevelSettings,
    below: ByLevel,
    state: RwLock<State>,
}

impl ByParallelism {
    /// The policy with the levels on tier 0 that it finds there once it is told levels and tiers,
    /// and with as few as there may be until then.
    pub fn new(room: ByLevelSettings) -> Self {
        // There are no logs below, and no cache.
        let nothing = ByLevelSettings { log_reserve: ByteSize(0), ..ByLevelSettings::default() };
        Self { room, below: ByLevel::new(nothing), state: RwLock::default() }
    }

    fn is_on_fast(&self, kind: FileKind) -> bool {
        let FileKind::Table { level } = kind else { return true };
        let state = self.state.read();
        levels_above(&state.targets, level) < usize::from(state.levels.levels())
    }

    /// Goes on with the levels that lie on tier 0, the first time that targets are known.
    fn look_once(&self, tiers: &[TierState]) {
        let is_due = |state: &State| !state.has_looked && !state.targets.is_empty();
        if !is_due(&self.state.read()) {
            return;
        }
        let mut state = self.state.write();
        if is_due(&state) {
            state.has_looked = true;
            state.levels = Levels::found(levels_on_fast(&state.targets, tiers));
            self.share_targets(&state);
        }
    }

    /// Tier 0 takes `more_bytes` of tables beside those that it has.
    fn has_room(&self, fast: &TierState, more_bytes: u64) -> bool {
        let tables: u64 = fast.level_bytes.iter().sum();
        tables.saturating_add(more_bytes) <= self.room.table_bytes(fast.capacity_bytes)
    }

    /// Tells the policy for the tiers below what is left for them.
    fn share_targets(&self, state: &State) {
        let on_fast = usize::from(state.levels.levels());
        let left = state.targets.iter().enumerate().map(|(level, target)| {
            if levels_above(&state.targets, level as u8) < on_fast { 0 } else { *target }
        });
        self.below.set_level_targets(&left.collect::<Vec<_>>());
    }

    fn place_below(
        &self,
        context: FileContext,
        bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        let below = tiers.get(1..).filter(|below| !below.is_empty())?;
        Some(above(self.below.place(context, bytes, below)?))
    }

    /// The moves to and from tier 0, noted in `tiers`.
    fn moves_of_fast(
        &self,
        files: &[FileInfo],
        tiers: &mut [TierState],
    ) -> Vec<(FileNumber, TierIndex)> {
        let mut moves = Vec::new();
        for file in files {
            let at = file.tier.position();
            let to = match self.is_on_fast(file.kind) {
                true if at > 0 => {
                    let used = tiers[0].used_bytes.saturating_add(file.bytes);
                    let fits = used <= share(tiers[0].capacity_bytes, PROMOTE_PERCENT)
                        && self.has_room(&tiers[0], file.bytes);
                    fits.then_some(TierIndex(0))
                }
                false if at == 0 => {
                    let context = FileContext { kind: file.kind, origin: Origin::Migration };
                    self.place_below(context, file.bytes, tiers)
                }
                _ => None,
            };
            let Some(to) = to else { continue };
            tiers[at].remove(file.kind, file.bytes);
            tiers[to.position()].add(file.kind, file.bytes);
            moves.push((file.number, to));
        }
        moves
    }
}

/// Levels in use down to the last one of which at least a half lies on tier 0, and of those above
/// it, too. Level 0 and the next come and go.
fn levels_on_fast(targets: &[u64], tiers: &[TierState]) -> u8 {
    let bytes = |tier: &TierState, level| tier.level_bytes.get(level).copied().unwrap_or(0);
    let in_use = (0..targets.len()).filter(|level| *level == 0 || targets[*level] > 0);
    let mut found = 0;
    for (above, level) in in_use.enumerate() {
        let all: u64 = tiers.iter().map(|tier| bytes(tier, level)).sum();
        let fast = tiers.first().map_or(0, |fast| bytes(fast, level));
        if fast < all - fast {
            break;
        }
        if all > 0 {
            found = above as u8 + 1;
        }
    }
    found
}

/// A tier of those below, by its place among all.
fn above(tier: TierIndex) -> TierIndex {
    TierIndex(tier.0 + 1)
}

/// The published tables.
fn tables(files: &[FileInfo]) -> Vec<FileInfo> {
    let is_table = |file: &&FileInfo| matches!(file.kind, FileKind::Table { .. });
    files.iter().filter(|file| file.published).filter(is_table).copied().collect()
}

impl Placement for ByParallelism {
    fn name(&self) -> &'static str {
        "parallelism"
    }

    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        self.look_once(tiers);
        let is_table = matches!(context.kind, FileKind::Table { .. });
        let fits = |fast: &TierState| !is_table || self.has_room(fast, expected_bytes);
        if self.is_on_fast(context.kind) && tiers.first().is_some_and(fits) {
            return first_with_room(context.kind, 0, expected_bytes, tiers);
        }
        let below = self.place_below(context, expected_bytes, tiers);
        below.or_else(|| first_with_room(context.kind, 0, expected_bytes, tiers))
    }

    fn set_level_targets(&self, targets: &[u64]) {
        let mut state = self.state.write();
        state.targets = targets.to_vec();
        self.share_targets(&state);
    }

    fn measured(&self, fast_tier: TierUse, tiers: &[TierState]) {
        let Some(fast) = tiers.first() else { return };
        self.look_once(tiers);
        let mut state = self.state.write();
        state.periods = state.periods.saturating_add(fast_tier.periods);
        if state.periods < ANSWER_PERIODS {
            return;
        }
        state.periods = 0;
        let mut milliwriters = [0_u32; 8];
        for tier in tiers {
            let means = milliwriters.iter_mut().zip(tier.load.milliwriters);
            means.for_each(|(sum, mean)| *sum = sum.saturating_add(mean));
        }
        let known = FastTier {
            useful_writers: fast.profile.write.useful_workers(),
            milliwriters,
            table_bytes: self.room.table_bytes(fast.capacity_bytes),
        };
        let (from, targets) = (state.levels.levels(), state.targets.clone());
        state.levels.measured(&known, &targets);
        let to = state.levels.levels();
        if to != from {
            tracing::info!(from, to, ?known, "other levels go to the fast tier");
            self.share_targets(&state);
        }
    }

    fn fast_levels(&self) -> Option<u8> {
        Some(self.state.read().levels.levels())
    }

    fn misplaced(&self, files: &[FileInfo], tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        if self.state.read().targets.is_empty() {
            return Vec::new();
        }
        self.look_once(tiers);
        let (files, mut tiers) = (tables(files), tiers.to_vec());
        let mut moves = self.moves_of_fast(&files, &mut tiers);
        // Whatever has just been sent somewhere stays there.
        let is_below = |file: &&FileInfo| file.tier.position() > 0 && !self.is_on_fast(file.kind);
        let below = files.iter().filter(is_below);
        let below: Vec<_> =
            below.map(|file| FileInfo { tier: TierIndex(file.tier.0 - 1), ..*file }).collect();
        let further = self.below.misplaced(&below, &tiers[1..]);
        moves.extend(further.into_iter().map(|(number, to)| (number, above(to))));
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::TierLoad;
    use crate::profile::{Curve, Point, TierProfile};
    use std::sync::Arc;

    /// 1,000 bytes, and so many useful writers.
    fn tier(useful_writers: u16) -> TierState {
        let points = vec![Point { workers: useful_writers, bytes_per_s: 100 }];
        let profile = TierProfile { write: Curve::new(points), ..TierProfile::default() };
        TierState { capacity_bytes: 1000, profile: Arc::new(profile), ..TierState::default() }
    }

    /// 950 of 1,000 bytes are for tables, less 150 for logs.
    const ROOM: ByLevelSettings = ByLevelSettings {
        log_reserve: ByteSize(150),
        cache_reserve: ByteSize(0),
        cache_takes_rest: false,
    };

    fn policy(targets: &[u64]) -> ByParallelism {
        let policy = ByParallelism::new(ROOM);
        policy.set_level_targets(targets);
        policy
    }

    fn homes(policy: &ByParallelism, tiers: &[TierState]) -> Vec<u8> {
        let home = |level| {
            let kind = FileKind::Table { level };
            let context = FileContext { kind, origin: Origin::Flush };
            policy.place(context, 10, tiers).unwrap().0
        };
        (0..5).map(home).collect()
    }

    fn seconds(periods: u32) -> TierUse {
        TierUse { bytes_per_s: 0, peak_bytes_per_s: 100, periods }
    }

    /// Follows a script. Each line has the mean writers of levels 0, 1, 2 and 3 in thousandths (the
    /// log has one), how many measurements of how many seconds, and the levels on tier 0 after.
    fn follow(policy: &ByParallelism, fast: &TierState, script: &str) {
        for line in script.lines().map(str::trim) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [writers @ .., times, "x", span, "->", levels] = &words[..] else {
                panic!("a line of another form: {line}");
            };
            let mut load = TierLoad::default();
            load.milliwriters[0] = 1000;
            for (mean, writers) in load.milliwriters[1..].iter_mut().zip(writers) {
                *mean = writers.parse().unwrap();
            }
            // The log is on tier 0, and the levels are taken for those of the tier below.
            let mut tiers = [fast.clone(), tier(1)];
            tiers[1].load = load;
            for _ in 0..times.parse().unwrap() {
                policy.measured(seconds(span.parse().unwrap()), &tiers);
            }
            assert_eq!(policy.fast_levels().unwrap().to_string(), *levels, "after: {line}");
        }
    }

    #[test]
    fn levels_follow_their_writers_one_by_one_every_thirty_seconds() {
        let policy = policy(&[10, 10, 100, 300, 2000]);
        follow(
            &policy,
            &tier(4),
            "1000 500 500 1000 2 x 10 -> 2
             1000 500 500 1000 9 x 1 -> 2
             1000 500 500 1000 1 x 1 -> 3
             1000 500 500 1001 9 x 10 -> 3
             1000 500 500 1000 2 x 900 -> 3
             1000 500 500 1000 1 x 10 -> 4
             1000 500 501 1000 2 x 10 -> 4
             1000 500 500 1000 1 x 10 -> 4
             1000 500 501 1000 2 x 10 -> 4
             1000 500 501 1000 1 x 10 -> 3
             4000 4000 4000 0 9 x 10 -> 2",
        );
    }

    #[test]
    fn a_tier_without_a_profile_is_filled_by_room_alone() {
        let unknown = TierState { capacity_bytes: 1000, ..TierState::default() };
        let policy = policy(&[10, 10, 100, 300, 2000]);
        follow(&policy, &unknown, "9000 9000 9000 9000 60 x 10 -> 4");
        let tiers = [unknown, tier(1)];
        assert_eq!(homes(&policy, &tiers), [0, 0, 0, 0, 1]);
    }

    #[test]
    fn what_is_not_on_tier_0_lies_below_by_room_and_returns_only_where_all_is_full() {
        let policy = policy(&[10, 10, 100, 300, 2000]);
        let tiers = [tier(4), tier(4), tier(4)];
        assert_eq!(homes(&policy, &tiers), [0, 0, 1, 1, 1], "room is left for guests of level 4");
        let narrow = self::policy(&[10, 10, 100, 845, 2000]);
        assert_eq!(homes(&narrow, &tiers), [0, 0, 1, 1, 2]);
        let mut crowded = tiers.clone();
        crowded[0].add(FileKind::Table { level: 0 }, 800);
        assert_eq!(homes(&policy, &crowded)[0], 1, "the logs keep their reserve");
        let mut full = [tier(4), tier(4)];
        full[1].add(FileKind::Table { level: 3 }, 950);
        assert_eq!(homes(&policy, &full), [0; 5]);
        let log = FileContext { kind: FileKind::Log, origin: Origin::Foreground };
        assert_eq!(policy.place(log, 10, &tiers), Some(TierIndex(0)));
        assert_eq!(homes(&policy, &tiers[..1]), [0; 5], "there is no other tier");
    }

    #[test]
    fn a_level_that_goes_to_tier_0_leaves_its_room_below_to_the_next() {
        let policy = policy(&[10, 10, 945, 945, 2000]);
        let mut tiers = [tier(4), tier(4), tier(4)];
        tiers[0].capacity_bytes = 2000;
        assert_eq!(homes(&policy, &tiers), [0, 0, 1, 2, 2]);
        follow(&policy, &tiers[0], "0 0 0 3001 3 x 10 -> 3");
        assert_eq!(homes(&policy, &tiers), [0, 0, 0, 1, 2]);
    }

    #[test]
    fn an_opening_goes_on_with_the_levels_that_lie_on_tier_0() {
        // Bytes of levels 0 to 3 on tier 0 and below it, and the levels of tier 0 that follow.
        for (fast, below, levels) in [
            ([0, 0, 0, 0], [0, 0, 0, 0], 2),
            ([10, 10, 0, 0], [0, 0, 100, 300], 2),
            ([0, 0, 0, 0], [10, 10, 100, 300], 2),
            ([10, 10, 50, 0], [0, 0, 50, 300], 3),
            ([10, 10, 49, 300], [0, 0, 51, 0], 2),
            ([0, 10, 100, 300], [0, 0, 0, 0], 4),
            ([10, 0, 100, 0], [0, 0, 0, 300], 3),
            ([10, 0, 100, 300], [0, 10, 0, 0], 2),
            ([10, 10, 100, 200], [0, 0, 0, 100], 4),
        ] {
            let policy = policy(&[10, 10, 100, 300]);
            let mut tiers = [tier(4), tier(4)];
            for (tier, bytes) in tiers.iter_mut().zip([fast, below]) {
                for (level, bytes) in bytes.into_iter().enumerate() {
                    tier.add(FileKind::Table { level: level as u8 }, bytes);
                }
            }
            policy.misplaced(&[], &tiers);
            assert_eq!(policy.fast_levels(), Some(levels), "{fast:?} {below:?}");
            // What lies elsewhere later is what the policy is there to change.
            let none = [tier(4), tier(4)];
            assert_eq!(policy.misplaced(&[], &none), []);
            assert_eq!(policy.fast_levels(), Some(levels));
        }
        // Nothing is found before the levels are told.
        let untold = ByParallelism::new(ROOM);
        untold.misplaced(&[], &[tier(4), tier(4)]);
        untold.set_level_targets(&[10, 10, 100]);
        let mut fast = tier(4);
        fast.add(FileKind::Table { level: 2 }, 100);
        untold.misplaced(&[], &[fast, tier(4)]);
        assert_eq!(untold.fast_levels(), Some(3));
    }

    fn file(number: u64, level: u8, tier: u8) -> FileInfo {
        FileInfo {
            number: FileNumber(number),
            kind: FileKind::Table { level },
            tier: TierIndex(tier),
            bytes: 200,
            published: true,
        }
    }

    #[test]
    fn tables_on_the_wrong_side_move_and_then_stay() {
        let policy = policy(&[200, 200, 400, 0, 2000]);
        let mut files = [file(1, 2, 0), file(2, 0, 1), file(3, 4, 1), file(4, 1, 0)];
        let mut tiers = [tier(4), tier(4), tier(4)];
        tiers[2].capacity_bytes = 4000;
        files.iter().for_each(|file| tiers[file.tier.position()].add(file.kind, file.bytes));
        let moves = policy.misplaced(&files, &tiers);
        assert_eq!(moves, [(FileNumber(1), TierIndex(1)), (FileNumber(2), TierIndex(0))]);
        for (number, to) in moves {
            let file = &mut files[number.0 as usize - 1];
            tiers[file.tier.position()].remove(file.kind, file.bytes);
            tiers[to.position()].add(file.kind, file.bytes);
            file.tier = to;
        }
        assert_eq!(policy.misplaced(&files, &tiers), []);
        let untold = ByParallelism::new(ROOM);
        assert_eq!(untold.misplaced(&files, &tiers), [], "levels are not known yet");
        let unpublished = FileInfo { published: false, ..file(1, 2, 0) };
        assert_eq!(policy.misplaced(&[unpublished], &tiers), []);
    }
}
