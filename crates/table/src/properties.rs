//! What a table says of itself: tagged records, so that later versions can add some and earlier
//! ones skip them.
//!
//! ```text
//!   properties block = (tag varint | length varint | bytes)*
//!   bytes            = a key, a number as a varint, or an address as two
//! ```
//! Invariants: tags ascend and occur once; unknown tags are ignored; a known one that is missing is
//! zero or empty.

use crate::dictionary::Copies;
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress};
use thermocline_foundation::Sequence;
use thermocline_foundation::coding::{DecodeError, Decoder, put_bytes, put_varint};

/// Counts and bounds of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub deletes: u64,
    /// Bytes of all user keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Partitions of index and filter.
    pub partitions: u64,
    /// Zero bytes between data blocks that page alignment costs.
    pub padding_bytes: u64,
    /// The lowest sequence of an entry; 0 in an empty table.
    pub smallest_sequence: Sequence,
    /// The highest sequence of an entry.
    pub largest_sequence: Sequence,
    /// The first user key.
    pub smallest_key: Vec<u8>,
    /// The last user key.
    pub largest_key: Vec<u8>,
    /// Filter bits a key; 0 for no filter.
    pub filter_bits_per_key: u8,
    /// Where the copies of the table's dictionary lie, if it has one.
    pub dictionary: Option<Copies>,
    /// What the dictionary saves, its copies counted, as far as the first blocks tell.
    pub dictionary_saved_bytes: u64,
    /// The newest sequence that there was when a table was finished whose entries have none of
    /// their own; 0 where that is not known, and in other tables.
    pub follows: Sequence,
}

impl Properties {
    /// Bytes of the table's dictionary; 0 where it has none.
    pub fn dictionary_bytes(&self) -> u64 {
        let stored = self.dictionary.map_or(0, |[first, _]| first.len as usize);
        stored.saturating_sub(BLOCK_TRAILER_BYTES) as u64
    }

    /// The properties block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = [
            self.entries,
            self.deletes,
            self.raw_key_bytes,
            self.raw_value_bytes,
            self.data_blocks,
            self.partitions,
            self.padding_bytes,
            self.smallest_sequence.0,
            self.largest_sequence.0,
            u64::from(self.filter_bits_per_key),
        ];
        let mut out = Vec::new();
        for (tag, number) in (1..).zip(numbers) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            put_varint(&mut out, tag);
            put_bytes(&mut out, &bytes);
        }
        if let Some([first, second]) = self.dictionary {
            for (tag, copy) in [(11, first), (12, second)] {
                let mut bytes = Vec::new();
                copy.put(&mut bytes);
                put_varint(&mut out, tag);
                put_bytes(&mut out, &bytes);
            }
            let mut bytes = Vec::new();
            put_varint(&mut bytes, self.dictionary_saved_bytes);
            put_varint(&mut out, 13);
            put_bytes(&mut out, &bytes);
        }
        if self.follows > Sequence::ZERO {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, self.follows.0);
            put_varint(&mut out, 14);
            put_bytes(&mut out, &bytes);
        }
        for (tag, key) in [(32, &self.smallest_key), (33, &self.largest_key)] {
            put_varint(&mut out, tag);
            put_bytes(&mut out, key);
        }
        out
    }

    /// Reads a properties block.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut it = Self::default();
        let mut copies = [None, None];
        while !decoder.is_empty() {
            let (tag, bytes) = (decoder.varint()?, decoder.bytes()?);
            let number = || Decoder::new(bytes).varint();
            match tag {
                1 => it.entries = number()?,
                2 => it.deletes = number()?,
                3 => it.raw_key_bytes = number()?,
                4 => it.raw_value_bytes = number()?,
                5 => it.data_blocks = number()?,
                6 => it.partitions = number()?,
                7 => it.padding_bytes = number()?,
                8 => it.smallest_sequence = Sequence(number()?),
                9 => it.largest_sequence = Sequence(number()?),
                10 => {
                    let bits = u8::try_from(number()?);
                    it.filter_bits_per_key = bits.map_err(|_| DecodeError::Overflow)?;
                }
                11 => copies[0] = Some(BlockAddress::take(&mut Decoder::new(bytes))?),
                12 => copies[1] = Some(BlockAddress::take(&mut Decoder::new(bytes))?),
                13 => it.dictionary_saved_bytes = number()?,
                14 => it.follows = Sequence(number()?),
                32 => it.smallest_key = bytes.to_vec(),
                33 => it.largest_key = bytes.to_vec(),
                _ => {}
            }
        }
        if let [Some(first), Some(second)] = copies {
            it.dictionary = Some([first, second]);
        }
        Ok(it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tags_are_skipped_and_cut_ones_are_errors() {
        let properties = Properties {
            entries: 300,
            deletes: 7,
            largest_sequence: Sequence::MAX,
            smallest_key: b"cold".to_vec(),
            largest_key: b"warm".to_vec(),
            filter_bits_per_key: 10,
            dictionary: Some([0, 1 << 40].map(|offset| BlockAddress { offset, len: 1 << 14 })),
            dictionary_saved_bytes: 1 << 33,
            follows: Sequence(1 << 40),
            ..Properties::default()
        };
        let mut bytes = properties.encode();
        for len in 0..bytes.len() {
            // A cut at a record's end is not seen here; the block's checksum covers the length.
            drop(Properties::decode(&bytes[..len]));
        }
        assert!(Properties::decode(&bytes[..bytes.len() - 1]).is_err());
        put_varint(&mut bytes, 1000);
        put_bytes(&mut bytes, b"from a later version");
        assert_eq!(Properties::decode(&bytes), Ok(properties));
    }
}
