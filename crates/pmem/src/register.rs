//! The register: a line for each table, with the number of entries that name it.
//!
//! ```text
//! crc 4 | flags 1 | zero 3 | number 8 | entries 8 | live 8 | zero 32        flags: 1 entered
//! all zeros: not in use
//! ```
//! 1. A line changes with the run that changes the entries it counts, so `live` is right after any
//!    crash.
//! 2. A table that is not marked as entered may have records that the index lacks.
//!
//! Threads: the only writer of the tree, and the opening.

use crate::layout::{LINE_BYTES, Owner};
use crate::run::Line;
use std::collections::BTreeMap;
use thermocline_foundation::FileNumber;
use thermocline_foundation::checksum::checksum;

/// A line of the register: one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLine {
    /// The table.
    pub number: FileNumber,
    /// Its records.
    pub entries: u64,
    /// Entries of the index that name it.
    pub live: u64,
    /// All its records went through the index.
    pub is_entered: bool,
}

impl TableLine {
    /// The line as it is at `at`, and its checksum.
    pub fn encode(&self, owner: &Owner, at: u64) -> (Line, u32) {
        let mut line = [0; LINE_BYTES as usize];
        line[4] = u8::from(self.is_entered);
        let words = [self.number.0, self.entries, self.live];
        for (part, word) in line[8..32].chunks_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&owner.at(at), &line[4..]);
        line[..4].copy_from_slice(&sum.to_le_bytes());
        (line, sum)
    }

    /// The table in `line`, which was read at `at`, and the checksum; none where it does not match.
    pub fn decode(line: &Line, owner: &Owner, at: u64) -> Option<(Self, u32)> {
        let sum = checksum(&owner.at(at), &line[4..]);
        let (words, _) = line[8..32].as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        let is_entered = line[4] & 1 != 0;
        let found =
            Self { number: FileNumber(word(0)), entries: word(1), live: word(2), is_entered };
        (line[..4] == sum.to_le_bytes()).then_some((found, sum))
    }
}

/// All tables, and where their lines are.
#[derive(Clone, Debug, Default)]
pub struct Register {
    /// The place and the content of each line in use.
    pub lines: BTreeMap<FileNumber, (u64, TableLine)>,
}
