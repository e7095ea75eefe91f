//! The locator: how a key is found among the tables.
//!
//! A closed choice with one `match` an operation. So far a key is found per level, by the ranges of
//! the tables and their filters; with a fast tier of slots the indexes and filters that find it are
//! copied there while memory cannot hold them.
//!
//! To add one: a file or folder here; a variant, a constructor, and an arm in `candidates`,
//! `is_due` and `tend` (the rest is made of `candidates`, whose type is that of
//! `Levels::candidates`). `layout/mod.rs` (`over`) chooses it. The layout's follower (`FastTier`,
//! `LevelTargets`) makes it and tells it of edits of the table set; `hybrid/plan.rs` begins its
//! jobs, `leveled/plan.rs` asks for none yet. Scans do not ask it: they read whole levels.

pub(crate) mod copies;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::table_set::levels::{Levels, Located, settles};
use crate::table_set::table::Table;
use copies::{IndexCopies, Tended};
use std::sync::Arc;
use thermocline_foundation::Sequence;

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) enum Locator {
    /// Ranges and filters of each level.
    PerLevel,
    /// The same, with copies of the tables' indexes on tier 0.
    OnTier0(Arc<IndexCopies>),
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

    /// Tables that may hold `key` with their levels, in the order in which the newest version is
    /// met first.
    pub fn candidates<'a>(
        &self,
        levels: &'a Levels,
        key: &'a [u8],
    ) -> impl Iterator<Item = (usize, &'a Arc<Table>)> + use<'a> {
        match self {
            Self::PerLevel | Self::OnTier0(_) => levels.candidates(key),
        }
    }

    /// The newest version of `key` at or before `snapshot`, with the table that has it.
    pub fn find_newest(
        &self,
        levels: &Levels,
        key: &[u8],
        snapshot: Sequence,
    ) -> Result<Option<Located>> {
        self.find_newer(levels, key, Sequence::ZERO, snapshot)
    }

    /// The same, if it is newer than `than`: no other table is asked than those that may have one.
    pub fn find_newer(
        &self,
        levels: &Levels,
        key: &[u8],
        than: Sequence,
        snapshot: Sequence,
    ) -> Result<Option<Located>> {
        let mut newest: Option<Located> = None;
        let candidates = self.candidates(levels, key);
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

    /// There may be something to do for the locator's own files.
    pub fn is_due(&self) -> bool {
        match self {
            Self::PerLevel => false,
            Self::OnTier0(copies) => copies.is_due(),
        }
    }

    /// Brings the locator's own files nearer to what the tables of `levels` want.
    pub fn tend(&self, levels: &Levels) -> Tended {
        match self {
            Self::PerLevel => Tended::default(),
            Self::OnTier0(copies) => copies.tend(levels),
        }
    }
}
