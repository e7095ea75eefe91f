//! The root line: where the tree begins, and the sums that tell a stale part from its successor.
//!
//! ```text
//! crc 4 | zero 4 | root node 8 | nodes 8 | objects 8 | node sum 8 | object sum 8
//! register sum 8 | tables 8
//! ```
//! 1. Each sum is the wrapping sum of the checksums of what is reachable. A node, an object or a
//!    line of the register that an earlier run left verifies by itself, and not with the sum.
//! 2. The line changes with the run that changes what it counts.

use crate::layout::{LINE_BYTES, Owner, ROOT_AT};
use crate::run::Line;
use thermocline_foundation::checksum::checksum;

/// The root line's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The place of the root node; zero while there is none.
    pub node: u64,
    /// Reachable nodes.
    pub nodes: u64,
    /// Reachable objects: entries and separators.
    pub objects: u64,
    /// The sum of the nodes' checksums.
    pub node_sum: u64,
    /// The sum of the objects' checksums.
    pub object_sum: u64,
    /// The sum of the checksums of the register's lines in use.
    pub register_sum: u64,
    /// Tables in the register.
    pub tables: u64,
}

impl Root {
    /// The root of a tree without entries.
    pub const EMPTY: Self = Self {
        node: 0,
        nodes: 0,
        objects: 0,
        node_sum: 0,
        object_sum: 0,
        register_sum: 0,
        tables: 0,
    };

    /// The line.
    pub fn encode(&self, owner: &Owner) -> Line {
        let mut line = [0; LINE_BYTES as usize];
        let words = [
            self.node,
            self.nodes,
            self.objects,
            self.node_sum,
            self.object_sum,
            self.register_sum,
            self.tables,
        ];
        for (part, word) in line[8..].chunks_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&owner.at(ROOT_AT), &line[4..]);
        line[..4].copy_from_slice(&sum.to_le_bytes());
        line
    }

    /// The root in `line`; none where the checksum does not match.
    pub fn decode(line: &Line, owner: &Owner) -> Option<Self> {
        let sum = checksum(&owner.at(ROOT_AT), &line[4..]);
        if line[..4] != sum.to_le_bytes() {
            return None;
        }
        let (words, _) = line[8..].as_chunks::<8>();
        let word = |index: usize| u64::from_le_bytes(words[index]);
        Some(Self {
            node: word(0),
            nodes: word(1),
            objects: word(2),
            node_sum: word(3),
            object_sum: word(4),
            register_sum: word(5),
            tables: word(6),
        })
    }
}
