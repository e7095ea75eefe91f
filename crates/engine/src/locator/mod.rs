//! The locator: how a key is found among the tables.
//!
//! A closed choice with one `match` an operation. A key is found per level, by the ranges of the
//! tables and their filters; with a fast tier of slots the indexes and filters that find it are
//! copied there while memory cannot hold them; with an index in persistent memory by one look-up.
//!
//! To add one: a file or folder here; a variant, a constructor, and an arm in each
//! operation below. `layout/mod.rs` (`over`) chooses it. The layout's follower
//! (`FastTier`, `LevelTargets`, `OneLevel`) makes it and tells it of edits of the table set;
//! `hybrid/plan.rs` begins its jobs, the lane of the index those of the index. Scans walk the index
//! ([`Locator::walk`]), or read whole levels.

pub(crate) mod copies;
pub(crate) mod index;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::jobs::Job;
use crate::table_set::levels::{Levels, Located, settles};
use crate::table_set::table::Table;
use copies::{IndexCopies, Tended};
use index::{IndexStats, KeyBounds, TableIndex, Walk};
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_table::Trailer;

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) enum Locator {
    /// Ranges and filters of each level.
    PerLevel,
    /// The same, with copies of the tables' indexes on tier 0.
    OnTier0(Arc<IndexCopies>),
    /// The newest record of each key in persistent memory.
    Index(Arc<TableIndex>),
}

impl Locator {
    /// By ranges and filters alone.
    pub fn per_level() -> Self {
        Self::PerLevel
    }

    /// With `copies` of what finds a key on tier 0.
    pub fn on_tier0(copies: &Arc<IndexCopies>) -> Self {
        Self::OnTier0(Arc::clone(copies))
    }

    /// By an index of all tables in persistent memory.
    pub fn with_index(index: &Arc<TableIndex>) -> Self {
        Self::Index(Arc::clone(index))
    }

    /// Tables that may hold `key` with their levels, in the order in which the newest version is
    /// met first.
    pub fn candidates<'a>(
        &self,
        levels: &'a Levels,
        key: &'a [u8],
    ) -> impl Iterator<Item = (usize, &'a Arc<Table>)> + use<'a> {
        match self {
            Self::PerLevel | Self::OnTier0(_) | Self::Index(_) => levels.candidates(key),
        }
    }

    /// The newest version of `key` at or before `snapshot`, with the table that has it.
    pub fn find_newest(
        &self,
        levels: &Levels,
        key: &[u8],
        snapshot: Sequence,
    ) -> Result<Option<Located>> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => search(levels, key, Sequence::ZERO, snapshot),
            Self::Index(index) => index.find_newest(levels, key, snapshot),
        }
    }

    /// Sequence and kind of that version; none may be said where it is not newer than `than`. Reads
    /// no table where an index says it, and else only those that may have one.
    pub fn newer_trailer(
        &self,
        levels: &Levels,
        key: &[u8],
        than: Sequence,
        snapshot: Sequence,
    ) -> Result<Option<Trailer>> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => {
                Ok(search(levels, key, than, snapshot)?.map(|found| found.trailer))
            }
            Self::Index(index) => index.newer_trailer(levels, key, than, snapshot),
        }
    }

    /// A scan of `snapshot` by an index, of `keys` at first; `levels` are of a version that was
    /// taken before. None where whole levels are to be read.
    pub fn walk(
        &self,
        levels: &Arc<Levels>,
        bounds: &KeyBounds,
        snapshot: Sequence,
        keys: usize,
    ) -> Option<Walk> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => None,
            Self::Index(index) => index.walk(levels, bounds, snapshot, keys),
        }
    }

    /// A bulk load that is newer than `than` may have `key`, whose hash is given.
    pub fn may_be_loaded_over(
        &self,
        levels: &Levels,
        (key, hash): (&[u8], u64),
        than: Sequence,
    ) -> bool {
        let is_newer = |table: &Table| table.meta.ingested_at > Some(than);
        levels.newest_ingest_of_all() > than
            && self
                .candidates(levels, key)
                .any(|(_, table)| is_newer(table) && table.may_have(key, hash))
    }

    /// Begins, and says whether it has work of a lane of its own. Writers know from here on whether
    /// an index has room for their records.
    pub fn begin(&self) -> bool {
        match self {
            Self::PerLevel | Self::OnTier0(_) => false,
            Self::Index(index) => {
                index.measure_room();
                true
            }
        }
    }

    /// The most useful job of that lane.
    pub fn plan(&self) -> Option<Box<dyn Job>> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => None,
            Self::Index(index) => index.plan(),
        }
    }

    /// Figures of an index in persistent memory.
    pub fn index_stats(&self) -> Option<IndexStats> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => None,
            Self::Index(index) => Some(index.stats()),
        }
    }

    /// Checks what is in persistent memory. Files are checked where they lie.
    pub fn verify(&self) -> Result<()> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => Ok(()),
            Self::Index(index) => index.verify(),
        }
    }

    /// There may be something to do for the locator's own files.
    pub fn is_due(&self) -> bool {
        match self {
            Self::PerLevel | Self::Index(_) => false,
            Self::OnTier0(copies) => copies.is_due(),
        }
    }

    /// Brings the locator's own files nearer to what the tables of `levels` want.
    pub fn tend(&self, levels: &Levels) -> Tended {
        match self {
            Self::PerLevel | Self::Index(_) => Tended::default(),
            Self::OnTier0(copies) => copies.tend(levels),
        }
    }
}

/// The newest version of `key` at or before `snapshot`, by the ranges and filters of those `levels`
/// that may have one newer than `than`.
fn search(
    levels: &Levels,
    key: &[u8],
    than: Sequence,
    snapshot: Sequence,
) -> Result<Option<Located>> {
    let mut newest: Option<Located> = None;
    let candidates = levels.candidates(key);
    for (level, table) in candidates.filter(|(_, table)| table.meta.largest_sequence > than) {
        if newest.as_ref().is_some_and(|best| settles(best.trailer, level, table)) {
            break;
        }
        if let Some((trailer, value)) = table.get(key, snapshot)?
            && newest.as_ref().is_none_or(|best| trailer > best.trailer)
        {
            newest = Some(Located { trailer, value, table: table.meta.number });
        }
    }
    Ok(newest)
}
