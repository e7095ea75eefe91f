//! Which leaf covers a key: branches of leaves, and one list of branches.
//!
//! ```text
//!   top      separator 0 | separator 1 | ...        one for each branch
//!   branch   separator 0 | separator 1 | ...        one for each leaf, up to a few hundred
//!   leaf     lock, block of entries (block.rs)
//! ```
//! Two levels are enough: ten million records are about a hundred thousand leaves and five hundred
//! branches, and a split moves at most a few kilobytes of separators and pointers.
//!
//! Invariants:
//! 1. There is at least one leaf, and no branch is empty.
//! 2. A leaf covers the keys from its low end to the low end of the next leaf. The low end of the
//!    first leaf of a branch is the branch's; the first branch has none.
//! 3. Low ends never lie inside the keys of a leaf: a leaf's entries are all within what it covers.
//!
//! The caller has the lock around it (`fast_index.rs`).

use crate::block::Block;
use crate::key_hash::allocated_bytes;
use crate::separators::{Separators, shrink};
use std::sync::Arc;
use thermocline_foundation::sync::RwLock;

/// A leaf and its lock.
pub(crate) type Leaf = RwLock<Block>;

/// With its reference counts a leaf fills one size of an allocator.
#[cfg(all(target_pointer_width = "64", not(any(shuttle, loom))))]
const _: () = assert!(size_of::<Leaf>() + 16 == 256);

/// Bytes of an empty leaf: lock, prints, sums, two reference counts.
pub(crate) fn leaf_overhead_bytes() -> usize {
    allocated_bytes(size_of::<Leaf>() + 16)
}

#[derive(Debug, Default)]
struct Branch {
    lows: Separators,
    leaves: Vec<Arc<Leaf>>,
}

/// A leaf's place, valid while the lock around the top is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    branch: usize,
    leaf: usize,
}

/// All leaves in order.
#[derive(Debug)]
pub(crate) struct Top {
    lows: Separators,
    branches: Vec<Branch>,
    leaves: usize,
}

impl Top {
    /// One empty leaf.
    pub fn new() -> Self {
        let mut branch = Branch::default();
        branch.lows.insert(0, b"");
        branch.leaves.push(Arc::default());
        let mut lows = Separators::default();
        lows.insert(0, b"");
        Self { lows, branches: vec![branch], leaves: 1 }
    }

    pub fn leaves(&self) -> usize {
        self.leaves
    }

    pub fn leaf(&self, spot: Spot) -> &Arc<Leaf> {
        &self.branches[spot.branch].leaves[spot.leaf]
    }

    /// The leaf that covers `key`.
    pub fn covering(&self, key: &[u8]) -> Spot {
        let branch = self.lows.at_or_below(key);
        Spot { branch, leaf: self.branches[branch].lows.at_or_below(key) }
    }

    /// The leaf that covers the keys just below `key`.
    pub fn covering_below(&self, key: &[u8]) -> Spot {
        let branch = self.lows.below(key);
        Spot { branch, leaf: self.branches[branch].lows.below(key) }
    }

    pub fn last(&self) -> Spot {
        let branch = self.branches.len() - 1;
        Spot { branch, leaf: self.branches[branch].leaves.len() - 1 }
    }

    /// Leaf number `number` of all; `number` must be below [`Top::leaves`].
    pub fn numbered(&self, mut number: usize) -> Spot {
        for (branch, node) in self.branches.iter().enumerate() {
            if number < node.leaves.len() {
                return Spot { branch, leaf: number };
            }
            number -= node.leaves.len();
        }
        self.last()
    }

    /// The first key that the leaf at `spot` may have; none for the first leaf.
    pub fn low_end(&self, spot: Spot) -> Option<&[u8]> {
        match spot {
            Spot { branch: 0, leaf: 0 } => None,
            Spot { branch, leaf: 0 } => Some(self.lows.get(branch)),
            Spot { branch, leaf } => Some(self.branches[branch].lows.get(leaf)),
        }
    }

    /// The first key that is beyond the leaf at `spot`; none for the last leaf.
    pub fn high_end(&self, spot: Spot) -> Option<&[u8]> {
        let lows = &self.branches[spot.branch].lows;
        if spot.leaf + 1 < lows.len() {
            Some(lows.get(spot.leaf + 1))
        } else if spot.branch + 1 < self.lows.len() {
            Some(self.lows.get(spot.branch + 1))
        } else {
            None
        }
    }

    /// Puts a leaf whose low end is `low` after the one at `spot`; splits a branch that has more
    /// than `leaves_max` then.
    pub fn insert_after(&mut self, spot: Spot, low: &[u8], leaf: Arc<Leaf>, leaves_max: usize) {
        let branch = &mut self.branches[spot.branch];
        branch.lows.insert(spot.leaf + 1, low);
        branch.leaves.insert(spot.leaf + 1, leaf);
        self.leaves += 1;
        let count = branch.leaves.len();
        if count > leaves_max {
            // As with leaves: keys that arrive in order leave nearly full branches behind.
            let at = if spot.leaf + 2 == count { count - count / 8 } else { count / 2 };
            let at = at.clamp(1, count - 1);
            let right =
                Branch { lows: branch.lows.split_off(at), leaves: branch.leaves.split_off(at) };
            branch.leaves.shrink_to_fit();
            self.lows.insert(spot.branch + 1, right.lows.get(0));
            self.branches.insert(spot.branch + 1, right);
        }
    }

    /// Takes the leaf at `spot` out; what it covered is covered by a neighbour from now on. It must
    /// not be the only one. A branch that has become small joins the one before it.
    pub fn remove(&mut self, spot: Spot, leaves_max: usize) {
        assert!(self.leaves > 1, "one leaf always stays");
        let branch = &mut self.branches[spot.branch];
        branch.lows.remove(spot.leaf);
        branch.leaves.remove(spot.leaf);
        shrink(&mut branch.leaves);
        self.leaves -= 1;
        let count = branch.leaves.len();
        if count == 0 {
            self.branches.remove(spot.branch);
            self.lows.remove(spot.branch);
            shrink(&mut self.branches);
        } else if spot.branch > 0
            && count <= leaves_max / 4
            && self.branches[spot.branch - 1].leaves.len() <= leaves_max / 2
        {
            let low = self.lows.get(spot.branch).to_vec();
            let right = self.branches.remove(spot.branch);
            self.lows.remove(spot.branch);
            let left = &mut self.branches[spot.branch - 1];
            for (at, leaf) in right.leaves.into_iter().enumerate() {
                let low = if at == 0 { &low[..] } else { right.lows.get(at) };
                left.lows.insert(left.leaves.len(), low);
                left.leaves.push(leaf);
            }
        }
    }

    /// The leaf at `spot` and the one beside it in its branch, in order; none where it is alone.
    pub fn neighbours(&self, spot: Spot) -> Option<(Spot, Spot)> {
        let next = |leaf| Spot { leaf, ..spot };
        if spot.leaf + 1 < self.branches[spot.branch].leaves.len() {
            Some((spot, next(spot.leaf + 1)))
        } else if spot.leaf > 0 {
            Some((next(spot.leaf - 1), spot))
        } else {
            None
        }
    }

    /// Bytes of separators and pointers, without the leaves.
    pub fn memory_bytes(&self) -> usize {
        let branches: usize = self.branches.iter().map(Branch::memory_bytes).sum();
        let list = allocated_bytes(self.branches.capacity() * size_of::<Branch>());
        branches + list + self.lows.memory_bytes()
    }

    /// Checks the invariants; for tests.
    pub fn check(&self, leaves_max: usize) {
        assert_eq!(self.lows.len(), self.branches.len());
        assert_eq!(
            self.branches.iter().map(|branch| branch.leaves.len()).sum::<usize>(),
            self.leaves
        );
        assert!(self.leaves > 0, "there is a leaf");
        let mut low: Option<Vec<u8>> = None;
        for number in 0..self.leaves {
            let spot = self.numbered(number);
            let branch = &self.branches[spot.branch];
            assert_eq!(branch.lows.len(), branch.leaves.len());
            assert!(branch.leaves.len() <= leaves_max, "a branch of {}", branch.leaves.len());
            assert_eq!(self.low_end(spot), low.as_deref(), "no gap between leaves");
            let high = self.high_end(spot).map(<[u8]>::to_vec);
            let block = self.leaf(spot).read();
            block.check();
            if !block.is_empty() {
                let (first, last) = (block.key(0), block.key(block.len() - 1));
                assert!(low.as_deref().is_none_or(|low| low <= first), "keys below their leaf");
                assert!(high.as_deref().is_none_or(|high| last < high), "keys beyond their leaf");
            }
            assert!(number == 0 || high.is_none() || low < high, "low ends ascend");
            low = high;
        }
    }
}

impl Branch {
    fn memory_bytes(&self) -> usize {
        self.lows.memory_bytes() + allocated_bytes(self.leaves.capacity() * size_of::<Arc<Leaf>>())
    }
}
