//! The baseline: every file goes to the fastest tier that has room, and stays there.
//!
//! What one gets from filling disks in order of speed, without a thought for what is in the files.

use super::{FileInfo, Placement, TierState, first_with_room};
use crate::context::FileContext;
use crate::tier::TierIndex;
use thermocline_foundation::FileNumber;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct FillFirst;

impl Placement for FillFirst {
    fn name(&self) -> &'static str {
        "fill-first"
    }

    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        first_with_room(context.kind, 0, expected_bytes, tiers)
    }

    fn misplaced(&self, _files: &[FileInfo], _tiers: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        Vec::new()
    }
}
