//! Nodes of the tree, 512 bytes each.
//!
//! ```text
//!    0  crc 4 (without the version) | count 1 | level 1 | common prefix 2
//!    8  version 8      16  next 8      24  low 8
//!   32  order 28       60  zero 4
//!   64  28 slots: key bytes 8 | offset 8
//! ```
//! 1. `order` is a permutation of the slots. Its first `count` sort the node's entries, the others
//!    are free: to insert changes the header line and the line of one slot.
//! 2. All keys from `low` (an object; zero: no lower end) up to the `low` of `next` (zero: no upper
//!    end) have the first `prefix` bytes in common. A slot has the eight bytes behind them, zeros
//!    behind the key's end, so that they compare as numbers. Equal ones are settled by the keys.
//! 3. A leaf (level 0) names objects. Others name nodes; the key of a child is its `low`.
//! 4. The version is even while the node is at rest. A reader that finds the same even version
//!    before and after has one state of the node, copied ([`Node`]) or read where it lies
//!    ([`NodeInPlace`]). A node whose level is [`DEAD`] is in the tree no more.

use crate::layout::{Owner, damaged};
use crate::persist::Medium;
use std::cmp::Ordering;
use thermocline_device::Error;
use thermocline_foundation::checksum::checksum_parts;

/// Bytes of a node.
pub const NODE_BYTES: usize = 512;
/// Entries of a full node.
pub const SLOTS: usize = 28;
/// The level of a node that is in the tree no more.
pub const DEAD: u8 = 0xff;

/// Where the version is in a node.
pub const VERSION_AT: u64 = 8;
const NEXT_AT: u64 = 16;
const ORDER_AT: usize = 32;
const SLOTS_AT: usize = 64;

/// One entry: key bytes as a number, and the place of an object or a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Eight bytes of the key behind the common prefix, the first the highest.
    pub key: u64,
    /// The place of the object or child.
    pub offset: u64,
}

/// A node, copied out of the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Zero for a leaf.
    pub level: u8,
    /// Bytes that all keys have in common.
    pub prefix: u16,
    /// Even while at rest.
    pub version: u64,
    /// The right neighbour; zero for none.
    pub next: u64,
    /// The object with the lower end; zero for none.
    pub low: u64,
    count: u8,
    order: [u8; SLOTS],
    slots: [Slot; SLOTS],
}

impl Node {
    /// A node without entries.
    pub fn new(level: u8, low: u64) -> Self {
        let order = std::array::from_fn(|index| index as u8);
        Self {
            level,
            prefix: 0,
            version: 0,
            next: 0,
            low,
            count: 0,
            order,
            slots: [Slot::default(); SLOTS],
        }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// The entry at `index`, in the order of the keys.
    pub fn slot(&self, index: usize) -> Slot {
        debug_assert!(index < self.len());
        self.slots[usize::from(self.order[index])]
    }

    /// All entries, in the order of the keys.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.len()).map(|index| self.slot(index))
    }

    /// Puts an entry before that at `index`. There is room.
    pub fn insert(&mut self, index: usize, slot: Slot) {
        assert!(self.len() < SLOTS, "a full node is split first");
        let count = self.len();
        let free = self.order[count];
        self.order.copy_within(index..count, index + 1);
        self.order[index] = free;
        self.slots[usize::from(free)] = slot;
        self.count += 1;
    }

    /// Changes what the entry at `index` names.
    pub fn replace(&mut self, index: usize, offset: u64) {
        self.slots[usize::from(self.order[index])].offset = offset;
    }

    /// Takes the entry at `index` out.
    pub fn remove(&mut self, index: usize) {
        let (freed, count) = (self.order[index], self.len());
        self.order.copy_within(index + 1..count, index);
        self.count -= 1;
        self.order[usize::from(self.count)] = freed;
    }

    /// The node with these entries instead.
    pub fn with_slots(&self, prefix: u16, slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut node = Self { prefix, count: 0, ..self.clone() };
        slots.into_iter().for_each(|slot| node.insert(node.len(), slot));
        node
    }

    /// The first index whose key is not less than the searched one, as far as `compare_ties` says;
    /// and whether it is equal.
    pub fn search<E>(
        &self,
        key: u64,
        compare_ties: impl FnMut(u64) -> Result<Ordering, E>,
    ) -> Result<(usize, bool), E> {
        search_slots(self.len(), |index| Ok(self.slot(index)), key, compare_ties)
    }

    /// The node as it is at `at`, and its checksum.
    pub fn encode(&self, owner: &Owner, at: u64) -> ([u8; NODE_BYTES], u32) {
        let mut bytes = [0; NODE_BYTES];
        bytes[4] = self.count;
        bytes[5] = self.level;
        bytes[6..8].copy_from_slice(&self.prefix.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.next.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.low.to_le_bytes());
        bytes[ORDER_AT..ORDER_AT + SLOTS].copy_from_slice(&self.order);
        for (part, slot) in bytes[SLOTS_AT..].chunks_mut(16).zip(&self.slots) {
            part[..8].copy_from_slice(&slot.key.to_be_bytes());
            part[8..].copy_from_slice(&slot.offset.to_le_bytes());
        }
        let sum = sum(owner, at, &bytes);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        (bytes, sum)
    }

    /// The node in `bytes`; none where its order is no permutation or its count is too high. Its
    /// checksum is not compared.
    pub fn decode(bytes: &[u8; NODE_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at / 8]);
        let mut node = Self::new(bytes[5], word(24));
        node.count = bytes[4];
        node.prefix = u16::from_le_bytes([bytes[6], bytes[7]]);
        (node.version, node.next) = (word(8), word(16));
        node.order.copy_from_slice(&bytes[ORDER_AT..ORDER_AT + SLOTS]);
        for (index, slot) in node.slots.iter_mut().enumerate() {
            let at = SLOTS_AT + 16 * index;
            *slot = Slot { key: word(at).swap_bytes(), offset: word(at + 8) };
        }
        let seen =
            node.order.iter().fold(0u32, |seen, slot| seen | 1u32.wrapping_shl(u32::from(*slot)));
        let is_permutation =
            node.order.iter().all(|slot| usize::from(*slot) < SLOTS) && seen == (1 << SLOTS) - 1;
        (is_permutation && node.len() <= SLOTS).then_some(node)
    }

    /// A state of the node at `at`, which is inside; none while it is being changed.
    pub fn try_read(medium: &Medium, at: u64) -> Option<[u8; NODE_BYTES]> {
        let before = medium.load(at + VERSION_AT);
        if !before.is_multiple_of(2) {
            return None;
        }
        let mut bytes = [0; NODE_BYTES];
        medium.read(at, &mut bytes);
        (medium.load(at + VERSION_AT) == before).then_some(bytes)
    }
}

/// A node that is read where it lies: its header, and of its slots what is asked for.
#[derive(Debug)]
pub struct NodeInPlace<'a> {
    medium: &'a Medium,
    at: u64,
    version: u64,
    /// Zero for a leaf.
    pub level: u8,
    /// Bytes that all keys have in common.
    pub prefix: u16,
    /// The right neighbour; zero for none.
    pub next: u64,
    count: u8,
    order: [u8; SLOTS],
}

impl<'a> NodeInPlace<'a> {
    /// The node at `at`, which is inside; none while it is being changed.
    pub fn begin(medium: &'a Medium, at: u64) -> Option<Self> {
        medium.prefetch(at, NODE_BYTES as u64);
        let version = medium.load(at + VERSION_AT);
        if !version.is_multiple_of(2) {
            return None;
        }
        let [_, _, _, _, count, level, prefix @ ..] = medium.load(at).to_le_bytes();
        let mut order = [0; SLOTS];
        medium.read(at + ORDER_AT as u64, &mut order);
        let (prefix, next) = (u16::from_le_bytes(prefix), medium.load(at + NEXT_AT));
        Some(Self { medium, at, version, level, prefix, next, count, order })
    }

    /// All that was read of the node is of one state. Where it is not, what was read may be
    /// anything, and so may an error.
    pub fn is_unchanged(&self) -> bool {
        self.medium.load(self.at + VERSION_AT) == self.version
    }

    /// Where it lies.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Entries.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// The entry at `index`, in the order of the keys.
    pub fn slot(&self, index: usize) -> Result<Slot, Error> {
        let slot = self.order.get(index).filter(|slot| usize::from(**slot) < SLOTS);
        let slot = slot.ok_or_else(|| self.not_whole())?;
        let at = self.at + SLOTS_AT as u64 + 16 * u64::from(*slot);
        Ok(Slot { key: self.medium.load(at).swap_bytes(), offset: self.medium.load(at + 8) })
    }

    /// As [`Node::search`].
    pub fn search(
        &self,
        key: u64,
        compare_ties: impl FnMut(u64) -> Result<Ordering, Error>,
    ) -> Result<(usize, bool), Error> {
        search_slots(self.len(), |index| self.slot(index), key, compare_ties)
    }

    /// All of it.
    pub fn copy(&self) -> Result<Node, Error> {
        let mut bytes = [0; NODE_BYTES];
        self.medium.read(self.at, &mut bytes);
        Node::decode(&bytes).ok_or_else(|| self.not_whole())
    }

    fn not_whole(&self) -> Error {
        damaged(self.at, "a node of the index is not whole")
    }
}

/// The first of `len` slots, sorted by keys, that is not before `key`, and whether it is equal.
fn search_slots<E>(
    len: usize,
    slot: impl Fn(usize) -> Result<Slot, E>,
    key: u64,
    mut compare_ties: impl FnMut(u64) -> Result<Ordering, E>,
) -> Result<(usize, bool), E> {
    let (mut low, mut high, mut is_equal) = (0, len, false);
    while low < high {
        let middle = usize::midpoint(low, high);
        let slot = slot(middle)?;
        let ordering = match slot.key.cmp(&key) {
            Ordering::Equal => compare_ties(slot.offset)?,
            other => other,
        };
        match ordering {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => {
                (low, high, is_equal) = (middle, middle, true);
            }
            Ordering::Greater => high = middle,
        }
    }
    Ok((low, is_equal))
}

/// The checksum of a node's bytes.
pub fn sum(owner: &Owner, at: u64, bytes: &[u8; NODE_BYTES]) -> u32 {
    checksum_parts(&owner.at(at), &[&bytes[4..8], &bytes[16..]])
}

/// The level of the node whose first word this is.
pub fn level_of(first: u64) -> u8 {
    first.to_le_bytes()[5]
}

/// The checksum that stands in a node's bytes.
pub fn stored_sum(bytes: &[u8; NODE_BYTES]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The eight bytes of `key` behind a common prefix, as a number.
pub fn key_bytes(key: &[u8], prefix: u16) -> u64 {
    let rest = key.get(usize::from(prefix)..).unwrap_or_default();
    let mut bytes = [0; 8];
    let length = rest.len().min(8);
    bytes[..length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(bytes)
}

/// Bytes that all keys from `low` up to `high` have in common.
pub fn common_prefix(low: &[u8], high: Option<&[u8]>) -> u16 {
    let equal = |high: &[u8]| low.iter().zip(high).take_while(|(a, b)| a == b).count();
    high.map_or(0, |high| equal(high).min(usize::from(u16::MAX)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::{DatabaseId, FileNumber};

    const OWNER: Owner = Owner { database: DatabaseId([7; 16]), number: FileNumber(1) };

    #[test]
    fn an_insert_changes_the_header_line_and_the_line_of_one_slot() {
        let mut node = Node::new(0, 0);
        for key in [50, 10, 30, 20, 40] {
            let before = node.encode(&OWNER, 4096).0;
            let (index, _) = node.search(key, |_| Ok::<_, ()>(Ordering::Equal)).unwrap();
            node.insert(index, Slot { key, offset: key * 8 });
            let after = node.encode(&OWNER, 4096).0;
            let lines = before.chunks(64).zip(after.chunks(64)).filter(|(a, b)| a != b).count();
            assert!(lines <= 2);
        }
        node.remove(1);
        node.replace(0, 7);
        let keys: Vec<_> = node.slots().map(|slot| slot.key).collect();
        assert_eq!(keys, [10, 30, 40, 50]);
        let bytes = node.encode(&OWNER, 4096).0;
        assert_eq!(Node::decode(&bytes).unwrap(), node);
        assert_eq!(stored_sum(&bytes), sum(&OWNER, 4096, &bytes));
        let mut versioned = bytes;
        versioned[8] = 2;
        assert_eq!(sum(&OWNER, 4096, &versioned), sum(&OWNER, 4096, &bytes));
    }

    #[test]
    fn a_node_in_its_place_is_as_its_copy_until_it_changes() {
        let mut node = Node::new(1, 0);
        (0..9).for_each(|key| node.insert(0, Slot { key: 90 - key, offset: key * 8 }));
        node.remove(4);
        let mut bytes = vec![0; 4096];
        bytes.extend(node.encode(&OWNER, 4096).0);
        let medium = Medium::in_memory(&bytes);
        let placed = NodeInPlace::begin(&medium, 4096).unwrap();
        assert_eq!(placed.copy().unwrap(), node);
        assert_eq!(
            (placed.level, placed.prefix, placed.next),
            (node.level, node.prefix, node.next)
        );
        let slots: Vec<_> = (0..placed.len()).map(|index| placed.slot(index).unwrap()).collect();
        assert!(slots.into_iter().eq(node.slots()));
        for key in 80..93 {
            let in_copy = node.search(key, |_| Ok::<_, ()>(Ordering::Equal)).unwrap();
            assert_eq!(placed.search(key, |_| Ok(Ordering::Equal)).unwrap(), in_copy);
        }
        assert!(placed.is_unchanged());
        medium.store(4096 + VERSION_AT, 1);
        assert!(!placed.is_unchanged() && NodeInPlace::begin(&medium, 4096).is_none());
    }

    #[test]
    fn an_order_that_leads_out_of_the_node_is_damage() {
        let mut node = Node::new(1, 0);
        (0..3).for_each(|key| node.insert(0, Slot { key, offset: 8 }));
        for (at, byte) in [(ORDER_AT + 1, 28), (ORDER_AT + 1, 255), (4, 29), (4, 255)] {
            let mut bytes = node.encode(&OWNER, 0).0;
            bytes[at] = byte;
            let medium = Medium::in_memory(&bytes);
            let placed = NodeInPlace::begin(&medium, 0).unwrap();
            let found = placed.search(u64::MAX, |_| Ok(Ordering::Equal));
            assert!(found.is_err() && placed.copy().is_err(), "{at} {byte}");
        }
    }

    #[test]
    fn key_bytes_compare_as_the_keys_do_or_are_equal() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefgh", b"abcdefghi"];
        for pair in keys.windows(2) {
            assert!(key_bytes(pair[0], 0) <= key_bytes(pair[1], 0));
        }
        assert_eq!(common_prefix(b"user10", Some(b"user2")), 4);
        assert_eq!(common_prefix(b"user10", None), 0);
        assert_eq!(key_bytes(b"user10", 4), 0x3130 << 48);
    }
}
