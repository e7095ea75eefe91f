//! What an opening reads from the newest manifest.

use super::levels::Levels;
use super::manifest::{Edit, Manifest};
use crate::error::Result;
use crate::shared::totals::Totals;
use std::sync::Arc;
use thermocline_device::{Origin, TieredFiles};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_slab::LiveSlots;

/// What the manifest says.
#[derive(Debug)]
pub(crate) struct Restored {
    pub manifest: Manifest,
    pub levels: Levels,
    pub slots: LiveSlots,
    pub log_floor: FileNumber,
    pub last_sequence: Sequence,
    pub totals: Totals,
    pub durable_sequence: Sequence,
    /// As the manifest says; none where it does not.
    pub older_versions: Option<u64>,
}

impl Restored {
    /// A database without tables, whose manifest is made here.
    pub fn new(files: &Arc<TieredFiles>) -> Result<Self> {
        Self::without_tables(|state| Manifest::create(files, state, Origin::Foreground))
    }

    /// As [`Restored::new`] with a manifest in memory: for files that are only read.
    pub fn in_memory(files: &Arc<TieredFiles>) -> Result<Self> {
        Self::without_tables(|state| Manifest::in_memory(files, state))
    }

    fn without_tables(manifest: impl FnOnce(&Edit) -> Result<Manifest>) -> Result<Self> {
        let (levels, slots) = (Levels::default(), LiveSlots::default());
        let state = Edit::of_state(levels.snapshot(), &slots, FileNumber(0), Sequence::ZERO);
        Ok(Self {
            manifest: manifest(&state)?,
            levels,
            slots,
            log_floor: FileNumber(0),
            last_sequence: Sequence::ZERO,
            totals: Totals::default(),
            durable_sequence: Sequence::ZERO,
            older_versions: Some(0),
        })
    }
}
