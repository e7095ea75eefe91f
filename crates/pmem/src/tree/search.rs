//! Readers: down to the leaf of a key, beside a writer that changes nodes one by one.
//!
//! 1. A node is copied, between two looks at its version. A reader takes no lock; it looks again
//!    while the writer stores into this very node, a few dozen words.
//! 2. The range of a node ends where its right neighbour begins. If that neighbour is the one that
//!    the parent named behind it, the parent's keys have said that the key lies before. If not, the
//!    node was split or joined meanwhile, and the neighbour's `low` decides. A key outside of the
//!    range must not be searched for: it may lack the common prefix.
//! 3. At a node that is dead the reader starts again: its parent no longer names it.
//!
//! Threads: any, each with a pin (`readers.rs`).

use super::Tree;
use crate::layout::damaged;
use crate::node::{DEAD, NODE_BYTES, Node, key_bytes};
use crate::object::{self, Entry, Object};
use std::cmp::Ordering;
use thermocline_device::Result;
use thermocline_foundation::sync::atomic;
use thermocline_foundation::{Planted, planted};

/// Where the place of the object with the lower end is in a node.
const LOW_AT: u64 = 24;
/// Steps of a descent, to the right and down, that only damage takes.
const STEPS_MAX: usize = 1 << 20;

/// A leaf, and where a key is in it, or would be.
#[derive(Debug)]
pub struct Position {
    /// The leaf.
    pub leaf: Node,
    /// The first entry that is not before the key.
    pub index: usize,
    /// It is of that key.
    pub is_equal: bool,
}

/// What a descent looks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal<'a> {
    /// The leaf of this key.
    At(&'a [u8]),
    /// The leaf that keys just before this one are in. The key is not empty.
    Before(&'a [u8]),
    /// The last leaf.
    End,
}

impl Goal<'_> {
    /// Goes on to a node that begins with the key of which `low` says how it compares.
    fn passes(self, low: impl FnOnce(&[u8]) -> Result<Ordering>) -> Result<bool> {
        Ok(match self {
            Self::At(key) => low(key)? != Ordering::Greater,
            Self::Before(key) => low(key)? == Ordering::Less,
            Self::End => true,
        })
    }
}

impl Tree {
    /// Where the newest record of `key` is, as far as tables were entered.
    pub fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let _pin = self.readers.pin();
        match self.position(Goal::At(key))? {
            Some(Position { leaf, index, is_equal: true }) => {
                Ok(Some(self.object(leaf.slot(index).offset)?.entry))
            }
            _ => Ok(None),
        }
    }

    /// The object at `at`.
    pub(super) fn object(&self, at: u64) -> Result<Object> {
        object::read(self.region.medium(), self.region.owner(), at)
    }

    /// The leaf of `goal`; none if there is no node. The caller holds a pin.
    pub(super) fn position(&self, goal: Goal<'_>) -> Result<Option<Position>> {
        loop {
            let root = self.root.load(atomic::Ordering::Acquire);
            if root == 0 {
                return Ok(None);
            }
            if let Some(found) = self.down(root, goal)? {
                return Ok(Some(found));
            }
            pause();
        }
    }

    /// Down from `at`; none where a node was dead.
    fn down(&self, mut at: u64, goal: Goal<'_>) -> Result<Option<Position>> {
        // The neighbour with which the present node's range is known to end.
        let mut known_next = None;
        for _ in 0..STEPS_MAX {
            let node = self.node(at)?;
            if node.level == DEAD {
                return Ok(None);
            }
            let is_unknown = known_next != Some(node.next) && node.next != 0;
            if is_unknown
                && !planted(Planted::ReaderIgnoresSplit)
                && goal.passes(|key| self.compare_low(node.next, key))?
            {
                at = node.next;
                known_next = None;
                continue;
            }
            let (index, is_equal) = self.search(&node, goal)?;
            if node.level == 0 {
                return Ok(Some(Position { leaf: node, index, is_equal }));
            }
            if node.len() == 0 {
                return Err(damaged(at, "a node of the index has no children"));
            }
            let is_own = is_equal && matches!(goal, Goal::At(_));
            let child = if is_own { index } else { index.saturating_sub(1) };
            known_next = (child + 1 < node.len()).then(|| node.slot(child + 1).offset);
            at = node.slot(child).offset;
        }
        Err(damaged(at, "the nodes of the index form a circle"))
    }

    /// The first index of `node` that is not before the goal's key, and whether it is of that key.
    /// The key lies in the node's range, or is its end, which has the common prefix, too.
    fn search(&self, node: &Node, goal: Goal<'_>) -> Result<(usize, bool)> {
        let (Goal::At(key) | Goal::Before(key)) = goal else { return Ok((node.len(), false)) };
        node.search(key_bytes(key, node.prefix), |offset| {
            if node.level == 0 {
                Ok(self.object(offset)?.key.as_slice().cmp(key))
            } else {
                self.compare_low(offset, key)
            }
        })
    }

    /// One state of the node at `at`.
    fn node(&self, at: u64) -> Result<Node> {
        let medium = self.region.medium();
        if at == 0 || !medium.holds(at, NODE_BYTES as u64) {
            return Err(damaged(at, "a node of the index lies outside of the region"));
        }
        loop {
            if let Some(bytes) = Node::try_read(medium, at) {
                let node = Node::decode(&bytes);
                return node.ok_or_else(|| damaged(at, "a node of the index is not whole"));
            }
            pause();
        }
    }

    /// The lower end of the node at `at`, compared with `key`. It never changes.
    fn compare_low(&self, at: u64, key: &[u8]) -> Result<Ordering> {
        let medium = self.region.medium();
        if !medium.holds(at, NODE_BYTES as u64) {
            return Err(damaged(at, "a node of the index lies outside of the region"));
        }
        self.low_key(medium.load(at + LOW_AT)).map(|low| low.as_slice().cmp(key))
    }

    pub(super) fn low_key(&self, low: u64) -> Result<Vec<u8>> {
        if low == 0 { Ok(Vec::new()) } else { self.object(low).map(|object| object.key) }
    }

    /// The key at which the leaf's right neighbour begins; none for the last leaf.
    pub(super) fn end_of(&self, leaf: &Node) -> Result<Option<Vec<u8>>> {
        let medium = self.region.medium();
        match leaf.next {
            0 => Ok(None),
            next if medium.holds(next, NODE_BYTES as u64) => {
                self.low_key(medium.load(next + LOW_AT)).map(Some)
            }
            next => Err(damaged(next, "a node of the index lies outside of the region")),
        }
    }
}

/// Lets the writer go on.
fn pause() {
    #[cfg(shuttle)]
    thermocline_foundation::sync::schedules::yield_now();
    #[cfg(not(shuttle))]
    std::hint::spin_loop();
}
