//! What the kernel knows of a block device: what it counts, in `/sys/dev/block/MAJOR:MINOR/stat`,
//! and how long its blocks are; and what it holds back from all of them, in `/proc/meminfo`.
//!
//! ```text
//!   reads merged sectors ms  writes merged sectors ms  in flight  busy ms  ...
//!   0     1      2       3   4      5      6       7   8          9
//!
//!   Dirty:             31496 kB           Writeback:             0 kB
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
    let counts =
        parse(&std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)?;
    let unwritten_bytes =
        std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| unwritten(&text));
    Some(DeviceCounts { unwritten_bytes: unwritten_bytes.unwrap_or(u64::MAX), ..counts })
}

/// Bytes of a block of the device that a directory lies on. A partition has those of its disk.
pub(super) fn block_bytes(directory: DirectoryId) -> Option<usize> {
    let (major, minor) = (major(directory.device), minor(directory.device));
    let queue = |of: &str| {
        let path = format!("/sys/dev/block/{major}:{minor}/{of}queue/logical_block_size");
        std::fs::read_to_string(path).ok()
    };
    block(&queue("").or_else(|| queue("../"))?)
}

fn block(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|bytes: &usize| bytes.is_power_of_two())
}

/// Bytes that the page cache has not written yet.
fn unwritten(text: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        value.strip_suffix("kB")?.trim().parse().ok()
    };
    Some(kib("Dirty:")?.saturating_add(kib("Writeback:")?).saturating_mul(1024))
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
        ..DeviceCounts::default()
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
            unwritten_bytes: 0,
        };
        assert_eq!(parse(line), Some(counts));
        for other in ["", "1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 8 9 ten", "-1 2 3 4 5 6 7 8 9 10"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_block_is_a_power_of_two_of_bytes() {
        assert_eq!((block("512\n"), block("4096\n")), (Some(512), Some(4096)));
        for other in ["", "0\n", "520\n", "-512\n", "512 B\n"] {
            assert_eq!(block(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_page_cache_holds_back_is_dirty_or_on_its_way() {
        let text = "MemFree:  17 kB\nDirty:             31496 kB\nWriteback:          4 kB\n\
                    WritebackTmp:          9 kB\n";
        assert_eq!(unwritten(text), Some(31_500 << 10));
        for other in
            ["", "Dirty: 1 kB\n", "Dirty: 1 kB\nWriteback: x kB\n", "Dirty: 1\nWriteback: 1"]
        {
            assert_eq!(unwritten(other), None, "{other}");
        }
    }
}
