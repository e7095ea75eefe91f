//! What the index says of one version of a key, and how a leaf stores it.
//!
//! ```text
//!   slot u64 | sequence 56 bits, clean 1 bit, kind 1 bit | record_bytes u32 | end of key u32
//! ```
//!
//! Invariant: an entry takes 24 bytes in a leaf, the place of its key included.

use thermocline_foundation::Sequence;

/// What a version says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum EntryKind {
    /// The key has no value from this sequence on: a tombstone.
    Delete = 0,
    /// The key has the value in the slot.
    Put = 1,
}

/// One version of a key on the fast tier, or in memory above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Where the record is: an address that only the slabs understand, or [`Entry::NO_SLOT`].
    pub slot: u64,
    /// When it was written.
    pub sequence: Sequence,
    /// What it says.
    pub kind: EntryKind,
    /// Whether the slow tier has the same record, so that this one can be dropped for nothing.
    pub clean: bool,
    /// Bytes of the record as its slot stores it, without the slot's padding.
    pub record_bytes: u32,
}

impl Entry {
    /// The address of a record that has no slot.
    pub const NO_SLOT: u64 = u64::MAX;

    /// A clean record that is kept in memory and has no slot.
    pub fn in_memory(sequence: Sequence) -> Self {
        let (slot, kind) = (Self::NO_SLOT, EntryKind::Put);
        Self { slot, sequence, kind, clean: true, record_bytes: 0 }
    }

    /// The record is in a slot.
    pub fn has_slot(&self) -> bool {
        self.slot != Self::NO_SLOT
    }
}

/// An entry in a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    slot: u64,
    word: u64,
    record_bytes: u32,
    /// Where the key ends in the leaf's key bytes; it begins where the one before it ends.
    pub key_end: u32,
}

const _: () = assert!(size_of::<Packed>() == 24);

const CLEAN: u64 = 2;

impl Packed {
    pub fn new(entry: &Entry, key_end: u32) -> Self {
        assert!(entry.sequence <= Sequence::MAX, "a sequence has 56 bits");
        let flags = if entry.clean { CLEAN } else { 0 } | entry.kind as u64;
        let word = entry.sequence.0 << 8 | flags;
        Self { slot: entry.slot, word, record_bytes: entry.record_bytes, key_end }
    }

    pub fn entry(&self) -> Entry {
        Entry {
            slot: self.slot,
            sequence: self.sequence(),
            kind: if self.word & 1 == 0 { EntryKind::Delete } else { EntryKind::Put },
            clean: self.is_clean(),
            record_bytes: self.record_bytes,
        }
    }

    /// The same entry in a leaf where `bytes` of keys are before its own.
    pub fn moved_by(self, bytes: u32) -> Self {
        Self { key_end: self.key_end + bytes, ..self }
    }

    pub fn sequence(&self) -> Sequence {
        Sequence(self.word >> 8)
    }

    fn is_clean(&self) -> bool {
        self.word & CLEAN != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_packed_form() {
        for (kind, clean) in [
            (EntryKind::Put, false),
            (EntryKind::Put, true),
            (EntryKind::Delete, false),
            (EntryKind::Delete, true),
        ] {
            for sequence in [Sequence::ZERO, Sequence(77), Sequence::MAX] {
                let entry =
                    Entry { slot: u64::MAX - 5, sequence, kind, clean, record_bytes: u32::MAX };
                assert_eq!(Packed::new(&entry, 9).entry(), entry);
                assert!(entry.has_slot());
            }
        }
        let entry = Entry::in_memory(Sequence(77));
        assert_eq!(Packed::new(&entry, 9).entry(), entry);
        assert!(!entry.has_slot());
    }
}
