//! Leveled compaction: which tables to merge next (LevelDB; RocksDB's dynamic level sizes).
//!
//! Sizes are counted from the bottom: the deepest level holds most of the data, and the levels
//! above it are sized so that each is the same factor smaller, down to about the size of a full
//! level 0. With two levels below level 0 and 29 times its size at the bottom, the factor is 5.4
//! twice, not 10 and 2.9, which costs less rewriting. Data enters at the *base* level, the first
//! below 0 that is used; an empty store has its base at the bottom.
//!
//! A level's score is its size over its target (level 0: tables over `level0_tables`); the highest
//! score above 1 is worked on. Within a level the table goes that overlaps least below, in bytes of
//! overlap per byte of its own.
//!
//! A pick is refused while it shares a table with a running compaction, or while its output could
//! overlap the output of one ([`Claim`]).

use crate::settings::Settings;
use crate::table_set::levels::{LEVELS, Levels, may_overlap};
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{Planted, planted};

const BOTTOM: usize = LEVELS - 1;

/// Size targets of the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// The level that level 0 is merged into.
    pub base: usize,
    /// Bytes; 0 for levels that should be empty.
    pub bytes: [u64; LEVELS],
}

/// The key range and level that a running compaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub output_level: usize,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

impl Claim {
    /// The claim's output could share a level and a key with tables of `level` in `from..=to`.
    pub fn conflicts(&self, level: usize, from: &[u8], to: &[u8]) -> bool {
        self.output_level == level && self.from.as_slice() <= to && from <= self.to.as_slice()
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

/// See [`Targets`].
pub(crate) fn targets(levels: &Levels, settings: &Settings) -> Targets {
    let memtable = settings.division().memtable_bytes;
    let floor = (u64::from(settings.level0_tables) * memtable).max(settings.table_size.0);
    let largest = (1..LEVELS).map(|level| levels.level_bytes(level)).max().unwrap_or(0);
    let mut bytes = [0; LEVELS];
    bytes[BOTTOM] = largest.max(floor);
    let growth = bytes[BOTTOM] as f64 / floor as f64;
    let wanted = growth.ln() / f64::from(settings.level_ratio).ln();
    let between = (wanted.ceil() as usize).min(BOTTOM - 1);
    if between > 0 {
        let factor = growth.powf(1.0 / between as f64);
        for up in 1..=between {
            bytes[BOTTOM - up] = (bytes[BOTTOM] as f64 / factor.powi(up as i32)) as u64;
        }
    }
    Targets { base: BOTTOM - between, bytes }
}

/// The most useful compaction that can start now.
pub(crate) fn pick(levels: &Levels, claims: &[Claim], settings: &Settings) -> Option<Pick> {
    let targets = targets(levels, settings);
    let mut scored: Vec<(f64, usize)> = (0..BOTTOM)
        .map(|level| (score(levels, level, &targets, settings), level))
        .filter(|(score, _)| *score >= 1.0)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().find_map(|(_, level)| {
        if level == 0 {
            return pick_level0(levels, claims, targets.base);
        }
        pick_deeper(levels, claims, level, level + 1)
    })
}

fn score(levels: &Levels, level: usize, targets: &Targets, settings: &Settings) -> f64 {
    let free = || levels.level(level).iter().filter(|table| !table.claimed.load(Relaxed));
    if level == 0 {
        return free().count() as f64 / f64::from(settings.level0_tables);
    }
    let bytes: u64 = free().map(|table| table.meta.bytes).sum();
    match targets.bytes[level] {
        // A level that should be empty is drained, but nobody waits for it.
        0 if bytes > 0 => 1.5,
        0 => 0.0,
        target => bytes as f64 / target as f64,
    }
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
