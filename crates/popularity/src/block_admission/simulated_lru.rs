//! The keys that a cache would hold which keeps blocks by least recent use and admits all of them
//! (MyNVM, section 4.3): a block that is missed is worth the real cache's writes if this one would
//! still have it.
//!
//! ```text
//!   heads   one u32 for four nodes     node, 16 B   signature | newer | older | next of the chain
//!             '-> chain of nodes         newest <-> ... <-> oldest, which leaves first
//! ```
//! A key is known by 32 bits of its hash beside those that its chain is chosen by.
//!
//! Invariants:
//! 1. There are at most as many nodes as blocks of the usual length fit into the bytes; the usual
//!    length is a running mean of what was touched.
//! 2. Each node is in one chain, and in the order of use once.

/// No node.
const NONE: u32 = u32::MAX;

/// Nodes of a chain at most, on average: longer ones take longer to look through, shorter ones more
/// memory for heads.
const CHAIN: usize = 4;

/// The running mean of lengths takes in this part of each.
const MEAN_SHARE: u64 = 256;

#[derive(Clone, Copy, Debug)]
struct Node {
    signature: u32,
    newer: u32,
    older: u32,
    chained: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SimulatedLru {
    bytes: u64,
    /// The running mean of lengths, times [`MEAN_SHARE`].
    mean: u64,
    nodes: Vec<Node>,
    /// The first node of each chain; as many as a power of two.
    heads: Vec<u32>,
    newest: u32,
    oldest: u32,
    /// Nodes that hold nothing.
    free: Vec<u32>,
}

impl SimulatedLru {
    /// Of a cache of `bytes`, whose blocks are expected to have `block_bytes`.
    pub fn new(bytes: u64, block_bytes: u64) -> Self {
        Self {
            bytes,
            mean: block_bytes.max(1) * MEAN_SHARE,
            nodes: Vec::new(),
            heads: vec![NONE; 64],
            newest: NONE,
            oldest: NONE,
            free: Vec::new(),
        }
    }

    /// Whether the cache would have the block of `hash`; from now on it would.
    pub fn touch(&mut self, hash: u64, len: u32) -> bool {
        self.mean = (self.mean - self.mean / MEAN_SHARE + u64::from(len)).max(MEAN_SHARE);
        let found = self.find(hash);
        match found {
            Some(node) => self.unlink(node),
            None => self.make_room(),
        }
        let node = found.unwrap_or_else(|| self.insert(hash));
        self.link_newest(node);
        found.is_some()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        let nodes = self.nodes.capacity() * size_of::<Node>();
        (nodes + (self.heads.capacity() + self.free.capacity()) * size_of::<u32>()) as u64
    }

    /// Blocks that the cache would have.
    pub fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// It would have none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn nodes_max(&self) -> usize {
        let blocks = self.bytes.saturating_mul(MEAN_SHARE) / self.mean;
        blocks.clamp(1, u64::from(NONE) - 1) as usize
    }

    fn chain_of(&self, hash: u64) -> usize {
        hash as usize & (self.heads.len() - 1)
    }

    fn find(&self, hash: u64) -> Option<u32> {
        let mut at = self.heads[self.chain_of(hash)];
        while at != NONE && self.nodes[at as usize].signature != signature(hash) {
            at = self.nodes[at as usize].chained;
        }
        (at != NONE).then_some(at)
    }

    /// Lets the oldest leave until one more fits.
    fn make_room(&mut self) {
        while self.len() >= self.nodes_max() {
            let oldest = self.oldest;
            self.unlink(oldest);
            self.unchain(oldest);
            self.free.push(oldest);
        }
    }

    /// A node for `hash`, in its chain.
    fn insert(&mut self, hash: u64) -> u32 {
        if self.nodes.len() >= CHAIN * self.heads.len() {
            self.rehash();
        }
        let chain = self.chain_of(hash);
        let chained = self.heads[chain];
        let node = Node { signature: signature(hash), newer: NONE, older: NONE, chained };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                if self.nodes.len() == self.nodes.capacity() {
                    self.nodes.reserve_exact(self.growth());
                }
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.heads[chain] = at;
        at
    }

    /// Nodes to make room for: a quarter as many again, and none beyond what there may be.
    fn growth(&self) -> usize {
        let most = self.nodes_max().saturating_sub(self.nodes.len());
        most.clamp(1, self.nodes.len() / 4 + 64)
    }

    fn unchain(&mut self, at: u32) {
        let Node { signature, chained, .. } = self.nodes[at as usize];
        let chain = self.chain_of(u64::from(signature));
        if self.heads[chain] == at {
            self.heads[chain] = chained;
            return;
        }
        let mut before = self.heads[chain];
        while self.nodes[before as usize].chained != at {
            before = self.nodes[before as usize].chained;
        }
        self.nodes[before as usize].chained = chained;
    }

    /// Twice as many chains.
    fn rehash(&mut self) {
        self.heads = vec![NONE; self.heads.len() * 2];
        let mut at = self.oldest;
        while at != NONE {
            let chain = self.chain_of(u64::from(self.nodes[at as usize].signature));
            self.nodes[at as usize].chained = self.heads[chain];
            self.heads[chain] = at;
            at = self.nodes[at as usize].newer;
        }
    }

    fn link_newest(&mut self, at: u32) {
        let older = self.newest;
        let node = &mut self.nodes[at as usize];
        (node.newer, node.older) = (NONE, older);
        match older {
            NONE => self.oldest = at,
            older => self.nodes[older as usize].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}

/// What a key is known by; chains are chosen by its low bits.
fn signature(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use thermocline_foundation::random::{Random, mix};

    #[test]
    fn it_has_what_a_plain_list_by_least_recent_use_has() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let blocks = 1 + random.below(400);
            let mut lru = SimulatedLru::new(blocks * 4096, 4096);
            let mut list = VecDeque::new();
            for _ in 0..6000 {
                let hash = mix(random.below(600));
                let at = list.iter().position(|other| *other == hash);
                assert_eq!(lru.touch(hash, 4096), at.is_some());
                at.map(|at| list.remove(at));
                list.push_front(hash);
                list.truncate(blocks as usize);
                assert_eq!(lru.len(), list.len());
            }
        }
    }

    #[test]
    fn longer_blocks_mean_fewer_of_them() {
        let mut lru = SimulatedLru::new(100 * 4096, 4096);
        for number in 0..1000 {
            lru.touch(mix(number), 4096);
        }
        assert_eq!(lru.len(), 100);
        for number in 0..10_000 {
            lru.touch(mix(number), 16_384);
        }
        assert!((25..=27).contains(&lru.len()), "{}", lru.len());
    }

    #[test]
    fn a_key_takes_eighteen_bytes_whatever_the_capacity() {
        for keys in [1_000, 33_000, 40_000, 100_000] {
            let mut lru = SimulatedLru::new(keys * 4096, 4096);
            for number in 0..2 * keys {
                lru.touch(mix(number), 4096);
            }
            let bytes = lru.memory_bytes() as f64 / lru.len() as f64;
            assert!(bytes <= 18.1, "{bytes} of each of {keys}");
        }
    }
}
