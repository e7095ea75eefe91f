//! What every part of the engine shares: counters and totals, how fast writers and compactions may
//! go.

pub(crate) mod compaction_rate;
pub(crate) mod counts;
pub(crate) mod totals;
pub(crate) mod write_throttle;

use thermocline_device::TieredFiles;
use thermocline_foundation::FileNumber;

/// Deletes files that do no harm where there is no room for saying so.
pub(crate) fn delete_or_leave(files: &TieredFiles, numbers: &[FileNumber]) {
    if let Err(error) = files.delete_files(numbers) {
        tracing::warn!(%error, "files that nobody needs stay until the next opening");
    }
}
