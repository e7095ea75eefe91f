//! What the kernel counts of a block device, in `/sys/dev/block/MAJOR:MINOR/stat`.
//!
//! ```text
//!   reads merged sectors ms  writes merged sectors ms  in flight  busy ms  ...
//!   0     1      2       3   4      5      6       7   8          9
//! ```
//! A sector is 512 bytes there, whatever the device's own is. Directories of other file systems
//! (in memory, over a network, stacked) have no such device: then nothing is told.

use crate::driver::{DeviceCounts, DirectoryId};
use rustix::fs::{major, minor};

const SECTOR_BYTES: u64 = 512;
const READ_SECTORS: usize = 2;
const WRITTEN_SECTORS: usize = 6;
const BUSY_MS: usize = 9;

/// The counts of the device that a directory lies on.
pub(super) fn counts(directory: DirectoryId) -> Option<DeviceCounts> {
    let (major, minor) = (major(directory.device), minor(directory.device));
    parse(&std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
}

fn parse(text: &str) -> Option<DeviceCounts> {
    let fields: Option<Vec<u64>> =
        text.split_ascii_whitespace().map(|field| field.parse().ok()).collect();
    let fields = fields?;
    let field = |at: usize| fields.get(at).copied();
    Some(DeviceCounts {
        read_bytes: field(READ_SECTORS)?.saturating_mul(SECTOR_BYTES),
        written_bytes: field(WRITTEN_SECTORS)?.saturating_mul(SECTOR_BYTES),
        busy_ns: field(BUSY_MS)?.saturating_mul(1_000_000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_line_is_read_and_other_lines_are_not() {
        let line = "  129640    62  9311514   71341  8171  7101  1480136  36321  0  42540  113\n";
        let counts = DeviceCounts {
            read_bytes: 9_311_514 * 512,
            written_bytes: 1_480_136 * 512,
            busy_ns: 42_540_000_000,
        };
        assert_eq!(parse(line), Some(counts));
        for other in ["", "1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 ten", "-1 2 3 4 5 6 7 8 9 10"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
