//! Where a new file goes, and which files would be better off elsewhere.
//!
//! A policy sees what a file is and why it is made, how long it may become, how full the tiers are,
//! and what the engine tells it: targets of levels, bytes for slabs, use of the tiers (Keigo,
//! section 4.4). It decides; the namespace moves the bytes and keeps the account. Which *records*
//! of the preset `hybrid` lie on the fast tier is no question of placement: see its layout in the
//! engine.
//!
//! To add one: a file here, and its word in `choice.rs` and its choice in
//! `settings/placement.rs` of the engine.
//!
//! 1. A policy does no I/O and keeps no file state: the same question gets the same answer until
//!    one of these changes.
//! 2. [`Placement::misplaced`] names a move only if the policy would not name the reverse move
//!    afterwards.
//!
//! Threads: any. `place` is called under the namespace's lock, `misplaced` without it.

mod below_first;
mod by_bandwidth;
mod by_level;
mod by_parallelism;
mod choice;
mod fill_first;
mod fitting_levels;
mod top_levels;

pub use below_first::BelowFirst;
pub use by_bandwidth::{BandwidthSettings, PEAK_MIN, Pointer, TierUse};
pub use by_level::{ByLevel, ByLevelSettings};
pub use by_parallelism::ByParallelism;
pub use choice::PlacementChoice;
pub use fill_first::FillFirst;
pub use fitting_levels::{FastTier, Levels};
pub use top_levels::TopLevels;

use crate::context::{FileContext, FileKind};
use crate::load::TierLoad;
use crate::profile::TierProfile;
use crate::tier::TierIndex;
use serde::Serialize;
use std::fmt::Debug;
use std::sync::Arc;
use thermocline_foundation::FileNumber;

/// How full a tier is, what its device can do, and how many write to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierState {
    /// Bytes that the database may use.
    pub capacity_bytes: u64,
    /// Bytes that its files take, growth that was announced included.
    pub used_bytes: u64,
    /// Of these, bytes of tables by level.
    pub level_bytes: Vec<u64>,
    /// Of these, bytes of slabs.
    pub slab_bytes: u64,
    /// Its device has refused what the capacity leaves room for, so it takes no more.
    pub is_refused: bool,
    /// What is known of the device.
    pub profile: Arc<TierProfile>,
    /// Its writers; none where they are not counted.
    pub load: TierLoad,
}

impl TierState {
    /// Adds a file.
    pub fn add(&mut self, kind: FileKind, bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if kind == FileKind::Slab {
            self.slab_bytes = self.slab_bytes.saturating_add(bytes);
        }
        if let FileKind::Table { level } = kind {
            let level = usize::from(level);
            let levels = self.level_bytes.len().max(level + 1);
            self.level_bytes.resize(levels, 0);
            self.level_bytes[level] = self.level_bytes[level].saturating_add(bytes);
        }
    }

    /// Takes a file away that was added.
    pub fn remove(&mut self, kind: FileKind, bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
        if kind == FileKind::Slab {
            self.slab_bytes = self.slab_bytes.saturating_sub(bytes);
        }
        if let FileKind::Table { level } = kind
            && let Some(sum) = self.level_bytes.get_mut(usize::from(level))
        {
            *sum = sum.saturating_sub(bytes);
        }
    }
}

/// A file of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    /// Its number.
    #[serde(serialize_with = "plain_number")]
    pub number: FileNumber,
    /// What it holds.
    pub kind: FileKind,
    /// Where it lies.
    pub tier: TierIndex,
    /// Bytes that it takes.
    pub bytes: u64,
    /// It survives reopening.
    pub published: bool,
}

fn plain_number<S: serde::Serializer>(number: &FileNumber, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(number.0)
}

/// A placement policy.
pub trait Placement: Send + Sync + Debug {
    /// The policy's name in configurations.
    fn name(&self) -> &'static str;

    /// The tier for a new file that may become `expected_bytes` long; none where every tier is
    /// full.
    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex>;

    /// Tells the policy how large each level is meant to be, in bytes, level 0 first.
    fn set_level_targets(&self, _targets: &[u64]) {}

    /// Tells the policy how many bytes of tier 0 are meant for slabs: what logs and metadata may
    /// come to is kept beside them.
    fn set_slab_bytes(&self, _bytes: u64) {}

    /// Tells the policy how much of the fast tier's bandwidth was used lately.
    fn measured(&self, _fast_tier: TierUse, _tiers: &[TierState]) {}

    /// How many of the upper levels in use go to the fast tier; none where that is not what the
    /// policy decides by.
    fn fast_levels(&self) -> Option<u8> {
        None
    }

    /// Bytes of tier 0 that are kept for the tables that it is meant to have, which a cache that
    /// takes the rest leaves free.
    fn claimed_bytes(&self, _tiers: &[TierState]) -> u64 {
        0
    }

    /// Moves worth making, in the order to make them.
    fn misplaced(&self, files: &[FileInfo], tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)>;

    /// Moves to faster tiers that are worth making only while nothing else is to be done, in the
    /// order to make them. [`Placement::misplaced`] does not name the reverse of one afterwards.
    fn worth_fetching(
        &self,
        _files: &[FileInfo],
        _tiers: &[TierState],
    ) -> Vec<(FileNumber, TierIndex)> {
        Vec::new()
    }
}

/// Fill share of a tier, in percent, at which it stops taking new tables.
pub const WATERMARK_PERCENT: u64 = 95;

/// Fill share of a tier, in percent, up to which tables are moved to it: below the watermark, so
/// that moving does not push out what is newly written.
const PROMOTE_PERCENT: u64 = 90;

/// Bytes of tables that a tier takes up to `percent` of its capacity.
fn share(capacity_bytes: u64, percent: u64) -> u64 {
    (u128::from(capacity_bytes) * u128::from(percent) / 100) as u64
}

/// Levels in use above `level`: those with a target, and level 0; all, where no target is known.
fn levels_above(targets: &[u64], level: u8) -> usize {
    let level = usize::from(level);
    match targets.is_empty() {
        true => level,
        false => targets.iter().take(level).filter(|target| **target > 0).count(),
    }
}

/// Tiers in the order in which a file meant for `home` may overflow: slower ones first, then faster
/// ones.
pub(crate) fn overflow_order(home: usize, tiers: usize) -> impl Iterator<Item = usize> {
    (home..tiers).chain((0..home).rev())
}

/// The first tier of the overflow order with room. Tables, slabs and caches of blocks keep below
/// the watermark; what is left above it is for logs and metadata, without which nothing can be
/// written. Slabs, copies of tables' indexes and caches of blocks do not overflow: they are worth
/// having on their own tier only. The maker of such a copy has asked the slabs for its room.
fn first_with_room(
    kind: FileKind,
    home: usize,
    expected_bytes: u64,
    tiers: &[TierState],
) -> Option<TierIndex> {
    let percent = match kind {
        FileKind::Table { .. } | FileKind::Slab | FileKind::BlockCache => WATERMARK_PERCENT,
        FileKind::Log | FileKind::Manifest | FileKind::Map | FileKind::TableIndex => 100,
    };
    let has_room = |tier: &TierState| {
        let bytes = tier.used_bytes.saturating_add(expected_bytes);
        !tier.is_refused && bytes <= share(tier.capacity_bytes, percent)
    };
    let stays = matches!(kind, FileKind::Slab | FileKind::TableIndex | FileKind::BlockCache);
    let tiers_tried = if stays { 1 } else { tiers.len() };
    overflow_order(home, tiers.len())
        .take(tiers_tried)
        .find(|index| has_room(&tiers[*index]))
        .map(|index| TierIndex(index as u8))
}
