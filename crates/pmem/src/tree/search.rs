//! Readers: down to the leaf of a key, beside a writer that changes nodes one by one.
//!
//! 1. A node is read where it lies, between two looks at its version: its header, and of its slots
//!    those that the search comes to. A reader takes no lock; it looks again while the writer
//!    stores into this very node, a few dozen words. What it read meanwhile counts for nothing,
//!    errors neither. After [`LOOKS_MAX`] looks it waits for the end of the run that the writer is
//!    at, and a node that nothing changes then is damaged: its version has rotted to an odd one.
//! 2. The range of a node ends where its right neighbour begins. If that neighbour is the one that
//!    the parent named behind it, the parent's keys have said that the key lies before. If not, the
//!    node was split or joined meanwhile, and the neighbour's `low` decides. A key outside of the
//!    range must not be searched for: it may lack the common prefix.
//! 3. At a node that is dead the reader starts again: its parent no longer names it. Each time the
//!    writer has unlinked another one, so this comes to an end, too, but for damage.
//! 4. A walk copies its leaf. Meanwhile the processor fetches the leaves that it comes to next.
//!
//! Threads: any, each with a pin (`readers.rs`).

use super::Tree;
use crate::layout::damaged;
use crate::node::{DEAD, NODE_BYTES, Node, NodeInPlace, VERSION_AT, key_bytes};
use crate::object::{self, Entry, Object};
use std::cmp::Ordering;
use thermocline_device::Result;
use thermocline_foundation::sync::atomic;
use thermocline_foundation::{Planted, planted};

/// Where the place of the object with the lower end is in a node.
const LOW_AT: u64 = 24;
/// Steps of a descent, to the right and down, that only damage takes.
const STEPS_MAX: usize = 1 << 20;
/// Looks at a node that changes, and ways down that end at a dead one, after which a reader asks
/// whether that is damage.
const LOOKS_MAX: usize = 1 << 12;
/// Leaves that are fetched ahead of a walk.
const LEAVES_AHEAD: usize = 2;

/// A leaf, and where a walk begins in it.
#[derive(Debug)]
pub(super) struct Position {
    /// The leaf.
    pub leaf: Node,
    /// The first entry that is not before the key.
    pub index: usize,
}

/// What a descent looks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal<'a> {
    /// The leaf of this key.
    At(&'a [u8]),
    /// The same, for a walk that goes up from there.
    From(&'a [u8]),
    /// The leaf that keys just before this one are in, for a walk down. The key is not empty.
    Before(&'a [u8]),
    /// The last leaf, for a walk down.
    End,
}

impl<'a> Goal<'a> {
    /// Goes on to a node that begins with the key of which `low` says how it compares.
    fn passes(self, low: impl FnOnce(&[u8]) -> Result<Ordering>) -> Result<bool> {
        Ok(match self {
            Self::At(key) | Self::From(key) => low(key)? != Ordering::Greater,
            Self::Before(key) => low(key)? == Ordering::Less,
            Self::End => true,
        })
    }

    fn key(self) -> Option<&'a [u8]> {
        match self {
            Self::At(key) | Self::From(key) | Self::Before(key) => Some(key),
            Self::End => None,
        }
    }

    /// The child to go to; `found` is the first that does not begin before the key, and whether it
    /// begins with it.
    fn child(self, found: (usize, bool)) -> usize {
        let is_own = found.1 && matches!(self, Self::At(_) | Self::From(_));
        if is_own { found.0 } else { found.0.saturating_sub(1) }
    }

    /// The children, of `children`, that a walk comes to after `child`.
    fn ahead(self, child: usize, children: usize) -> std::ops::Range<usize> {
        match self {
            Self::At(_) => 0..0,
            Self::From(_) => child + 1..(child + 1 + LEAVES_AHEAD).min(children),
            Self::Before(_) | Self::End => child.saturating_sub(LEAVES_AHEAD)..child,
        }
    }
}

/// Where a descent goes from a node.
enum Step<T> {
    /// To this node. The range of that node is known to end with the second one.
    To(u64, Option<u64>),
    /// It ends, with what was asked of the leaf.
    Found(T),
    /// Back to the root: the node is in the tree no more.
    Dead,
}

impl Tree {
    /// Where the newest record of `key` is, as far as tables were entered.
    pub fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let _pin = self.readers.pin();
        let found = self.at_leaf(Goal::At(key), |leaf| {
            let mut found = None;
            leaf.search(key_bytes(key, leaf.prefix), |offset| {
                let object = self.object(offset)?;
                let ordering = object.key.as_slice().cmp(key);
                found = ordering.is_eq().then_some(object.entry);
                Ok(ordering)
            })?;
            Ok(found)
        });
        Ok(found?.flatten())
    }

    /// The object at `at`.
    pub(super) fn object(&self, at: u64) -> Result<Object> {
        object::read(self.region.medium(), self.region.owner(), at)
    }

    /// Where a walk begins; none if there is no node. The caller holds a pin.
    pub(super) fn position(&self, goal: Goal<'_>) -> Result<Option<Position>> {
        self.at_leaf(goal, |leaf| {
            let leaf = leaf.copy()?;
            let Some(key) = goal.key() else {
                return Ok(Position { index: leaf.len(), leaf });
            };
            let compare =
                |offset| -> Result<_> { Ok(self.object(offset)?.key.as_slice().cmp(key)) };
            let (index, _) = leaf.search(key_bytes(key, leaf.prefix), compare)?;
            Ok(Position { leaf, index })
        })
    }

    /// What `ask` says of the leaf of `goal`; none if there is no node. The caller holds a pin.
    fn at_leaf<T>(
        &self,
        goal: Goal<'_>,
        ask: impl Fn(&NodeInPlace<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        for _ in 0..LOOKS_MAX {
            let root = self.root.load(atomic::Ordering::Acquire);
            if root == 0 {
                return Ok(None);
            }
            if let Some(found) = self.down(root, goal, &ask)? {
                return Ok(Some(found));
            }
            pause();
        }
        let root = self.root.load(atomic::Ordering::Acquire);
        Err(damaged(root, "a way down from this node of the index ends at a dead one"))
    }

    /// Down from `at`; none where a node was dead.
    fn down<T>(
        &self,
        mut at: u64,
        goal: Goal<'_>,
        ask: &impl Fn(&NodeInPlace<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        // The neighbour with which the present node's range is known to end.
        let mut known_next = None;
        for _ in 0..STEPS_MAX {
            match self.one_state(at, |node| self.step(node, known_next, goal, ask))? {
                Step::To(place, next) => (at, known_next) = (place, next),
                Step::Found(found) => return Ok(Some(found)),
                Step::Dead => return Ok(None),
            }
        }
        Err(damaged(at, "the nodes of the index form a circle"))
    }

    fn step<T>(
        &self,
        node: &NodeInPlace<'_>,
        known_next: Option<u64>,
        goal: Goal<'_>,
        ask: &impl Fn(&NodeInPlace<'_>) -> Result<T>,
    ) -> Result<Step<T>> {
        if node.level == DEAD {
            return Ok(Step::Dead);
        }
        let is_unknown = known_next != Some(node.next) && node.next != 0;
        if is_unknown
            && !planted(Planted::ReaderIgnoresSplit)
            && goal.passes(|key| self.compare_low(node.next, key))?
        {
            return Ok(Step::To(node.next, None));
        }
        if node.level == 0 {
            return ask(node).map(Step::Found);
        }
        if node.len() == 0 {
            return Err(damaged(node.at(), "a node of the index has no children"));
        }
        // The key lies in the node's range, or is its end, which has the common prefix, too.
        let found = match goal.key() {
            Some(key) => {
                node.search(key_bytes(key, node.prefix), |offset| self.compare_low(offset, key))?
            }
            None => (node.len(), false),
        };
        let child = goal.child(found);
        if node.level == 1 {
            for index in goal.ahead(child, node.len()) {
                self.region.medium().prefetch(node.slot(index)?.offset, NODE_BYTES as u64);
            }
        }
        let has_next = child + 1 < node.len();
        let next = if has_next { Some(node.slot(child + 1)?.offset) } else { None };
        Ok(Step::To(node.slot(child)?.offset, next))
    }

    /// What `look` says of one state of the node at `at`.
    fn one_state<T>(&self, at: u64, look: impl Fn(&NodeInPlace<'_>) -> Result<T>) -> Result<T> {
        let medium = self.region.medium();
        if at == 0 || !medium.holds(at, NODE_BYTES as u64) {
            return Err(damaged(at, "a node of the index lies outside of the region"));
        }
        loop {
            for _ in 0..LOOKS_MAX {
                if let Some(node) = NodeInPlace::begin(medium, at) {
                    let said = look(&node);
                    if node.is_unchanged() {
                        return said;
                    }
                }
                pause();
            }
            self.require_at_rest(at)?;
        }
    }

    /// Waits for the writer, which is at another run afterwards or at none, and refuses a node that
    /// it has not left at rest. Not for the writer itself.
    fn require_at_rest(&self, at: u64) -> Result<()> {
        let _writer = self.writer.lock();
        let is_at_rest = self.region.medium().load(at + VERSION_AT).is_multiple_of(2);
        let why = "the version of a node of the index is odd, and nothing changes the node";
        if is_at_rest { Ok(()) } else { Err(damaged(at, why)) }
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
