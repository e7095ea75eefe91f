//! Leveled compaction: which tables to merge next (LevelDB; RocksDB's dynamic level sizes).
//!
//! Sizes are counted from the bottom: the deepest level holds most of the data, and each level
//! above is the same factor smaller, the last step being the one into level 0 as it is while writes
//! press ([`batch_bytes`]). The factor is `level_ratio` at most: 20 times such a level 0 at the
//! bottom makes one level between them and two steps of 4.5, not 10 and 2. Data enters at the
//! *base* level, the first below 0 that is used; an empty store has its base at the bottom.
//!
//! A level's score is its size over its target (level 0: tables over `level0_tables`); the highest
//! score above 1 is worked on. Within a level the table goes that overlaps least below, in bytes of
//! overlap per byte of its own.
//!
//! Merging level 0 rewrites all of the base level, so while there are writes it waits until it is a
//! share of the base ([`LAZY`]) or half of what slows writers down; once nothing is written,
//! `level0_tables` are enough, for the sake of scans. Levels below may meanwhile grow to
//! [`PRESSED_SCORE`] times their target. With several tiers neither is done: the upper levels are
//! to fit the fast one, whose room also decides the size of one of them. Where level 0 is that full
//! and cannot be merged down, because its way is taken, its newest tables are merged with each
//! other: one rewrite of little, for which writers and readers have fewer tables to wait for and to
//! ask. Once writing is over ([`Writing`]), levels of a store with a fast tier are brought below
//! their targets ([`CALM_SCORE`]), and a level 0 that is a share of the base is merged however few
//! tables it has, so that what comes next finds room.
//!
//! A pick is refused while it shares a table with a running compaction, or while its output could
//! overlap the output of one ([`Claim`]).

use crate::limits::LEVELS;
use crate::settings::Settings;
use crate::table_set::claims::Claim;
use crate::table_set::levels::{Levels, may_overlap};
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{Planted, planted};

const BOTTOM: usize = LEVELS - 1;

/// While there are writes level 0 is merged when it is one in so many of the base level's bytes.
const LAZY: u64 = 4;

/// Score at which a level below 0 is worked on while level 0 has work too.
const PRESSED_SCORE: f64 = 1.5;

/// Score at which a level below 0 is worked on at full speed. A merge of level 0 can double the
/// base.
const BEHIND_SCORE: f64 = 3.0;

/// Score to which levels are brought once writing is over and the fast tier is to take what
/// comes next: with levels that are nearly full, each flush would be followed by work for all of
/// them.
const CALM_SCORE: f64 = 0.75;

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

/// A compaction worth doing.
#[derive(Clone, Debug)]
pub(crate) struct Pick {
    pub level: usize,
    pub output_level: usize,
    pub upper: Vec<Arc<Table>>,
    pub lower: Vec<Arc<Table>>,
    pub claim: Claim,
}

impl Pick {
    /// All inputs with their levels.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        let upper = self.upper.iter().map(|table| (self.level, table));
        upper.chain(self.lower.iter().map(|table| (self.output_level, table)))
    }

    /// Input bytes.
    pub fn bytes(&self) -> u64 {
        self.inputs().map(|(_, table)| table.meta.bytes).sum()
    }

    /// Takes the inputs for this compaction.
    pub fn claim_tables(&self) {
        self.inputs().for_each(|(_, table)| table.claimed.store(true, Relaxed));
    }

    /// Gives them back.
    pub fn release_tables(&self) {
        self.inputs().for_each(|(_, table)| table.claimed.store(false, Relaxed));
    }
}

/// Tables that level 0 collects while writes press: half of what slows writers down.
fn batch_tables(settings: &Settings) -> u32 {
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

/// Compactions are behind: level 0 waits for a second merge, or a level is too large to let
/// it grow on.
pub(crate) fn have_fallen_behind(levels: &Levels, targets: &Targets, settings: &Settings) -> bool {
    let batch = if settings.is_tiered() { settings.level0_tables } else { batch_tables(settings) };
    let most = (2 * batch).min(settings.level0_slowdown / 4 * 3);
    levels.level(0).len() >= most as usize
        || (1..BOTTOM).any(|level| score(levels, level, targets) >= BEHIND_SCORE)
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

/// What writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Memory has records.
    GoesOn,
    /// Nothing has been written since the store was opened, bulk loads aside.
    NotBegun,
    /// All that was written is in tables.
    Over,
}

/// The most useful compaction that can start now.
pub(crate) fn pick(
    levels: &Levels,
    claims: &[Claim],
    settings: &Settings,
    writing: Writing,
) -> Option<Pick> {
    let targets = targets(levels, settings);
    let level0 = score_level0(levels, &targets, settings, writing);
    let pressed = level0.is_some() && writing == Writing::GoesOn && !settings.is_tiered();
    let least = match writing == Writing::Over && settings.is_tiered() {
        true => CALM_SCORE,
        false if pressed => PRESSED_SCORE,
        false => 1.0,
    };
    let deeper = (1..BOTTOM)
        .map(|level| (score(levels, level, &targets), level))
        .filter(|(score, _)| *score >= least);
    let mut scored: Vec<(f64, usize)> =
        level0.into_iter().map(|score| (score, 0)).chain(deeper).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().find_map(|(_, level)| {
        if level == 0 {
            return pick_level0(levels, claims, targets.base)
                .or_else(|| pick_newest(levels, settings));
        }
        pick_deeper(levels, claims, level, level + 1)
    })
}

/// The score of level 0 where it is worth merging.
fn score_level0(
    levels: &Levels,
    targets: &Targets,
    settings: &Settings,
    writing: Writing,
) -> Option<f64> {
    let free = levels.level(0).iter().filter(|table| !table.claimed.load(Relaxed));
    let (count, bytes) =
        free.fold((0, 0), |(count, bytes), table| (count + 1, bytes + table.meta.bytes));
    let is_share = bytes * LAZY >= levels.level_bytes(targets.base);
    let enough = writing != Writing::GoesOn || count >= batch_tables(settings) || is_share;
    // With the next flush it would be merged, and the base would overflow into what lies below.
    let is_left = writing == Writing::Over && settings.is_tiered() && is_share && count > 0;
    (enough && count >= settings.level0_tables || is_left)
        .then(|| f64::from(count) / f64::from(settings.level0_tables))
}

fn score(levels: &Levels, level: usize, targets: &Targets) -> f64 {
    let free = levels.level(level).iter().filter(|table| !table.claimed.load(Relaxed));
    let bytes: u64 = free.map(|table| table.meta.bytes).sum();
    match targets.bytes[level] {
        // A level that should be empty is drained, but nobody waits for it.
        0 if bytes > 0 => PRESSED_SCORE,
        0 => 0.0,
        target => bytes as f64 / target as f64,
    }
}

/// The newest tables of a level 0 that is half way to slowing writers down, into one that stays
/// there. Only tables as flushes make them: each byte is rewritten once by this.
fn pick_newest(levels: &Levels, settings: &Settings) -> Option<Pick> {
    let level0 = levels.level(0);
    if level0.len() < batch_tables(settings) as usize {
        return None;
    }
    let flushed = settings.division().memtable_bytes / 2 * 3;
    // Neighbours in the order of level 0, or what lies between would change places with them.
    let upper: Vec<_> = level0
        .iter()
        .take_while(|table| !table.claimed.load(Relaxed) && table.meta.bytes <= flushed)
        .cloned()
        .collect();
    if upper.len() < settings.level0_tables.max(2) as usize {
        return None;
    }
    let from = upper.iter().map(|table| &table.meta.smallest_key).min()?.clone();
    let to = upper.iter().map(|table| &table.meta.largest_key).max()?.clone();
    let claim = Claim { output_level: 0, from, to };
    Some(Pick { level: 0, output_level: 0, upper, lower: Vec::new(), claim })
}

/// All of level 0 into the base level. One at a time: two would both have to cover the same keys.
fn pick_level0(levels: &Levels, claims: &[Claim], base: usize) -> Option<Pick> {
    let mut upper = levels.level(0).to_vec();
    if planted(Planted::NewerSinksBelowOlder) {
        upper.truncate(1);
    }
    if upper.iter().any(|table| table.claimed.load(Relaxed)) {
        return None;
    }
    // Levels between 0 and the base that still hold tables must be passed on first, or newer
    // versions would sink below older ones.
    let output = (1..base).find(|level| !levels.level(*level).is_empty()).unwrap_or(base);
    complete(levels, claims, 0, output, upper)
}

fn pick_deeper(levels: &Levels, claims: &[Claim], level: usize, output: usize) -> Option<Pick> {
    let mut ranked: Vec<(u64, &Arc<Table>)> = levels
        .level(level)
        .iter()
        .filter(|table| !table.claimed.load(Relaxed))
        .map(|table| (overlap_per_mille(levels, output, table), table))
        .collect();
    ranked.sort_by_key(|(overlap, table)| (*overlap, table.meta.number));
    ranked
        .into_iter()
        .find_map(|(_, table)| complete(levels, claims, level, output, vec![Arc::clone(table)]))
}

/// Bytes below per thousand bytes of the table; tombstones count against it, since merging them
/// frees space.
fn overlap_per_mille(levels: &Levels, output: usize, table: &Table) -> u64 {
    let meta = &table.meta;
    let bytes = levels.overlapping_bytes(output, &meta.smallest_key, &meta.largest_key);
    let live = meta.entries.saturating_sub(meta.deletes).max(1);
    bytes.saturating_mul(1000) / meta.bytes.max(1) * live / meta.entries.max(1)
}

/// Adds what overlaps in the output level; none where something is taken.
fn complete(
    levels: &Levels,
    claims: &[Claim],
    level: usize,
    output: usize,
    upper: Vec<Arc<Table>>,
) -> Option<Pick> {
    let mut from = upper.iter().map(|table| &table.meta.smallest_key).min()?.clone();
    let mut to = upper.iter().map(|table| &table.meta.largest_key).max()?.clone();
    let lower = levels.overlapping(output, Some(&from), Some(&to));
    for table in &lower {
        from = from.min(table.meta.smallest_key.clone());
        to = to.max(table.meta.largest_key.clone());
    }
    let mut inputs = upper.iter().chain(&lower);
    if inputs.any(|table| table.claimed.load(Relaxed))
        || claims.iter().any(|claim| claim.conflicts(output, &from, &to))
    {
        return None;
    }
    let claim = Claim { output_level: output, from, to };
    Some(Pick { level, output_level: output, upper, lower, claim })
}

/// A compaction that brings some of `from..=to` from `level` to the next level in use, for
/// `compact_range`: all of level 0, or the first table of a deeper level behind the key `after`.
/// None if there is nothing left to bring, or nowhere deeper to bring it. `Err` while a running
/// compaction is in the way.
pub(crate) fn pick_range(
    levels: &Levels,
    claims: &[Claim],
    settings: &Settings,
    level: usize,
    (from, to): (Option<&[u8]>, Option<&[u8]>),
    after: Option<&[u8]>,
) -> Result<Option<Pick>, Busy> {
    let upper = if may_overlap(level) {
        // Taking one of them and leaving an older one that overlaps it would put the newer below.
        if levels.overlapping(level, from, to).is_empty() {
            return Ok(None);
        }
        levels.level(level).to_vec()
    } else {
        let tables = levels.overlapping(level, from, to);
        let next = tables.into_iter().find(|table| is_behind(table, after));
        next.into_iter().collect()
    };
    let deeper = (level + 1..LEVELS).find(|deeper| !levels.level(*deeper).is_empty());
    let base = may_overlap(level).then(|| targets(levels, settings).base);
    let Some(output) = deeper.or(base).filter(|_| !upper.is_empty()) else { return Ok(None) };
    complete(levels, claims, level, output, upper).map(Some).ok_or(Busy)
}

fn is_behind(table: &Table, after: Option<&[u8]>) -> bool {
    after.is_none_or(|after| table.meta.smallest_key.as_slice() > after)
}

/// Rewrites the first bottom table of `from..=to` behind the key `after` that holds tombstones. A
/// snapshot may need the tombstones, so a table can come out as it went in: the caller goes on
/// behind it.
pub(crate) fn pick_bottom(
    levels: &Levels,
    claims: &[Claim],
    from: Option<&[u8]>,
    to: Option<&[u8]>,
    after: Option<&[u8]>,
) -> Result<Option<Pick>, Busy> {
    let level = levels.deepest();
    if may_overlap(level) {
        return Ok(None);
    }
    let tables = levels.overlapping(level, from, to);
    let Some(table) =
        tables.into_iter().find(|table| table.meta.deletes > 0 && is_behind(table, after))
    else {
        return Ok(None);
    };
    let (from, to) = (table.meta.smallest_key.clone(), table.meta.largest_key.clone());
    if table.claimed.load(Relaxed) || claims.iter().any(|claim| claim.conflicts(level, &from, &to))
    {
        return Err(Busy);
    }
    let claim = Claim { output_level: level, from, to };
    Ok(Some(Pick { level, output_level: level, upper: vec![table], lower: Vec::new(), claim }))
}

/// A running compaction holds what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

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
        let small = targets_over(data, &settings(&[150, 1 << 20]));
        let large = targets_over(data, &settings(&[1 << 20, 1 << 20]));
        assert!(small.bytes[BOTTOM - 1] >= large.bytes[BOTTOM - 1] / 2);
    }
}
