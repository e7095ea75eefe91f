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
        let (levels, slots) = (Levels::default(), LiveSlots::default());
        let state = Edit::of_state(&levels, &slots, FileNumber(0), Sequence::ZERO);
        Ok(Self {
            manifest: Manifest::create(files, &state, Origin::Foreground)?,
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
