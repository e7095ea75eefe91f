//! Leveled compaction: which tables to merge next (LevelDB; RocksDB's dynamic level sizes).
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
//! A selection is refused while it shares a table with a running compaction, or while its output
//! could overlap the output of one ([`Claims`](crate::table_set::claims::Claims)).

use crate::compaction::selection::Selection;
use crate::compaction::targets::{BOTTOM, Targets, batch_tables, targets};
use crate::compaction::view::{View, Writing};
use crate::limits::LEVELS;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::{Levels, may_overlap};
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::{Planted, planted};

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

/// Compactions are behind: level 0 waits for a second merge, or a level is too large to let
/// it grow on.
pub(crate) fn have_fallen_behind(view: &View<'_>, targets: &Targets) -> bool {
    let View { levels, settings, .. } = *view;
    let batch = if settings.is_tiered() { settings.level0_tables } else { batch_tables(settings) };
    let most = (2 * batch).min(settings.level0_slowdown / 4 * 3);
    levels.level(0).len() >= most as usize
        || (1..BOTTOM).any(|level| score(view, level, targets) >= BEHIND_SCORE)
}

/// The most useful compaction that can start now.
pub(crate) fn choose(view: &View<'_>) -> Option<Selection> {
    let View { levels, settings, writing, .. } = *view;
    let targets = targets(levels, settings);
    let level0 = score_level0(view, &targets);
    let pressed = level0.is_some() && writing == Writing::GoesOn && !settings.is_tiered();
    let least = match writing == Writing::Over && settings.is_tiered() {
        true => CALM_SCORE,
        false if pressed => PRESSED_SCORE,
        false => 1.0,
    };
    let deeper = (1..BOTTOM)
        .map(|level| (score(view, level, &targets), level))
        .filter(|(score, _)| *score >= least);
    let mut scored: Vec<(f64, usize)> =
        level0.into_iter().map(|score| (score, 0)).chain(deeper).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().find_map(|(_, level)| {
        if level == 0 {
            return choose_level0(view, targets.base).or_else(|| choose_newest(view));
        }
        choose_deeper(view, level, level + 1)
    })
}

/// The score of level 0 where it is worth merging.
fn score_level0(view: &View<'_>, targets: &Targets) -> Option<f64> {
    let View { levels, settings, writing, .. } = *view;
    let free = levels.level(0).iter().filter(|table| view.is_free(table));
    let (count, bytes) =
        free.fold((0, 0), |(count, bytes), table| (count + 1, bytes + table.meta.bytes));
    let is_share = bytes * LAZY >= levels.level_bytes(targets.base);
    let enough = writing != Writing::GoesOn || count >= batch_tables(settings) || is_share;
    // With the next flush it would be merged, and the base would overflow into what lies below.
    let is_left = writing == Writing::Over && settings.is_tiered() && is_share && count > 0;
    (enough && count >= settings.level0_tables || is_left)
        .then(|| f64::from(count) / f64::from(settings.level0_tables))
}

fn score(view: &View<'_>, level: usize, targets: &Targets) -> f64 {
    let free = view.levels.level(level).iter().filter(|table| view.is_free(table));
    score_of(free.map(|table| table.meta.bytes).sum(), level, targets)
}

/// The score of a level of which so many bytes are free.
fn score_of(bytes: u64, level: usize, targets: &Targets) -> f64 {
    match targets.bytes[level] {
        // A level that should be empty is drained, but no writer waits for it.
        0 if bytes > 0 => PRESSED_SCORE,
        0 => 0.0,
        target => bytes as f64 / target as f64,
    }
}

/// The newest tables of a level 0 that is half way to slowing writers down, into one that stays
/// there. Only tables as flushes make them: each byte is rewritten once by this.
fn choose_newest(view: &View<'_>) -> Option<Selection> {
    let View { levels, settings, .. } = *view;
    let level0 = levels.level(0);
    if level0.len() < batch_tables(settings) as usize {
        return None;
    }
    let flushed = settings.division().memtable_bytes / 2 * 3;
    // Neighbours in the order of level 0, or what lies between would change places with them.
    let upper: Vec<_> = level0
        .iter()
        .take_while(|table| view.is_free(table) && table.meta.bytes <= flushed)
        .cloned()
        .collect();
    if upper.len() < settings.level0_tables.max(2) as usize {
        return None;
    }
    let range = span_of(&upper)?;
    // Level 0 may overlap, so the range is in the way of no other.
    let inputs = upper.into_iter().map(|table| (0, table)).collect();
    Some(Selection { inputs, output_level: 0, range })
}

/// All of level 0 into the base level. One at a time: two would both have to cover the same keys.
pub(super) fn choose_level0(view: &View<'_>, base: usize) -> Option<Selection> {
    let levels = view.levels;
    let mut upper = levels.level(0).to_vec();
    if planted(Planted::NewerSinksBelowOlder) {
        upper.truncate(1);
    }
    if !upper.iter().all(|table| view.is_free(table)) {
        return None;
    }
    // Levels between 0 and the base that still hold tables must be passed on first, or newer
    // versions would sink below older ones.
    let output = (1..base).find(|level| !levels.level(*level).is_empty()).unwrap_or(base);
    complete(view, 0, output, upper)
}

fn choose_deeper(view: &View<'_>, level: usize, output: usize) -> Option<Selection> {
    let mut ranked: Vec<(u64, &Arc<Table>)> = view
        .levels
        .level(level)
        .iter()
        .filter(|table| view.is_free(table))
        .map(|table| (overlap_per_mille(view.levels, output, table), table))
        .collect();
    ranked.sort_by_key(|(overlap, table)| (*overlap, table.meta.number));
    ranked.into_iter().find_map(|(_, table)| complete(view, level, output, vec![Arc::clone(table)]))
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
pub(super) fn complete(
    view: &View<'_>,
    level: usize,
    output_level: usize,
    upper: Vec<Arc<Table>>,
) -> Option<Selection> {
    let first = upper.iter().map(|table| &table.meta.smallest_key).min()?;
    let last = upper.iter().map(|table| &table.meta.largest_key).max()?;
    let lower = view.levels.overlapping(output_level, Some(first), Some(last));
    let all: Vec<_> = upper.iter().chain(&lower).cloned().collect();
    let range = span_of(&all)?;
    if !all.iter().all(|table| view.is_free(table)) || view.claims.meet(output_level, &range) {
        return None;
    }
    let upper = upper.into_iter().map(|table| (level, table));
    let inputs = upper.chain(lower.into_iter().map(|table| (output_level, table))).collect();
    Some(Selection { inputs, output_level, range })
}

/// All keys of some tables; none where there are no tables.
fn span_of(tables: &[Arc<Table>]) -> Option<KeyRange> {
    let first = tables.iter().map(|table| &table.meta.smallest_key).min()?;
    let last = tables.iter().map(|table| &table.meta.largest_key).max()?;
    Some(KeyRange::spanning(first, last))
}

/// A compaction that brings some of `from..=to` from `level` to the next level in use, for
/// `compact_range`: all of level 0, or the first table of a deeper level behind the key `after`.
/// None if there is nothing left to bring, or nowhere deeper to bring it. `Err` while a running
/// compaction is in the way.
pub(crate) fn choose_in_range(
    view: &View<'_>,
    level: usize,
    (from, to): (Option<&[u8]>, Option<&[u8]>),
    after: Option<&[u8]>,
) -> Result<Option<Selection>, Busy> {
    let View { levels, settings, .. } = *view;
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
    complete(view, level, output, upper).map(Some).ok_or(Busy)
}

fn is_behind(table: &Table, after: Option<&[u8]>) -> bool {
    after.is_none_or(|after| table.meta.smallest_key.as_slice() > after)
}

/// Rewrites the first bottom table of `from..=to` behind the key `after` that holds tombstones. A
/// snapshot may need the tombstones, so a table can come out as it went in: the caller goes on
/// behind it.
pub(crate) fn choose_bottom(
    view: &View<'_>,
    (from, to): (Option<&[u8]>, Option<&[u8]>),
    after: Option<&[u8]>,
) -> Result<Option<Selection>, Busy> {
    let levels = view.levels;
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
    let range = KeyRange::spanning(&table.meta.smallest_key, &table.meta.largest_key);
    if !view.is_free(&table) || view.claims.meet(level, &range) {
        return Err(Busy);
    }
    Ok(Some(Selection { inputs: vec![(level, table)], output_level: level, range }))
}

/// A running compaction holds what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;
