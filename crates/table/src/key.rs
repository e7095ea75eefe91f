//! The order of entries: user key ascending, then trailer descending.
//!
//! A trailer is one 64-bit word, `sequence << 8 | kind`. Descending order puts the newest version
//! of a key first, so "the newest at or below a snapshot" is the first entry at or after `(key,
//! snapshot)`.
//!
//! Invariant: a [`Trailer`] always has a known kind; one from disk goes through
//! [`Trailer::decode`].

use std::cmp::Ordering;
use thermocline_foundation::Sequence;

/// What an entry says of its key. Stored in a byte; a byte that is not listed here is corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecordKind {
    /// The key has no value from this sequence on: a tombstone.
    Delete = 0,
    /// The key has the entry's value.
    Put = 1,
}

/// Sequence and kind of an entry in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Trailer(u64);

impl Trailer {
    /// Joins the two.
    pub fn new(sequence: Sequence, kind: RecordKind) -> Self {
        debug_assert!(sequence <= Sequence::MAX, "a sequence has 56 bits");
        Self(sequence.0 << 8 | kind as u64)
    }

    /// The trailer that sorts before (or with) every entry of a key at or below `sequence`: where a
    /// look-up starts.
    pub fn newest_at(sequence: Sequence) -> Self {
        Self::new(sequence, RecordKind::Put)
    }

    /// The trailer in a stored word; none where the kind is unknown.
    pub fn decode(word: u64) -> Option<Self> {
        (word & 0xff <= RecordKind::Put as u64).then_some(Self(word))
    }

    /// The word that is stored.
    pub fn word(self) -> u64 {
        self.0
    }

    /// When the entry was written.
    pub fn sequence(self) -> Sequence {
        Sequence(self.0 >> 8)
    }

    /// What the entry says.
    pub fn kind(self) -> RecordKind {
        if self.0 & 0xff == 0 { RecordKind::Delete } else { RecordKind::Put }
    }
}

/// The order of entries in every table, memtable and merge.
#[inline]
pub fn compare(a_key: &[u8], a_trailer: Trailer, b_key: &[u8], b_trailer: Trailer) -> Ordering {
    compare_words(a_key, a_trailer.0, b_key, b_trailer.0)
}

/// As [`compare`], on raw words: index entries and search bounds need not have a known kind.
#[inline]
pub(crate) fn compare_words(a_key: &[u8], a: u64, b_key: &[u8], b: u64) -> Ordering {
    a_key.cmp(b_key).then_with(|| b.cmp(&a))
}

/// The raw word before which no entry at or below `sequence` lies, whatever kinds come to exist.
pub(crate) fn seek_word(sequence: Sequence) -> u64 {
    sequence.0 << 8 | 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_sort_first_and_unknown_kinds_do_not_decode() {
        let at = |n| Trailer::new(Sequence(n), RecordKind::Put);
        assert_eq!(compare(b"a", at(2), b"a", at(1)), Ordering::Less);
        assert_eq!(compare(b"a", at(1), b"b", at(9)), Ordering::Less);
        assert_eq!(compare(b"", at(1), b"", at(1)), Ordering::Equal);
        let delete = Trailer::new(Sequence(7), RecordKind::Delete);
        assert_eq!((delete.kind(), delete.sequence()), (RecordKind::Delete, Sequence(7)));
        assert_eq!(compare(b"a", at(7), b"a", delete), Ordering::Less);
        assert_eq!(Trailer::decode(7 << 8 | 2), None);
        assert_eq!(Trailer::decode(delete.word()), Some(delete));
        assert_eq!(at(Sequence::MAX.0).sequence(), Sequence::MAX);
    }
}
