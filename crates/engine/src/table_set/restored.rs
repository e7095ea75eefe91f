//! What an opening reads from the newest manifest.

use super::levels::Levels;
use super::manifest::Manifest;
use crate::shared::totals::Totals;
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
}
