//! Where a slot is, in memory: a word that the engine's index keeps for each record.
//!
//! 1. An id is given out once while the store is open, so an address that was kept too long leads
//!    nowhere and not to another slab's slot.
//! 2. Ids are not durable: the manifest names slabs by file number.
//!
//! Plain values; any thread.

use std::fmt;

/// A slab of an open store, counted from 0. In memory only; [`crate::Slabs::file_number`] and
/// [`crate::Slabs::id_of`] lead to the file's number and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlabId(pub u32);

/// A slot of a slab of an open store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotAddress {
    /// The slab.
    pub slab: SlabId,
    /// Slots from the start of the slab.
    pub slot: u32,
}

impl SlotAddress {
    /// Slab and slot in one word, ordered as the address is.
    pub fn pack(self) -> u64 {
        u64::from(self.slab.0) << 32 | u64::from(self.slot)
    }

    /// What [`SlotAddress::pack`] made.
    pub fn unpack(word: u64) -> Self {
        Self { slab: SlabId((word >> 32) as u32), slot: word as u32 }
    }
}

impl fmt::Display for SlotAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {} of slab {}", self.slot, self.slab.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_word_and_keeps_its_order() {
        let address = |slab, slot| SlotAddress { slab: SlabId(slab), slot };
        let all = [address(0, 0), address(0, u32::MAX), address(1, 0), address(u32::MAX, 7)];
        assert!(all.is_sorted_by_key(|address| address.pack()));
        assert!(all.iter().all(|address| SlotAddress::unpack(address.pack()) == *address));
    }
}
