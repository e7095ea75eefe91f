//! Where things lie in a table file: block addresses, block trailers, page placement and the
//! footer.
//!
//! ```text
//!   0          data_end                                              len - 4096     len
//!   | data blocks | filter and index partitions | properties, top index | footer page |
//!     between two copies of a dictionary, in version 3
//!
//!   block  = stored bytes | compression u8 | raw length u32 | checksum u32
//!   footer = magic 8 | version u32 | zero u32 | data_end u64 | properties 12 | top index 12
//!            | zeros | checksum u32 in the last 4 bytes of the page
//! ```
//!
//! Invariants:
//! 1. The file's length is a multiple of the page, and the footer is the whole last page.
//! 2. Blocks do not overlap; what lies between them is zero and shorter than a page.
//! 3. With page alignment, a block touches no more pages than its length needs (MyNVM, section
//!    4.1.2).
//! 4. Magic, version and the place of the footer's checksum never change, so that any version can
//!    tell a newer table from a damaged one.
//!
//! Pure functions; any thread.

use crate::block::Coding;
use thermocline_device::buffer::{PAGE_BYTES, fewest_pages};
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::coding::{DecodeError, Decoder, put_varint};
use thermocline_foundation::{FileNumber, Place, Planted, checksum, planted};

/// Longest user key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Bytes behind the stored bytes of a block.
pub const BLOCK_TRAILER_BYTES: usize = 9;

/// Longest block before compression: the largest entry, its three lengths, trailer word and the
/// block's tail. Index partitions and the top index stay far below it.
pub const RAW_BLOCK_BYTES_MAX: usize = VALUE_BYTES_MAX + 2 * KEY_BYTES_MAX + 1024;

/// What the checksum of a block at `place` is bound to: the place, but for a planted bug.
pub(crate) fn bound_to(place: Place) -> Place {
    if planted(Planted::BlockNotBound) {
        return Place { file: FileNumber(0), offset: 0, ..place };
    }
    place
}

/// The page, as a file offset.
pub const PAGE: u64 = PAGE_BYTES as u64;

/// The newest version: that of tables with a dictionary. Version 1, which is only read, has index
/// partitions of another coding.
pub const VERSION: u32 = 3;

/// The version of tables without a dictionary.
pub(crate) const VERSION_PLAIN: u32 = 2;

const MAGIC: [u8; 8] = *b"TC\x00table";
const CHECKSUM_AT: usize = PAGE_BYTES - 4;

/// Where a block lies: its stored bytes and its trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockAddress {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Stored bytes and trailer, in bytes; 0 where there is no such block.
    pub len: u32,
}

impl BlockAddress {
    /// Appends both numbers as varints: the value of an index entry.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.len));
    }

    /// Reads what [`BlockAddress::put`] wrote.
    pub(crate) fn take(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self { offset: decoder.varint()?, len: decoder.varint_u32()? })
    }

    /// The first byte behind the block.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    /// Says why this cannot be a block that ends at or before `limit`.
    pub(crate) fn check(self, limit: u64) -> Result<(), &'static str> {
        if (self.len as usize) < BLOCK_TRAILER_BYTES {
            Err("a block is shorter than its trailer")
        } else if self.len as usize > RAW_BLOCK_BYTES_MAX + BLOCK_TRAILER_BYTES {
            Err("a block is longer than any can be")
        } else if self.end() > limit {
            Err("a block reaches beyond its area")
        } else {
            Ok(())
        }
    }
}

/// Where a block of `len` bytes goes when the file is filled up to `position`.
pub(crate) fn place_block(position: u64, len: u64, align_pages: bool) -> u64 {
    if align_pages { fewest_pages(position, len) } else { position }
}

/// What the last page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The version of the table.
    pub version: u32,
    /// Where the data blocks and the dictionary behind them end, in bytes from the start of the
    /// file.
    pub data_end: u64,
    /// The properties block.
    pub properties: BlockAddress,
    /// The top-level index block.
    pub top_index: BlockAddress,
}

impl Footer {
    /// The whole last page, whose checksum is bound to `place`.
    pub fn encode(&self, place: &Place) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&self.version.to_le_bytes());
        page[16..24].copy_from_slice(&self.data_end.to_le_bytes());
        for (at, address) in [(24, self.properties), (36, self.top_index)] {
            page[at..at + 8].copy_from_slice(&address.offset.to_le_bytes());
            page[at + 8..at + 12].copy_from_slice(&address.len.to_le_bytes());
        }
        let sum = checksum(place, &page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Reads the last page of the file that `what` describes.
    pub fn decode(page: &[u8], place: &Place, what: &dyn Fn() -> String) -> Result<Self> {
        let corrupt = |why: &str| Error::corrupt(what(), place.offset, why);
        if page.len() != PAGE_BYTES || page[..8] != MAGIC {
            return Err(corrupt("the last page is not the footer of a table"));
        }
        let sum = u32::from_le_bytes([page[4092], page[4093], page[4094], page[4095]]);
        if sum != checksum(place, &page[..CHECKSUM_AT]) {
            return Err(corrupt("the footer's checksum does not match"));
        }
        let mut decoder = Decoder::new(&page[8..]);
        let footer = Self::take(&mut decoder).map_err(|error| corrupt(&error.to_string()))?;
        if footer.version == 0 {
            return Err(corrupt("no table has version 0"));
        }
        if footer.version > VERSION {
            let text = format!(
                "{} has table format {}, this software reads up to {VERSION}; upgrade it",
                what(),
                footer.version
            );
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        let limit = place.offset;
        footer.properties.check(limit).map_err(corrupt)?;
        footer.top_index.check(limit).map_err(corrupt)?;
        if footer.data_end > limit {
            return Err(corrupt("the data blocks reach beyond the footer"));
        }
        Ok(footer)
    }

    /// How the index partitions are stored.
    pub fn index_coding(&self) -> Coding {
        if self.version == 1 { Coding::Records } else { Coding::Addresses }
    }

    /// The table has a dictionary.
    pub fn has_dictionary(&self) -> bool {
        self.version > VERSION_PLAIN
    }

    fn take(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version = decoder.u32()?;
        decoder.u32()?;
        let data_end = decoder.u64()?;
        let mut address = || Ok(BlockAddress { offset: decoder.u64()?, len: decoder.u32()? });
        let (properties, top_index) = (address()?, address()?);
        Ok(Self { version, data_end, properties, top_index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::{DatabaseId, FileNumber};

    #[test]
    fn blocks_touch_no_more_pages_than_they_must() {
        assert_eq!(place_block(0, 6144, true), 0);
        assert_eq!(place_block(6144, 6144, true), 6144);
        assert_eq!(place_block(6145, 6144, true), 8192);
        assert_eq!(place_block(4000, 97, true), 4096);
        assert_eq!(place_block(4000, 96, true), 4000);
        assert_eq!(place_block(4000, 97, false), 4000);
        for position in (0..9000).step_by(37) {
            for len in (1..14_000).step_by(53) {
                let at = place_block(position, len, true);
                let pages = (at + len - 1) / PAGE - at / PAGE + 1;
                assert_eq!(pages, len.div_ceil(PAGE));
                assert!(at >= position && at - position < PAGE);
            }
        }
    }

    #[test]
    fn a_newer_footer_is_told_from_a_damaged_one() {
        let place = Place { database: DatabaseId([1; 16]), file: FileNumber(2), offset: 8192 };
        let address = BlockAddress { offset: 0, len: 100 };
        let footer =
            Footer { version: VERSION, data_end: 10, properties: address, top_index: address };
        let mut page = footer.encode(&place);
        let what = || "it".to_owned();
        assert_eq!(Footer::decode(&page, &place, &what).unwrap(), footer);
        page[8] = VERSION as u8 + 1;
        let kind = |page: &[u8]| Footer::decode(page, &place, &what).unwrap_err().kind();
        assert_eq!(kind(&page), ErrorKind::Corrupt);
        let sum = checksum(&place, &page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(kind(&page), ErrorKind::NewerFormat);
        let none = Footer { version: 0, ..footer }.encode(&place);
        assert_eq!(kind(&none), ErrorKind::Corrupt);
    }
}
