//! Checks a whole table, byte by byte.
//!
//! Everything the format page promises is checked: each byte belongs to exactly one block, to zero
//! padding or to the footer; checksums match; entries ascend, lie between their separators, are
//! found by their block's hash index and pass their filter; counts and bounds equal the properties.
//! The cache is neither asked nor filled.
//!
//! Any thread; reads the file once, a block at a time.

use crate::block::{Block, Coding, Cursor, Lookup};
use crate::filter::{FILTER_BLOCK_BYTES, key_hash, may_contain};
use crate::format::{BlockAddress, Footer, PAGE};
use crate::key::{RecordKind, Trailer, compare_words};
use crate::properties::Properties;
use crate::read_ahead::{Direction, ReadAhead, Reader};
use crate::reader::{HeldDictionary, TableReader};
use crate::stored::{parse, read_block, read_plain};
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;
use thermocline_device::{Buffer, Error, Result};
use thermocline_foundation::Sequence;
use thermocline_foundation::compression::Dictionary;

/// What an intact table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub deletes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Partitions of index and filter.
    pub partitions: u64,
    /// Bytes checked: the length of the file.
    pub bytes: u64,
}

pub(crate) fn verify(table: &TableReader, progress: &mut dyn FnMut(u64)) -> Result<VerifySummary> {
    let mut walk = Walk::new(table, progress);
    walk.moved(table.top(), table.top().check_restarts(true))?;
    let mut top = Cursor::new(table.top().clone());
    walk.moved(table.top(), top.seek_first())?;
    walk.first_copy()?;
    let mut metadata = Vec::new();
    while top.valid() {
        let (index, filter) = table.partition(top.value())?;
        metadata.extend([filter, index].into_iter().filter(|address| address.len > 0));
        walk.partition(index, filter, (top.key(), top.word()))?;
        walk.moved(table.top(), top.step())?;
    }
    walk.second_copy()?;
    walk.cover_apart(BlockAddress { offset: table.footer().data_end, len: 0 })?;
    for address in metadata {
        walk.cover_apart(address)?;
    }
    walk.end()
}

/// The walk over the file, in the order of offsets, and over the entries, in theirs.
struct Walk<'a> {
    table: &'a TableReader,
    progress: &'a mut dyn FnMut(u64),
    reader: Reader,
    /// Everything before this offset is checked.
    covered: u64,
    seen: Properties,
    last: Option<(Vec<u8>, u64)>,
    dictionary: HeldDictionary,
}

impl<'a> Walk<'a> {
    fn new(table: &'a TableReader, progress: &'a mut dyn FnMut(u64)) -> Self {
        let mode = ReadAhead::Stream { window_bytes: 1 << 20 };
        let reader = Reader::new(Arc::clone(table.file()), table.footer().data_end, mode);
        let seen = Properties { smallest_sequence: Sequence::MAX, ..Properties::default() };
        Self { table, progress, reader, covered: 0, seen, last: None, dictionary: None }
    }

    fn corrupt(&self, offset: u64, why: impl std::fmt::Display) -> Error {
        Error::corrupt(self.table.file().describe(), offset, why)
    }

    fn moved(&self, block: &Block, moved: Result<(), &'static str>) -> Result<()> {
        moved.map_err(|why| self.table.broken(block, why))
    }

    /// Zero bytes between what is covered and `offset`: fewer than a page.
    fn gap(&self, offset: u64) -> Result<u32> {
        let gap = offset.checked_sub(self.covered).filter(|gap| *gap < PAGE);
        gap.map(|gap| gap as u32)
            .ok_or_else(|| self.corrupt(offset, "a block overlaps another or lies apart"))
    }

    /// The block at `address`, already checked, is next in the file behind `padding`.
    fn cover(&mut self, address: BlockAddress, padding: &[u8]) -> Result<()> {
        if let Some(at) = padding.iter().position(|byte| *byte != 0) {
            return Err(self.corrupt(self.covered + at as u64, "the padding is not zero"));
        }
        (self.progress)(address.end() - self.covered);
        self.covered = address.end();
        Ok(())
    }

    /// As [`Walk::cover`], for a block whose padding was not read with it.
    fn cover_apart(&mut self, address: BlockAddress) -> Result<()> {
        let gap = self.gap(address.offset)?;
        let padding = match gap {
            0 => Buffer::default(),
            gap => self.table.file().read(self.covered, gap as usize)?,
        };
        self.cover(address, &padding)
    }

    /// The copy of the dictionary before all data. Each copy must be sound, though one would do.
    fn first_copy(&mut self) -> Result<()> {
        let Some([first, second]) = self.table.properties().dictionary else { return Ok(()) };
        let [one, other] = [first, second].map(|copy| read_plain(self.table.file(), copy));
        let one = one?;
        if one != other? {
            return Err(self.corrupt(second.offset, "the copies of the dictionary differ"));
        }
        Dictionary::prepare(&one).map_err(|why| self.corrupt(first.offset, why))?;
        self.cover_apart(first)
    }

    /// The copy behind all data.
    fn second_copy(&mut self) -> Result<()> {
        let copies = self.table.properties().dictionary;
        copies.map_or(Ok(()), |[_, second]| self.cover_apart(second))
    }

    fn partition(
        &mut self,
        index: BlockAddress,
        filter: BlockAddress,
        bound: (&[u8], u64),
    ) -> Result<()> {
        let filter_bytes = match filter.len {
            0 => Bytes::new(),
            _ => read_block(self.table.file(), filter)?,
        };
        let filtered = self.table.properties().filter_bits_per_key > 0;
        if filtered == filter_bytes.is_empty()
            || !filter_bytes.len().is_multiple_of(FILTER_BLOCK_BYTES)
        {
            return Err(self.corrupt(filter.offset, "a filter's length is wrong"));
        }
        let block = self.table.index_block(index, false)?;
        let every = self.table.footer().index_coding() == Coding::Records;
        self.moved(&block, block.check_restarts(every))?;
        let mut cursor = Cursor::new(block.clone());
        self.moved(&block, cursor.seek_first())?;
        if !cursor.valid() {
            return Err(self.corrupt(index.offset, "an index partition is empty"));
        }
        while cursor.valid() {
            let address = self.table.data_block_address(&block, cursor.address())?;
            if block.address(cursor.key(), cursor.word()) != Ok(Some(address)) {
                return Err(self.table.broken(&block, "a separator does not lead to its block"));
            }
            self.data_block(address, &filter_bytes, (cursor.key(), cursor.word()))?;
            // The part of the top index: nothing of the partition may lie behind its separator.
            let beyond = compare_words(cursor.key(), cursor.word(), bound.0, bound.1);
            if beyond == Ordering::Greater {
                return Err(self.corrupt(index.offset, "a partition reaches beyond its separator"));
            }
            self.moved(&block, cursor.step())?;
        }
        self.seen.partitions += 1;
        Ok(())
    }

    fn data_block(
        &mut self,
        address: BlockAddress,
        filter: &[u8],
        bound: (&[u8], u64),
    ) -> Result<()> {
        let file = self.table.file();
        // The padding before the block comes with the block, in one window.
        let gap = self.gap(address.offset)?;
        let with_gap = BlockAddress { offset: self.covered, len: gap + address.len };
        let stored = self.reader.block(with_gap, Direction::Forward)?;
        self.cover(address, &stored[..gap as usize])?;
        let stored = stored.slice(gap as usize..);
        let raw = self.table.open_shared(address, &stored, Some(&mut self.dictionary))?;
        let block = parse(file, address, raw, Coding::Records)?;
        self.moved(&block, block.check_restarts(false))?;
        let mut cursor = Cursor::new(block.clone());
        self.moved(&block, cursor.seek_first())?;
        if !cursor.valid() {
            return Err(self.corrupt(address.offset, "a data block is empty"));
        }
        while cursor.valid() {
            self.entry(&block, &cursor, filter)?;
            self.moved(&block, cursor.step())?;
        }
        if let Some((key, word)) = &self.last
            && compare_words(key, *word, bound.0, bound.1) == Ordering::Greater
        {
            return Err(self.corrupt(address.offset, "a data block reaches beyond its separator"));
        }
        self.last_bound_is(bound);
        self.seen.data_blocks += 1;
        Ok(())
    }

    /// The next block's entries must lie behind the separator, not only behind the last entry.
    fn last_bound_is(&mut self, bound: (&[u8], u64)) {
        self.seen.largest_key.clear();
        if let Some((key, word)) = &mut self.last {
            self.seen.largest_key.extend_from_slice(key);
            key.clear();
            key.extend_from_slice(bound.0);
            *word = bound.1;
        }
    }

    fn entry(&mut self, block: &Block, cursor: &Cursor, filter: &[u8]) -> Result<()> {
        let broken = |why| Err(self.table.broken(block, why));
        let (key, word) = (cursor.key(), cursor.word());
        let Some(trailer) = Trailer::decode(word) else {
            return broken("an entry's kind is unknown");
        };
        match &mut self.last {
            None => self.last = Some((key.to_vec(), word)),
            Some((last_key, last_word)) => {
                if compare_words(last_key, *last_word, key, word) != Ordering::Less {
                    return broken("entries are out of order");
                }
                last_key.clear();
                last_key.extend_from_slice(key);
                *last_word = word;
            }
        }
        if !filter.is_empty() && !may_contain(filter, key_hash(key)) {
            return broken("a key is missing from its filter");
        }
        match block.find(key, word) {
            Ok(Lookup::Found(found, _)) if found == trailer => {}
            Ok(_) => return broken("an entry is not found by its own key"),
            Err(why) => return broken(why),
        }
        let seen = &mut self.seen;
        if seen.entries == 0 {
            seen.smallest_key = key.to_vec();
        }
        seen.entries += 1;
        seen.deletes += u64::from(trailer.kind() == RecordKind::Delete);
        seen.raw_key_bytes += key.len() as u64;
        seen.raw_value_bytes += cursor.value().len() as u64;
        seen.smallest_sequence = seen.smallest_sequence.min(trailer.sequence());
        seen.largest_sequence = seen.largest_sequence.max(trailer.sequence());
        Ok(())
    }

    /// Properties, top index and footer, and the comparison of counts.
    fn end(mut self) -> Result<VerifySummary> {
        let Footer { properties, top_index, .. } = *self.table.footer();
        for address in [properties, top_index] {
            read_block(self.table.file(), address)?;
            self.cover_apart(address)?;
        }
        let footer_at = self.table.file_bytes() - PAGE;
        let page = self.table.file().read(footer_at, PAGE as usize)?;
        let file = self.table.file();
        Footer::decode(&page, &file.place(footer_at), &|| file.describe())?;
        self.cover_apart(BlockAddress { offset: footer_at, len: PAGE as u32 })?;
        if self.seen.entries == 0 {
            self.seen.smallest_sequence = Sequence::ZERO;
        }
        let said = self.table.properties();
        self.seen.padding_bytes = said.padding_bytes;
        self.seen.filter_bits_per_key = said.filter_bits_per_key;
        self.seen.dictionary = said.dictionary;
        self.seen.dictionary_saved_bytes = said.dictionary_saved_bytes;
        self.seen.follows = said.follows;
        if self.seen != *said {
            let why = "the table's counts or bounds are not those of its entries";
            return Err(self.corrupt(properties.offset, why));
        }
        Ok(VerifySummary {
            entries: said.entries,
            deletes: said.deletes,
            data_blocks: said.data_blocks,
            partitions: said.partitions,
            bytes: self.covered,
        })
    }
}
