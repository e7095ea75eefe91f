//! Writes a table: entries in, one file out, in large aligned writes.
//!
//! Data blocks are written as they fill; partitions of index and filter gather in memory (about 2 %
//! of the data) and follow them, then properties, top index and footer, and one sync. A value too
//! large for a block with others goes from the caller's slice straight to the write buffer. A block
//! cache may take over the partitions.
//!
//! Invariants:
//! 1. Entries strictly ascend in the order of `key.rs`; the writer refuses any other.
//! 2. Every write is a multiple of the page, at a multiple of the page.
//! 3. After a failed write nothing more is written, and `finish` reports the failure. An unfinished
//!    file has no footer, so it can never be opened as a table.
//!
//! A writer belongs to one thread at a time.

use crate::block::{Block, COUNT_BYTES, Coding};
use crate::block_cache::BlockCache;
use crate::builder::{BlockBuilder, SINGLE_ENTRY_TAIL};
use crate::dictionary::{DICTIONARY_BYTES_MAX, Decided, Gathering, Samples, Training, Trial};
use crate::filter::key_hash;
use crate::format::{
    BLOCK_TRAILER_BYTES, BlockAddress, Footer, KEY_BYTES_MAX, PAGE, VALUE_BYTES_MAX, VERSION,
    VERSION_PLAIN,
};
use crate::index::{IndexBuilder, separator};
use crate::key::{RecordKind, Trailer, compare_words};
use crate::places::{Places, Placing};
use crate::properties::Properties;
use crate::sink::Sink;
use crate::stored::parse;
use std::cmp::Ordering;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, File, Result};
use thermocline_foundation::compression::{Compression, Compressor, PLAIN};
use thermocline_foundation::{Planted, Sequence, planted, sync_site};

/// How a table is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Bytes of a data block before compression, its trailer included. 6144 by default, so that a
    /// block that compresses by a third fits one page (MyNVM, section 4.1.2). At least 256.
    pub block_bytes: u32,
    /// Entries between restarts. Small is quick to search, large packs keys better. 8 by default.
    pub restart_interval: u16,
    /// What data blocks are compressed with. LZ4 by default.
    pub compression: Compression,
    /// Filter bits a key; 10 by default (1 % of absent keys pass), 0 for no filter.
    pub filter_bits_per_key: u8,
    /// Bytes of a partition of index or filter; a page by default.
    pub partition_bytes: u32,
    /// Pad with zeros where a block would otherwise touch one page more than it must. On by
    /// default.
    pub align_pages: bool,
    /// Most bytes of a dictionary of the table, up to [`DICTIONARY_BYTES_MAX`]; 0, the default, for
    /// none. Only Zstandard has one, and a table only where it pays (`dictionary/`).
    pub dictionary_bytes: u32,
    /// How a dictionary is made.
    pub training: Training,
}

impl TableOptions {
    /// Raw bytes that a block has room for, unless a single entry is longer.
    pub(crate) fn block_room(&self) -> usize {
        self.block_bytes.max(256) as usize - BLOCK_TRAILER_BYTES
    }

    pub(crate) fn dictionary_bytes(&self) -> u32 {
        self.dictionary_bytes.min(DICTIONARY_BYTES_MAX as u32)
    }
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            block_bytes: 6144,
            restart_interval: 8,
            compression: Compression::default(),
            filter_bits_per_key: 10,
            partition_bytes: 4096,
            align_pages: true,
            dictionary_bytes: 0,
            training: Training::Trained,
        }
    }
}

/// What was written: [`Properties`] and the file's size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableSummary {
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub deletes: u64,
    /// Entries that are older than another one of their key here.
    pub older_versions: u64,
    /// Length of the file, in bytes.
    pub file_bytes: u64,
    /// Bytes of all user keys.
    pub raw_key_bytes: u64,
    /// Bytes of all values.
    pub raw_value_bytes: u64,
    /// The first user key; empty in an empty table.
    pub smallest_key: Vec<u8>,
    /// The last user key.
    pub largest_key: Vec<u8>,
    /// The lowest sequence of an entry.
    pub smallest_sequence: Sequence,
    /// The highest sequence of an entry.
    pub largest_sequence: Sequence,
    /// Data blocks.
    pub data_blocks: u64,
    /// Partitions of index and filter.
    pub partitions: u64,
    /// Zero bytes between data blocks that page alignment costs.
    pub padding_bytes: u64,
    /// Bytes of the table's dictionary; 0 where it has none.
    pub dictionary_bytes: u64,
    /// What the dictionary saves, its copies counted, as far as the first blocks tell.
    pub dictionary_saved_bytes: u64,
    /// Where the keys lie; none where that was not asked for, or there are too many.
    pub places: Option<Places>,
}

/// What padding of the last blocks, properties, the top index and the footer take at most, but for
/// keys.
const ENDS_BYTES: u64 = 8 * PAGE;

/// A table in the making. Dropped without [`TableWriter::finish`], the file is no table; the caller
/// deletes it.
pub struct TableWriter {
    sink: Sink,
    options: TableOptions,
    compressor: Compressor,
    block: BlockBuilder,
    last_word: u64,
    /// A data block that the index does not know yet, because its separator depends on the next
    /// key.
    pending: Option<BlockAddress>,
    index: IndexBuilder,
    properties: Properties,
    older_versions: u64,
    cache: Option<Arc<BlockCache>>,
    failure: Option<Error>,
    /// The first entries, as long as it is not decided whether there is a dictionary.
    gathering: Option<Box<Gathering>>,
    dictionary: Option<Written>,
    /// What the dictionary of a table behind this one is made of.
    samples: Option<Samples>,
    placing: Option<Placing>,
}

/// A dictionary whose first copy is in the file.
#[derive(Debug)]
struct Written {
    bytes: Vec<u8>,
    first: BlockAddress,
    trial: Trial,
}

impl std::fmt::Debug for TableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableWriter({}, {} entries)", self.sink.file.describe(), self.entries())
    }
}

impl TableWriter {
    /// A writer into `file`, which is new and empty.
    pub fn new(file: Arc<File>, options: TableOptions) -> Self {
        let compressor = Compressor::new(options.compression);
        let filter_bits_per_key = options.filter_bits_per_key;
        let gathering = Gathering::new(&options).map(Box::new);
        let samples = gathering.as_ref().map(|gathering| gathering.samples());
        Self {
            sink: Sink::new(file),
            compressor,
            block: BlockBuilder::new(options.restart_interval, true),
            last_word: 0,
            pending: None,
            index: IndexBuilder::new(options.partition_bytes, filter_bits_per_key),
            properties: Properties {
                filter_bits_per_key,
                smallest_sequence: Sequence::MAX,
                ..Properties::default()
            },
            older_versions: 0,
            cache: None,
            failure: None,
            gathering,
            dictionary: None,
            samples,
            placing: None,
            options,
        }
    }

    /// Says at the end where the keys lie, if that takes no more than `bytes_max` of memory.
    pub fn placing(mut self, bytes_max: u64) -> Self {
        self.placing = Some(Placing::new(bytes_max));
        self
    }

    /// The table follows another of the same rewrite, from all over which these samples are.
    pub fn following(mut self, samples: Option<Samples>) -> Self {
        if let (Some(gathering), Some(samples)) = (&mut self.gathering, samples) {
            gathering.follows(samples);
        }
        self
    }

    /// The table will have about so many bytes: a dictionary costs its two copies, which little
    /// data does not bring in.
    pub fn expecting(mut self, bytes: u64) -> Self {
        if let Some(gathering) = &mut self.gathering {
            gathering.expects(bytes);
        }
        self
    }

    /// Gives the partitions of index and filter to `cache` once the table is durable, so that the
    /// first look-ups need not read what was in memory.
    pub fn kept_in(mut self, cache: Arc<BlockCache>) -> Self {
        self.cache = Some(cache);
        self
    }

    /// The entries, which have the sequence 0, are newer than all that there was up to `newest`.
    pub fn follow(&mut self, newest: Sequence) {
        self.properties.follows = newest;
    }

    /// Appends an entry, which must sort after all before it. A key has at most [`KEY_BYTES_MAX`]
    /// bytes, a value at most [`VALUE_BYTES_MAX`]; a wrong entry is refused and the table goes on
    /// without it.
    pub fn add(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.check(key, trailer, value)?;
        let is_older = self.properties.entries > 0 && self.last_key() == key;
        let result = match &mut self.gathering {
            Some(gathering) if gathering.has_room(key, value) => {
                gathering.hold((key, trailer.word(), value));
                Ok(())
            }
            Some(_) => self.settle().and_then(|()| self.append(key, trailer.word(), value)),
            None => self.append(key, trailer.word(), value),
        };
        if let Err(error) = &result {
            self.failure = Some(error.clone());
            return result;
        }
        self.count(key, trailer, value);
        self.older_versions += u64::from(is_older);
        Ok(())
    }

    /// About how many bytes the file will have if it is finished now.
    pub fn estimated_bytes(&self) -> u64 {
        let held = self.gathering.as_ref().map_or(0, |gathering| gathering.held_bytes());
        let waiting = held + self.block.raw_bytes() + self.index.estimated_bytes();
        self.sink.position + waiting as u64 + PAGE
    }

    /// Bytes that the file has at most if it is finished after this entry.
    pub fn bytes_max_with(&self, key: &[u8], value: &[u8]) -> u64 {
        let entry = BlockBuilder::entry_bytes_max(key, value) + key.len();
        // Each block of the index may begin on a page of its own.
        let index = 2 * self.index.estimated_bytes();
        let held = self.gathering.as_ref().map_or(0, |gathering| gathering.file_bytes_max());
        let dictionary = match (&self.gathering, &self.dictionary) {
            (None, None) => 0,
            _ => 2 * (u64::from(self.options.dictionary_bytes()) + PAGE),
        };
        let waiting = (self.block.raw_bytes() + entry + index + held) as u64;
        self.sink.position + waiting + dictionary + ENDS_BYTES
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The last key added; empty before the first.
    pub fn last_key(&self) -> &[u8] {
        self.last().0
    }

    fn last(&self) -> (&[u8], u64) {
        let held = self.gathering.as_ref().and_then(|gathering| gathering.last());
        held.unwrap_or((self.block.last_key(), self.last_word))
    }

    /// Samples of what was added, for the dictionary of a table that follows this one; none where
    /// there are no dictionaries. To be taken before [`TableWriter::finish`].
    pub fn take_samples(&mut self) -> Option<Samples> {
        self.samples.take()
    }

    /// Writes what is left and makes the file durable. On an error the file is no table; delete it.
    pub fn finish(mut self) -> Result<TableSummary> {
        let partitions = self.end()?;
        if !planted(Planted::TableNotSynced) {
            sync_site("table", || self.sink.file.sync())?;
        }
        if let Some(cache) = &self.cache {
            let number = self.sink.file.number();
            partitions.into_iter().for_each(|block| cache.insert_written(number, block));
        }
        let places = self.placing.take().map(Placing::finish);
        let older_versions = self.older_versions;
        let summary = summary(&self.properties, self.sink.position);
        Ok(TableSummary { places, older_versions, ..summary })
    }

    /// As [`TableWriter::finish`], for a table that is read once and deleted: it is not made
    /// durable, and no cache gets anything of it.
    pub fn finish_to_be_read_once(mut self) -> Result<()> {
        self.end().map(drop)
    }

    /// Writes what is left; gives the partitions of index and filter.
    fn end(&mut self) -> Result<Vec<Block>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if let Some(gathering) = &mut self.gathering {
            gathering.is_whole();
        }
        self.settle()?;
        self.finish_block()?;
        self.index_pending(None);
        self.finish_dictionary()?;
        let data_end = self.sink.position;
        let (top_index, partitions) = self.write_partitions()?;
        self.complete_properties();
        let properties = self.properties.encode();
        let properties = self.write_block(PLAIN, properties.len(), &[&properties])?;
        let top_index = self.write_block(PLAIN, top_index.len(), &[&top_index])?;
        self.sink.pad_to_page()?;
        let place = self.sink.place();
        let version = if self.properties.dictionary.is_some() { VERSION } else { VERSION_PLAIN };
        let footer = Footer { version, data_end, properties, top_index };
        self.sink.write(&footer.encode(&place))?;
        self.sink.flush()?;
        if self.sink.file.extent_bytes() > self.sink.position {
            // More was reserved than it took.
            self.sink.file.truncate(self.sink.position)?;
        }
        Ok(partitions)
    }

    fn check(&self, key: &[u8], trailer: Trailer, value: &[u8]) -> Result<()> {
        let why = if key.len() > KEY_BYTES_MAX {
            format!("a key of {} bytes is over {KEY_BYTES_MAX}", key.len())
        } else if value.len() > VALUE_BYTES_MAX {
            format!("a value of {} bytes is over {VALUE_BYTES_MAX}", value.len())
        } else if self.properties.entries > 0
            && compare_words(self.last().0, self.last().1, key, trailer.word()) != Ordering::Less
        {
            "the entry does not sort after the one before it".to_owned()
        } else {
            return Ok(());
        };
        let text = format!("cannot add to {}: {why}", self.sink.file.describe());
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// Decides whether the table has a dictionary, and writes what was held back until then.
    fn settle(&mut self) -> Result<()> {
        let Some(mut gathering) = self.gathering.take() else { return Ok(()) };
        if let Some(decided) = gathering.decide(&self.options) {
            let Decided { bytes, compressor, trial } = decided;
            let first = self.write_block(PLAIN, bytes.len(), &[&bytes])?;
            self.compressor = compressor;
            self.dictionary = Some(Written { bytes, first, trial });
        }
        gathering.entries().try_for_each(|(key, word, value)| self.append(key, word, value))
    }

    /// The second copy, behind all data.
    fn finish_dictionary(&mut self) -> Result<()> {
        let Some(Written { bytes, first, trial }) = self.dictionary.take() else { return Ok(()) };
        let blocks_bytes = self.sink.position - first.end();
        let second = self.write_block(PLAIN, bytes.len(), &[&bytes])?;
        self.properties.dictionary = Some([first, second]);
        self.properties.dictionary_saved_bytes = trial.saved_bytes(blocks_bytes);
        Ok(())
    }

    fn append(&mut self, key: &[u8], word: u64, value: &[u8]) -> Result<()> {
        let room = self.options.block_room();
        let entry = BlockBuilder::entry_bytes_max(key, value);
        if self.block.raw_bytes() + entry > room {
            self.finish_block()?;
        }
        self.index_pending(Some(key));
        if self.placing.as_mut().is_some_and(|placing| !placing.record(key, word)) {
            self.placing = None;
        }
        let hash = key_hash(key);
        self.index.add_key(hash);
        let alone = entry + COUNT_BYTES > room;
        if alone && self.options.compression == Compression::None {
            self.block.add_head(key, word, value.len(), hash);
            self.last_word = word;
            return self.write_single(value);
        }
        self.block.add(key, word, value, hash);
        self.last_word = word;
        if alone { self.finish_block() } else { Ok(()) }
    }

    /// Writes the block whose one entry has its head in the builder and its value here, without a
    /// copy between.
    fn write_single(&mut self, value: &[u8]) -> Result<()> {
        let head = self.block.head();
        let raw_len = head.len() + value.len() + SINGLE_ENTRY_TAIL.len();
        let parts = [head, value, &SINGLE_ENTRY_TAIL];
        let align = self.options.align_pages;
        let (address, padding) = self.sink.write_block(PLAIN, raw_len, &parts, align)?;
        self.block.clear();
        self.data_block_written(address, padding);
        Ok(())
    }

    fn finish_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let raw = self.block.finish();
        let raw_len = raw.len();
        if let Some(samples) = &mut self.samples {
            samples.offer(raw);
        }
        let (kind, stored) = self.compressor.compress(raw);
        let align = self.options.align_pages;
        let (address, padding) = self.sink.write_block(kind, raw_len, &[stored], align)?;
        self.compressor.let_go();
        self.block.clear();
        self.data_block_written(address, padding);
        Ok(())
    }

    fn data_block_written(&mut self, address: BlockAddress, padding: u64) {
        debug_assert!(self.pending.is_none(), "a block was written before the last was indexed");
        self.pending = Some(address);
        self.placing.iter_mut().for_each(|placing| placing.block(address));
        self.properties.data_blocks += 1;
        self.properties.padding_bytes += padding;
    }

    fn index_pending(&mut self, next: Option<&[u8]>) {
        if let Some(address) = self.pending.take() {
            let separator = separator(self.block.last_key(), self.last_word, next);
            self.index.add_block(&separator, address);
        }
    }

    /// Writes filter and index partitions side by side; gives the raw top index and them, as a
    /// reader would have them.
    fn write_partitions(&mut self) -> Result<(Vec<u8>, Vec<Block>)> {
        let empty = IndexBuilder::new(self.options.partition_bytes, 0);
        let partitions = std::mem::replace(&mut self.index, empty).finish();
        self.properties.partitions = partitions.len() as u64;
        let mut top = BlockBuilder::new(1, false);
        let (mut value, mut blocks) = (Vec::new(), Vec::new());
        for partition in partitions {
            let filter = match partition.filter.len() {
                0 => BlockAddress::default(),
                len => {
                    let address = self.write_block(PLAIN, len, &[&partition.filter])?;
                    blocks.push(Block::of_filter(partition.filter.into(), address.offset));
                    address
                }
            };
            let len = partition.index.len();
            let index = self.write_block(PLAIN, len, &[&partition.index])?;
            blocks.push(parse(&self.sink.file, index, partition.index.into(), Coding::Addresses)?);
            value.clear();
            index.put(&mut value);
            filter.put(&mut value);
            top.add(&partition.separator.0, partition.separator.1, &value, 0);
        }
        Ok((top.finish().to_vec(), blocks))
    }

    fn write_block(&mut self, kind: u8, raw_len: usize, parts: &[&[u8]]) -> Result<BlockAddress> {
        let align = self.options.align_pages;
        self.sink.write_block(kind, raw_len, parts, align).map(|(address, _)| address)
    }

    fn count(&mut self, key: &[u8], trailer: Trailer, value: &[u8]) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.smallest_key = key.to_vec();
        }
        properties.entries += 1;
        properties.deletes += u64::from(trailer.kind() == RecordKind::Delete);
        properties.raw_key_bytes += key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        let sequence = trailer.sequence();
        properties.smallest_sequence = properties.smallest_sequence.min(sequence);
        properties.largest_sequence = properties.largest_sequence.max(sequence);
    }

    fn complete_properties(&mut self) {
        self.properties.largest_key = self.block.last_key().to_vec();
        if self.properties.entries == 0 {
            self.properties.smallest_sequence = Sequence::ZERO;
        }
    }
}

fn summary(properties: &Properties, file_bytes: u64) -> TableSummary {
    let it = properties.clone();
    TableSummary {
        entries: it.entries,
        deletes: it.deletes,
        older_versions: 0,
        file_bytes,
        raw_key_bytes: it.raw_key_bytes,
        raw_value_bytes: it.raw_value_bytes,
        smallest_key: it.smallest_key,
        largest_key: it.largest_key,
        smallest_sequence: it.smallest_sequence,
        largest_sequence: it.largest_sequence,
        data_blocks: it.data_blocks,
        partitions: it.partitions,
        padding_bytes: it.padding_bytes,
        dictionary_bytes: properties.dictionary_bytes(),
        dictionary_saved_bytes: it.dictionary_saved_bytes,
        places: None,
    }
}
