//! Upper levels on fast tiers, lower levels on slow ones (Keigo, section 4.4; SpanDB, section 4.3;
//! MyNVM).
//!
//! Upper levels are small, are rewritten most and hold what was written last. The policy gives tier
//! 0 the levels 0..k whose targets together fit it, after a reserve for logs; tier 1 the next ones
//! that fit; and so on. The last tier takes the rest. The room that a tier has left over takes
//! tables of the first level below its own.
//!
//! 1. Guests (tables of levels below) never take room that the tier's own levels are meant to fill,
//!    nor do deeper guests keep out those of the level just below.
//! 2. A full tier passes new files on to the next slower one with room, then to a faster one.
//! 3. Moves: a table on a tier slower than its level's goes up while the tier stays below
//!    [`PROMOTE_PERCENT`]; a guest goes down when its host's own levels leave it no room.
//! 4. Guests are placed when they are made, and fetched only while nothing else is to be done:
//!    after a load the room that its backlog took would stay empty otherwise. Fetching leaves a
//!    margin, so that a small change of the levels sends no guest back.

use super::{
    FileInfo, PROMOTE_PERCENT, Placement, TierState, WATERMARK_PERCENT, first_with_room, share,
};
use crate::context::{FileContext, FileKind};
use crate::tier::TierIndex;
use thermocline_foundation::sync::RwLock;
use thermocline_foundation::{ByteSize, FileNumber};

/// The reserve takes at most this share of tier 0, so that small tiers hold tables too: the 5/32
/// that all logs take, and journals.
const RESERVE_PERCENT_MAX: u64 = 19;

/// Share of what tables may take of a tier, in percent, that fetching guests leaves free.
const FETCH_MARGIN_PERCENT: u64 = 5;

/// Settings of [`ByLevel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByLevelSettings {
    /// Bytes of tier 0 that are left for logs when levels are handed out; at most 19 % of the tier.
    /// Default 256 MiB: four logs of 64 MiB.
    pub log_reserve: ByteSize,
    /// Bytes of tier 0 that are left for a cache of blocks; half of what logs leave at most.
    /// Default 0.
    pub cache_reserve: ByteSize,
    /// What the levels of tier 0 leave is a cache's: tables of deeper levels are no guests there.
    /// Default false.
    pub cache_takes_rest: bool,
}

impl ByLevelSettings {
    /// Bytes that tables may take of a tier 0 of so many.
    pub fn table_bytes(&self, capacity_bytes: u64) -> u64 {
        let most = share(capacity_bytes, RESERVE_PERCENT_MAX);
        let logs = self.log_reserve.0.min(most);
        let left = share(capacity_bytes, WATERMARK_PERCENT).saturating_sub(logs);
        left - self.cache_reserve.0.min(left / 2)
    }
}

impl Default for ByLevelSettings {
    fn default() -> Self {
        Self {
            log_reserve: ByteSize::mib(256),
            cache_reserve: ByteSize(0),
            cache_takes_rest: false,
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct ByLevel {
    settings: ByLevelSettings,
    targets: RwLock<Vec<u64>>,
}

/// The levels of each tier under the targets of the moment.
struct Plan {
    /// The tier of each level.
    homes: Vec<usize>,
    /// Bytes of each tier that tables may take.
    budgets: Vec<u64>,
    /// Of these, bytes that the tier's own levels are meant to take.
    own_bytes: Vec<u64>,
    /// The first tier that takes guests.
    first_host: usize,
}

impl Plan {
    fn new(settings: &ByLevelSettings, targets: &[u64], tiers: &[TierState]) -> Self {
        let mut budgets: Vec<u64> =
            tiers.iter().map(|tier| share(tier.capacity_bytes, WATERMARK_PERCENT)).collect();
        if let (Some(budget), Some(tier)) = (budgets.first_mut(), tiers.first()) {
            *budget = settings.table_bytes(tier.capacity_bytes);
        }
        let mut own_bytes = vec![0u64; tiers.len()];
        let mut homes = Vec::with_capacity(targets.len());
        let mut tier = 0;
        for (level, target) in targets.iter().enumerate() {
            let fits = |tier: usize| own_bytes[tier].saturating_add(*target) <= budgets[tier];
            // Level 0 is where flushes wait for the device: it is on tier 0 even where it does not
            // fit whole.
            while level > 0 && tier + 1 < tiers.len() && !fits(tier) {
                tier += 1;
            }
            own_bytes[tier] = own_bytes[tier].saturating_add(*target);
            homes.push(tier);
        }
        let first_host = usize::from(settings.cache_takes_rest);
        Self { homes, budgets, own_bytes, first_host }
    }

    /// The tier of a level. Levels without a target follow the deepest that has one; without any,
    /// all are on tier 0 and overflow from there.
    fn home(&self, level: u8) -> usize {
        let known = self.homes.get(usize::from(level)).or(self.homes.last());
        known.copied().unwrap_or(0)
    }

    /// Bytes of tables on `tier` whose level belongs to a slower tier, down to level `deepest`.
    fn guest_bytes(&self, tier: usize, state: &TierState, deepest: u8) -> u64 {
        let levels = state.level_bytes.iter().enumerate().take(usize::from(deepest) + 1);
        levels.filter(|(level, _)| self.home(*level as u8) > tier).map(|(_, bytes)| bytes).sum()
    }

    /// What the own levels of `tier` take or are meant to take, whichever is more.
    fn claimed_bytes(&self, tier: usize, state: &TierState) -> u64 {
        let levels = state.level_bytes.iter().enumerate();
        let own: u64 = levels
            .filter(|(level, _)| self.home(*level as u8) <= tier)
            .map(|(_, bytes)| bytes)
            .sum();
        own.max(self.own_bytes[tier])
    }

    /// The tier that would take a table of `level` as a guest: the one before its own, if the level
    /// is the first below that tier's levels.
    fn host(&self, level: u8) -> Option<usize> {
        let home = self.home(level);
        let above = level.checked_sub(1).map(|above| self.home(above))?;
        (above < home).then(|| home - 1).filter(|host| *host >= self.first_host)
    }

    /// Guests of `tier` down to level `deepest`, `more_bytes` included, fit beside its own levels.
    fn guests_fit(&self, tier: usize, state: &TierState, deepest: u8, more_bytes: u64) -> bool {
        let guests = self.guest_bytes(tier, state, deepest).saturating_add(more_bytes);
        if tier < self.first_host && guests > 0 {
            return false;
        }
        self.claimed_bytes(tier, state).saturating_add(guests) <= self.budgets[tier]
    }
}

impl ByLevel {
    /// The policy without targets: everything on tier 0 until they are set.
    pub fn new(settings: ByLevelSettings) -> Self {
        Self { settings, targets: RwLock::default() }
    }

    fn plan(&self, tiers: &[TierState]) -> Plan {
        Plan::new(&self.settings, &self.targets.read(), tiers)
    }

    /// The tier of each level that has a target, for people to see.
    pub fn levels(&self, tiers: &[TierState]) -> Vec<TierIndex> {
        self.plan(tiers).homes.into_iter().map(|tier| TierIndex(tier as u8)).collect()
    }
}

impl Placement for ByLevel {
    fn name(&self) -> &'static str {
        "by-level"
    }

    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        let home = match context.kind {
            FileKind::Log
            | FileKind::Manifest
            | FileKind::Map
            | FileKind::Slab
            | FileKind::TableIndex
            | FileKind::BlockCache => 0,
            FileKind::Table { level } => {
                let plan = self.plan(tiers);
                let host = plan.host(level);
                let fits =
                    |host: &usize| plan.guests_fit(*host, &tiers[*host], level, expected_bytes);
                let host = host.filter(fits);
                host.unwrap_or_else(|| plan.home(level))
            }
        };
        first_with_room(context.kind, home, expected_bytes, tiers)
    }

    fn set_level_targets(&self, targets: &[u64]) {
        *self.targets.write() = targets.to_vec();
    }

    fn misplaced(&self, files: &[FileInfo], tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        if self.targets.read().is_empty() {
            return Vec::new();
        }
        let plan = self.plan(tiers);
        let mut tiers = tiers.to_vec();
        let mut moves = Vec::new();
        let tables =
            files.iter().filter(|file| file.published).filter_map(|file| match file.kind {
                FileKind::Table { level } => Some((level, file)),
                _ => None,
            });
        let mut tables: Vec<_> = tables.collect();
        // Deepest first: guests leave before the levels that need their room move in.
        tables.sort_by_key(|(level, file)| (std::cmp::Reverse(*level), file.number));
        for (level, file) in tables {
            let (home, at) = (plan.home(level), file.tier.position());
            let percent = match at {
                at if at > home => PROMOTE_PERCENT,
                // A guest of its host stays while it fits, and so does what overflowed upwards:
                // only a tier whose own levels are short of room sends tables down.
                at if at < home && !plan.guests_fit(at, &tiers[at], u8::MAX, 0) => {
                    WATERMARK_PERCENT
                }
                _ => continue,
            };
            let room = share(tiers[home].capacity_bytes, percent);
            let bytes = tiers[home].used_bytes.saturating_add(file.bytes);
            if tiers[home].is_refused || bytes > room {
                continue;
            }
            tiers[at].remove(file.kind, file.bytes);
            tiers[home].add(file.kind, file.bytes);
            moves.push((file.number, TierIndex(home as u8)));
        }
        moves
    }

    fn claimed_bytes(&self, tiers: &[TierState]) -> u64 {
        tiers.first().map_or(0, |tier| self.plan(tiers).claimed_bytes(0, tier))
    }

    fn worth_fetching(
        &self,
        files: &[FileInfo],
        tiers: &[TierState],
    ) -> Vec<(FileNumber, TierIndex)> {
        if self.targets.read().is_empty() {
            return Vec::new();
        }
        let plan = self.plan(tiers);
        let mut tiers = tiers.to_vec();
        let published = files.iter().filter(|file| file.published);
        let mut tables: Vec<_> = published
            .filter_map(|file| match file.kind {
                FileKind::Table { level } => Some((level, file)),
                _ => None,
            })
            .collect();
        // Upper levels first, which hold what was written last; of a level the newest, which
        // compactions will leave alone for the longest.
        tables.sort_by_key(|(level, file)| (*level, std::cmp::Reverse(file.number)));
        let mut moves = Vec::new();
        for (level, file) in tables {
            let (home, at) = (plan.home(level), file.tier.position());
            let Some(host) = home.checked_sub(1).filter(|host| *host < at && at == home) else {
                continue;
            };
            let margin = share(plan.budgets[host], FETCH_MARGIN_PERCENT);
            let more = file.bytes.saturating_add(margin);
            let room = share(tiers[host].capacity_bytes, PROMOTE_PERCENT);
            if !tiers[host].is_refused
                && plan.guests_fit(host, &tiers[host], u8::MAX, more)
                && tiers[host].used_bytes.saturating_add(file.bytes) <= room
            {
                tiers[at].remove(file.kind, file.bytes);
                tiers[host].add(file.kind, file.bytes);
                moves.push((file.number, TierIndex(host as u8)));
            }
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Origin;

    const GB: u64 = 1_000_000_000;

    fn tiers(capacities: &[u64]) -> Vec<TierState> {
        let state = |gb: &u64| TierState { capacity_bytes: gb * GB, ..TierState::default() };
        capacities.iter().map(state).collect()
    }

    fn policy(targets: &[u64]) -> ByLevel {
        let policy = ByLevel::default();
        policy.set_level_targets(&targets.iter().map(|gb| gb * GB).collect::<Vec<_>>());
        policy
    }

    fn table(level: u8) -> FileContext {
        FileContext { kind: FileKind::Table { level }, origin: Origin::Flush }
    }

    fn place(policy: &ByLevel, level: u8, gb: u64, tiers: &[TierState]) -> Option<u8> {
        policy.place(table(level), gb * GB, tiers).map(|tier| tier.0)
    }

    #[test]
    fn levels_go_to_the_fastest_tier_whose_targets_fit() {
        let policy = policy(&[1, 2, 20, 200]);
        let homes = |capacities: &[u64]| {
            policy.levels(&tiers(capacities)).into_iter().map(|tier| tier.0).collect::<Vec<_>>()
        };
        assert_eq!(homes(&[10, 100, 1000]), [0, 0, 1, 2]);
        assert_eq!(homes(&[10, 1000]), [0, 0, 1, 1]);
        assert_eq!(homes(&[1000, 1000]), [0, 0, 0, 0]);
        assert_eq!(homes(&[1, 10]), [0, 1, 1, 1], "level 0 stays on tier 0");
        assert_eq!(homes(&[10]), [0, 0, 0, 0]);
    }

    #[test]
    fn room_left_over_takes_the_next_level_only() {
        let policy = policy(&[1, 2, 20, 200]);
        let mut tiers = tiers(&[10, 1000]);
        assert_eq!(place(&policy, 2, 1, &tiers), Some(0), "10 GB less levels 0 and 1 leave room");
        assert_eq!(place(&policy, 3, 1, &tiers), Some(1));
        tiers[0].add(FileKind::Table { level: 2 }, 6 * GB);
        assert_eq!(place(&policy, 2, 1, &tiers), Some(1), "the rest is kept for levels 0 and 1");
        assert_eq!(place(&policy, 1, 1, &tiers), Some(0));
    }

    #[test]
    fn where_a_cache_takes_the_rest_there_are_no_guests_and_those_there_are_leave() {
        let settings = ByLevelSettings { cache_takes_rest: true, ..ByLevelSettings::default() };
        let policy = ByLevel::new(settings);
        policy.set_level_targets(&[1, 2, 20, 200].map(|gb| gb * GB));
        let mut tiers = tiers(&[10, 100, 1000]);
        assert_eq!(place(&policy, 2, 1, &tiers), Some(1), "its own tier");
        assert_eq!(place(&policy, 3, 1, &tiers), Some(1), "slower tiers have guests");
        assert_eq!(policy.claimed_bytes(&tiers), 3 * GB);
        let files: Vec<FileInfo> = on(0, 1, 0..5).chain(on(0, 2, 5..6)).collect();
        files.iter().for_each(|file| tiers[0].add(file.kind, file.bytes));
        assert_eq!(policy.claimed_bytes(&tiers), 5 * GB, "what its levels have, if that is more");
        assert_eq!(policy.misplaced(&files, &tiers), [(FileNumber(5), TierIndex(1))]);
        assert_eq!(policy.worth_fetching(&on(1, 2, 0..3).collect::<Vec<_>>(), &tiers), []);
    }

    fn on(tier: u8, level: u8, numbers: std::ops::Range<u64>) -> impl Iterator<Item = FileInfo> {
        numbers.map(move |number| FileInfo {
            number: FileNumber(number),
            kind: FileKind::Table { level },
            tier: TierIndex(tier),
            bytes: GB,
            published: true,
        })
    }

    #[test]
    fn room_that_a_load_left_empty_is_filled_with_guests_which_then_stay() {
        let policy = policy(&[1, 2, 20, 200]);
        let mut tiers = tiers(&[10, 1000]);
        let mut files: Vec<FileInfo> = on(1, 2, 0..3).chain(on(1, 3, 3..100)).collect();
        files.iter().for_each(|file| tiers[1].add(file.kind, file.bytes));
        assert_eq!(policy.misplaced(&files, &tiers), [], "nothing is fetched while there is work");
        // 9.25 GB for tables, of which 3 are kept for levels 0 and 1.
        let moves = policy.worth_fetching(&files, &tiers);
        let numbers: Vec<u64> = moves.iter().map(|(number, _)| number.0).collect();
        assert_eq!(numbers, [2, 1, 0, 99, 98], "all of level 2, then the newest of level 3");
        for (number, to) in moves {
            let file = &mut files[number.0 as usize];
            tiers[1].remove(file.kind, file.bytes);
            tiers[to.position()].add(file.kind, file.bytes);
            file.tier = to;
        }
        assert_eq!(policy.worth_fetching(&files, &tiers), []);
        assert_eq!(policy.misplaced(&files, &tiers), [], "what was fetched stays");
        // A new table of level 2 comes in place of guests from deeper down.
        assert_eq!(place(&policy, 2, 2, &tiers), Some(0));
        tiers[0].add(FileKind::Table { level: 2 }, 2 * GB);
        assert_eq!(policy.misplaced(&files, &tiers), [(FileNumber(98), TierIndex(1))]);
    }

    #[test]
    fn full_tiers_overflow_to_slower_then_faster_ones() {
        let policy = policy(&[1, 2, 20]);
        let mut tiers = tiers(&[10, 10, 10]);
        tiers[1].add(FileKind::Table { level: 1 }, 9_500_000_000);
        tiers[0].add(FileKind::Table { level: 0 }, 9_500_000_000);
        assert_eq!(place(&policy, 0, 1, &tiers), Some(2));
        tiers[2].add(FileKind::Table { level: 2 }, 9_500_000_000);
        assert_eq!(place(&policy, 0, 1, &tiers), None);
        let log = FileContext { kind: FileKind::Log, origin: Origin::Foreground };
        assert_eq!(policy.place(log, GB / 4, &tiers), Some(TierIndex(0)), "logs have a reserve");
        tiers[0].remove(FileKind::Table { level: 0 }, 5 * GB);
        assert_eq!(
            place(&policy, 2, 1, &tiers),
            Some(0),
            "a faster tier when slower ones are full"
        );
    }

    #[test]
    fn moves_are_made_once_and_do_not_come_back() {
        let policy = policy(&[1, 2, 20, 200]);
        let mut tiers = tiers(&[10, 1000]);
        let mut random = thermocline_foundation::random::Random::new(7);
        let mut files: Vec<FileInfo> = (0..60)
            .map(|number| FileInfo {
                number: FileNumber(number),
                kind: FileKind::Table { level: random.below(4) as u8 },
                tier: TierIndex(random.below(2) as u8),
                bytes: 200_000_000,
                published: true,
            })
            .collect();
        files.iter().for_each(|file| tiers[file.tier.position()].add(file.kind, file.bytes));
        let moves = policy.misplaced(&files, &tiers);
        assert!(!moves.is_empty());
        for (number, to) in moves {
            let file = &mut files[number.0 as usize];
            assert_ne!(file.tier, to);
            tiers[file.tier.position()].remove(file.kind, file.bytes);
            tiers[to.position()].add(file.kind, file.bytes);
            file.tier = to;
        }
        assert_eq!(policy.misplaced(&files, &tiers), []);
        assert!(tiers[0].used_bytes <= share(tiers[0].capacity_bytes, WATERMARK_PERCENT));
    }
}
