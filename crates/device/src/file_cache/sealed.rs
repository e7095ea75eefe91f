//! A sealed file of a cache: copies of blocks, a directory that says of what, and a footer that
//! says of which database. See docs/formats/cache.md.
//!
//! ```text
//!  0                            directory                         len - 4096       len
//!  | block | block | ... | 0 .. | page | page | ...               | footer page    |
//!
//!  directory page  n u32 | n x (table u64 | offset u64 | position / 16 u32 | length u32) | zeros
//!                  | checksum u32 in the last 4 bytes; n = 170 but in the last
//!  footer page     magic 8 | version u32 | zero u32 | instance 16 | generation u64
//!                  | life u64 | numbers_below u64 | directory u64 | entries u32 | zeros
//!                  | checksum u32
//! ```
//!
//! Invariants:
//! 1. Checksums of pages are bound to database, number and offset of this file; a block's is its
//!    table's affair, bound to the number and the offset there.
//! 2. A file is written front to back and sealed with directory and footer; without a footer that
//!    matches it says nothing. It is neither synced nor published, so any part of it may be
//!    missing after a crash: each page and each block is verified when it is read.
//! 3. What the directory says is checked against the file's length before memory is taken for it,
//!    and entries lie inside the blocks' area.
//! 4. Magic, version and the place of the footer's checksum never change.
//!
//! Any thread; one writes and seals a file.

use crate::buffer::{Buffer, PAGE_BYTES, fewest_pages};
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::identity::InstanceId;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::coding::{DecodeError, Decoder};
use thermocline_foundation::{FileNumber, Place, Planted, planted};

/// The version that this software writes, and the only one.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"TC\x00cache";
const PAGE: u64 = PAGE_BYTES as u64;
const CHECKSUM_AT: usize = PAGE_BYTES - 4;

/// What blocks lie at multiples of.
pub const POSITION_BYTES: u64 = 16;

const ENTRY_BYTES: usize = 24;

/// Entries of a full directory page.
pub const ENTRIES_PER_PAGE: usize = 170;
const _: () = assert!(4 + ENTRIES_PER_PAGE * ENTRY_BYTES <= CHECKSUM_AT);

/// Longest file: positions of blocks are 32 bits of [`POSITION_BYTES`].
pub const FILE_BYTES_MAX: u64 = 1 << 36;

/// A copy of a block, and of which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedBlock {
    /// The table that has the block.
    pub table: FileNumber,
    /// Bytes from the start of the table.
    pub offset: u64,
    /// Bytes from the start of this file, a multiple of [`POSITION_BYTES`].
    pub position: u64,
    /// Stored bytes, with the block's trailer.
    pub len: u32,
}

/// How blocks lie in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One behind the other.
    #[default]
    Packed,
    /// So that each touches no more pages than its length needs (MyNVM, section 4.1.2).
    Padded,
}

impl Layout {
    /// Where a block of `len` bytes goes in a file that is filled up to `position`.
    pub fn place(self, position: u64, len: u64) -> u64 {
        let position = position.next_multiple_of(POSITION_BYTES);
        match self {
            Self::Packed => position,
            Self::Padded => fewest_pages(position, len),
        }
    }
}

/// Which database filled a file, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The copy of the database that filled it.
    pub instance: InstanceId,
    /// The generation of that opening.
    pub generation: u64,
    /// What tells that opening from another of the same generation (`lives.rs`).
    pub life: u64,
    /// No file had this number or a larger one when the file was sealed.
    pub numbers_below: FileNumber,
}

/// The contents of a file's footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Which database filled it, and when.
    pub seal: Seal,
    /// Where the directory begins and blocks end, in bytes.
    pub directory: u64,
    /// Blocks in the file.
    pub entries: u32,
}

/// Pages of a directory of so many entries.
fn directory_pages(entries: u64) -> u64 {
    entries.div_ceil(ENTRIES_PER_PAGE as u64)
}

impl Sealed {
    /// Bytes that directory and footer of so many blocks take.
    pub fn overhead_bytes(entries: u64) -> u64 {
        (directory_pages(entries) + 1) * PAGE
    }

    /// Seals `file`, whose `blocks` end at or before `end`, a multiple of a page. Written and not
    /// synced.
    pub fn write(file: &File, end: u64, seal: Seal, blocks: &[CachedBlock]) -> Result<Self> {
        debug_assert!(end.is_multiple_of(PAGE) && end < FILE_BYTES_MAX);
        let sealed = Self { seal, directory: end, entries: blocks.len() as u32 };
        let pages = blocks.len().div_ceil(ENTRIES_PER_PAGE) + 1;
        let mut buffer = Buffer::zeroed(pages * PAGE_BYTES);
        let chunks = blocks.chunks(ENTRIES_PER_PAGE);
        for (number, (page, chunk)) in buffer.chunks_exact_mut(PAGE_BYTES).zip(chunks).enumerate() {
            encode_page(page, chunk, end);
            put_checksum(page, &file.place(end + number as u64 * PAGE));
        }
        let footer = end + (pages as u64 - 1) * PAGE;
        let page = &mut buffer[(pages - 1) * PAGE_BYTES..];
        sealed.encode(page);
        put_checksum(page, &file.place(footer));
        file.write(end, buffer).1?;
        Ok(sealed)
    }

    fn encode(&self, page: &mut [u8]) {
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[16..32].copy_from_slice(&self.seal.instance.0);
        page[32..40].copy_from_slice(&self.seal.generation.to_le_bytes());
        page[40..48].copy_from_slice(&self.seal.life.to_le_bytes());
        page[48..56].copy_from_slice(&self.seal.numbers_below.0.to_le_bytes());
        page[56..64].copy_from_slice(&self.directory.to_le_bytes());
        page[64..68].copy_from_slice(&self.entries.to_le_bytes());
    }

    /// Reads the footer of `file`. Fails with `Corrupt` where there is none that is intact, and
    /// with `NewerFormat` where a later version wrote it.
    pub fn read(file: &File) -> Result<Self> {
        let file_bytes = file.len()?;
        let is_long_enough = file_bytes >= PAGE && file_bytes.is_multiple_of(PAGE);
        if !is_long_enough || file_bytes > FILE_BYTES_MAX {
            let why = format!("its length of {file_bytes} bytes is not that of a sealed file");
            return Err(Error::corrupt(file.describe(), 0, why));
        }
        let at = file_bytes - PAGE;
        let page = file.read(at, PAGE_BYTES)?;
        let corrupt = |why: &str| Error::corrupt(file.describe(), at, why);
        check_page(&page, &file.place(at)).map_err(corrupt)?;
        if page[..8] != MAGIC {
            return Err(corrupt("its last page is not the footer of a sealed file"));
        }
        let (version, sealed) =
            Self::take(&page[8..]).map_err(|error| corrupt(&error.to_string()))?;
        if version > VERSION {
            let text =
                format!("{} has version {version}, this software {VERSION}", file.describe());
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        let pages = directory_pages(sealed.entries.into());
        let end = sealed.directory.checked_add(pages * PAGE);
        if version == 0 || end != Some(at) || !sealed.directory.is_multiple_of(PAGE) {
            return Err(corrupt("its directory cannot be where the footer says"));
        }
        Ok(sealed)
    }

    fn take(bytes: &[u8]) -> Result<(u32, Self), DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let version = decoder.u32()?;
        decoder.u32()?;
        let instance = InstanceId(decoder.array()?);
        let generation = decoder.u64()?;
        let life = decoder.u64()?;
        let numbers_below = FileNumber(decoder.u64()?);
        let seal = Seal { instance, generation, life, numbers_below };
        Ok((version, Self { seal, directory: decoder.u64()?, entries: decoder.u32()? }))
    }

    /// Reads the directory of `file`, of which this is the footer.
    pub fn blocks(&self, file: &File) -> Result<Vec<CachedBlock>> {
        let pages = directory_pages(self.entries.into());
        let bytes = file.read(self.directory, pages as usize * PAGE_BYTES)?;
        let mut blocks = Vec::with_capacity(self.entries as usize);
        for (number, page) in bytes.chunks_exact(PAGE_BYTES).enumerate() {
            let at = self.directory + number as u64 * PAGE;
            let corrupt = |why: &str| Error::corrupt(file.describe(), at, why);
            check_page(page, &file.place(at)).map_err(corrupt)?;
            let left = self.entries as usize - number * ENTRIES_PER_PAGE;
            self.take_page(page, left.min(ENTRIES_PER_PAGE), &mut blocks).map_err(corrupt)?;
        }
        Ok(blocks)
    }

    /// Adds the blocks of a directory page, which has `count` of them.
    fn take_page(
        &self,
        page: &[u8],
        count: usize,
        blocks: &mut Vec<CachedBlock>,
    ) -> Result<(), &'static str> {
        if page[..4] != (count as u32).to_le_bytes() {
            return Err("a page of its directory has another number of entries");
        }
        for entry in page[4..4 + count * ENTRY_BYTES].chunks_exact(ENTRY_BYTES) {
            let block = take_entry(entry).map_err(|_| "an entry of its directory is cut off")?;
            if block.len == 0 || block.position + u64::from(block.len) > self.directory {
                return Err("an entry of its directory lies outside the blocks");
            }
            blocks.push(block);
        }
        Ok(())
    }
}

fn encode_page(page: &mut [u8], blocks: &[CachedBlock], end: u64) {
    page[..4].copy_from_slice(&(blocks.len() as u32).to_le_bytes());
    let places = page[4..].chunks_exact_mut(ENTRY_BYTES);
    for (entry, block) in places.zip(blocks) {
        debug_assert!(block.position.is_multiple_of(POSITION_BYTES));
        debug_assert!(block.len > 0 && block.position + u64::from(block.len) <= end);
        entry[..8].copy_from_slice(&block.table.0.to_le_bytes());
        entry[8..16].copy_from_slice(&block.offset.to_le_bytes());
        let position = (block.position / POSITION_BYTES) as u32;
        entry[16..20].copy_from_slice(&position.to_le_bytes());
        entry[20..].copy_from_slice(&block.len.to_le_bytes());
    }
}

fn take_entry(entry: &[u8]) -> Result<CachedBlock, DecodeError> {
    let mut decoder = Decoder::new(entry);
    Ok(CachedBlock {
        table: FileNumber(decoder.u64()?),
        offset: decoder.u64()?,
        position: u64::from(decoder.u32()?) * POSITION_BYTES,
        len: decoder.u32()?,
    })
}

fn put_checksum(page: &mut [u8], place: &Place) {
    let sum = checksum(place, &page[..CHECKSUM_AT]);
    page[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
}

fn check_page(page: &[u8], place: &Place) -> Result<(), &'static str> {
    let matches = checksum(place, &page[..CHECKSUM_AT]).to_le_bytes() == page[CHECKSUM_AT..];
    match matches || planted(Planted::TornFooterBelieved) {
        true => Ok(()),
        false => Err("a page's checksum does not match"),
    }
}
