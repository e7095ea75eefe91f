//! Reads a table: open once, then look up, iterate and verify from any thread.
//!
//! A point look-up searches the pinned top index, asks the filter partition, searches the index
//! partition and then one data block. With partitions cached that is at most one read; with the
//! block cached it is none, and nothing is allocated, because the value is a slice of the cached
//! block.
//!
//! Invariants:
//! 1. No byte of a block is looked at before its checksum, bound to database, file and offset, has
//!    matched.
//! 2. No memory is allocated for a length before the length was checked against the file and the
//!    format's limits.
//! 3. Only verified blocks and dictionaries enter the cache, and partitions that their writer had
//!    in memory.
//! 4. Blocks are read where a second level below the cache says, if there is one
//!    (`block_source.rs`); a wrong copy costs another read, never an error.
//!
//! A table on a slow device may have a copy of its tail on a faster one (`tail_copy.rs`), which
//! partitions are read from; whatever goes past the cache goes past that, too.
//!
//! Shared between threads; holds the file open.
//! Long because: look-ups, iterators and verification read one table by one path.

use crate::block::{Block, Broken, Coding, Cursor, Lookup};
use crate::block_cache::{BlockCache, BlockClass, weight_bytes};
use crate::block_source::{BlockKey, BlockRead, Found};
use crate::dictionary;
use crate::filter::{key_hash, may_contain};
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, Footer, PAGE};
use crate::index::partition_addresses;
use crate::iterator::TableIterator;
use crate::key::{Trailer, seek_word};
use crate::properties::Properties;
use crate::read_ahead::ReadAhead;
use crate::stored::{
    Tail, check_block, length_of, parse, raw_of, read_block, shared_of, unpack_with,
};
use crate::tail_copy::{TailCopy, TailCounts};
use crate::verify::{self, VerifySummary};
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{Buffer, Error, File, ReadAt, Result, TierIndex};
use thermocline_foundation::compression::{Dictionary, PLAIN, WITH_DICTIONARY};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};

/// An open table.
#[derive(Debug)]
pub struct TableReader {
    file: Arc<File>,
    cache: Arc<BlockCache>,
    footer: Footer,
    file_bytes: u64,
    properties: Properties,
    top: Block,
    partition_bytes: u64,
    copy: Mutex<Option<Arc<TailCopy>>>,
}

/// The dictionary of a table that is read past the cache, once a block needed it; or why no block
/// gets one.
pub(crate) type HeldDictionary = Option<Result<Arc<Dictionary>>>;

/// Where the answer to a look-up is.
#[derive(Clone, Debug)]
pub enum Probe {
    /// The table does not have the key.
    Absent,
    /// In this block.
    Cached(Block),
    /// In the block to read; see [`TableReader::fetch`].
    Fetch(BlockRead),
}

impl TableReader {
    /// Reads footer, properties and top index of a finished table, whose entries are checked. Fails
    /// with `Corrupt` where they are not intact or belong to another file, and with `NewerFormat`
    /// where a later version wrote them.
    pub fn open(file: Arc<File>, cache: Arc<BlockCache>) -> Result<Self> {
        let file_bytes = length_of(&file)?;
        let tail = Tail::read(&file, file_bytes)?;
        Self::with_tail(file, cache, file_bytes, &tail)
    }

    /// The table of so many bytes of which `tail` are the last.
    pub(crate) fn with_tail(
        file: Arc<File>,
        cache: Arc<BlockCache>,
        file_bytes: u64,
        tail: &Tail,
    ) -> Result<Self> {
        let at = file_bytes - PAGE;
        let page = &tail.bytes[tail.bytes.len() - PAGE as usize..];
        let footer = Footer::decode(page, &file.place(at), &|| file.describe())?;
        let at = footer.properties.offset;
        let mut properties = Properties::decode(&tail.block(&file, footer.properties)?)
            .map_err(|error| Error::corrupt(file.describe(), at, error))?;
        if footer.has_dictionary() {
            let copies = properties.dictionary.ok_or("it does not say where its dictionary is");
            copies
                .and_then(|copies| dictionary::check(copies, footer.data_end))
                .map_err(|why| Error::corrupt(file.describe(), at, why))?;
        } else {
            properties.dictionary = None;
        }
        let top = tail.block(&file, footer.top_index)?;
        let top = parse(&file, footer.top_index, top, Coding::Records)?;
        let (partition_bytes, copy) = (0, Mutex::new(None));
        let mut it =
            Self { file, cache, footer, file_bytes, properties, top, partition_bytes, copy };
        it.partition_bytes = it.sum_partitions()?;
        Ok(it)
    }

    /// The newest entry of `key` at or below `snapshot`, tombstones included. The value shares the
    /// memory of its block.
    pub fn get(&self, key: &[u8], snapshot: Sequence) -> Result<Option<(Trailer, Bytes)>> {
        let word = seek_word(snapshot);
        let block = match self.locate(key, word, key_hash(key))? {
            Probe::Absent => return Ok(None),
            Probe::Cached(block) => block,
            Probe::Fetch(read) => self.read(&read)?,
        };
        match self.get_in(&block, key, snapshot)? {
            Lookup::Found(trailer, value) => Ok(Some((trailer, value))),
            // The index led to the first block that ends at or after the version wanted, so none
            // follows.
            Lookup::Absent | Lookup::NextBlock => Ok(None),
        }
    }

    /// As [`TableReader::get`] in the data block at `address`, which the caller's own index names:
    /// neither index nor filter of the table is asked.
    pub fn get_at(
        &self,
        address: BlockAddress,
        key: &[u8],
        snapshot: Sequence,
    ) -> Result<Option<(Trailer, Bytes)>> {
        let block = match self.probe_at(address)? {
            Probe::Cached(block) => block,
            Probe::Fetch(read) => self.read(&read)?,
            Probe::Absent => return Ok(None),
        };
        match self.get_in(&block, key, snapshot)? {
            Lookup::Found(trailer, value) => Ok(Some((trailer, value))),
            Lookup::Absent | Lookup::NextBlock => Ok(None),
        }
    }

    /// The data block at `address`, which an index of the caller's names. A caller with many reads
    /// them in one batch, as after [`TableReader::probe`].
    pub fn probe_at(&self, address: BlockAddress) -> Result<Probe> {
        let checked = address.check(self.footer.data_end);
        checked.map_err(|why| Error::corrupt(self.file.describe(), address.offset, why))?;
        let cached = self.cache.get(self.file.number(), address.offset, BlockClass::Data);
        let fetch = || Probe::Fetch(self.source(address, BlockClass::Data));
        Ok(cached.map_or_else(fetch, Probe::Cached))
    }

    /// Where the versions of `key` begin; `hash` is [`key_hash`] of it. Partitions that are not
    /// cached are read. A caller with many keys gathers the blocks to read, reads them in one batch
    /// ([`BlockRead::read_at`] with [`TableReader::file`]) and hands what came of it to
    /// [`TableReader::fetch`].
    pub fn probe(&self, key: &[u8], hash: u64) -> Result<Probe> {
        self.locate(key, u64::MAX, hash)
    }

    /// What a filter that is in memory says of `key`, whose [`key_hash`] is `hash`; none where
    /// there is none. Reads nothing and counts as no look-up: for estimates, not for answers.
    pub fn glance(&self, key: &[u8], hash: u64) -> Option<bool> {
        let Some(entry) = self.top.index_value(key, u64::MAX).ok()? else { return Some(false) };
        let (_, filter) = self.partition(entry).ok()?;
        if filter.len == 0 {
            return None;
        }
        let block = self.cache.peek(self.file.number(), filter.offset)?;
        Some(may_contain(block.bytes(), hash))
    }

    /// As [`TableReader::glance`], of a filter that is read where it is not in memory; none where
    /// the table has none.
    pub fn asked_filter(&self, key: &[u8], hash: u64) -> Result<Option<bool>> {
        let entry = self.top.index_value(key, u64::MAX);
        let Some(entry) = entry.map_err(|why| self.broken(&self.top, why))? else {
            return Ok(Some(false));
        };
        let (_, filter) = self.partition(entry)?;
        if filter.len == 0 {
            return Ok(None);
        }
        Ok(Some(may_contain(self.filter_block(filter)?.bytes(), hash)))
    }

    /// Verifies and decompresses a data block, of which `stored` is what came of reading it as
    /// `read` says, and keeps it in the cache. Where a copy was read that is wrong, the table is.
    pub fn fetch(&self, read: &BlockRead, stored: Result<Buffer>) -> Result<Block> {
        let bytes = self.receive(read, stored)?;
        self.take_block(read.address, BlockClass::Data, bytes, true)
    }

    /// Reads a data block where `read` says, as [`TableReader::fetch`].
    pub(crate) fn read(&self, read: &BlockRead) -> Result<Block> {
        self.fetch(read, read_now(read, &self.file))
    }

    /// Looks `key` up in a block of this table.
    pub fn get_in(&self, block: &Block, key: &[u8], snapshot: Sequence) -> Result<Lookup> {
        block.find(key, seek_word(snapshot)).map_err(|why| self.broken(block, why))
    }

    /// An iterator, at no entry yet.
    pub fn iter(self: &Arc<Self>, read_ahead: ReadAhead) -> TableIterator {
        TableIterator::new(Arc::clone(self), read_ahead)
    }

    /// Reads everything and checks it: checksums, zero padding, order, counts, index, filters.
    /// `progress` is told of each run of bytes that was checked; they add up to the length of the
    /// file.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<VerifySummary> {
        verify::verify(self, progress)
    }

    /// What the table says of itself.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The file, for batched reads.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Length of the file, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Bytes of memory that the open table holds outside the cache.
    pub fn memory_bytes(&self) -> usize {
        let keys = self.properties.smallest_key.len() + self.properties.largest_key.len();
        size_of::<Self>() + self.top.memory_bytes() + keys
    }

    /// Bytes of the cache that all partitions of index and filter take when they are in it. With
    /// so much room for each table a look-up reads one block, and most absent keys none.
    pub fn partition_bytes(&self) -> u64 {
        self.partition_bytes
    }

    /// Bytes of a copy of the tail: all behind the data blocks.
    pub fn tail_bytes(&self) -> u64 {
        self.file_bytes - self.tail_start()
    }

    /// The page that the tail begins in: its blocks lie in pages of a copy as they do in those of
    /// the table.
    fn tail_start(&self) -> u64 {
        self.footer.data_end / PAGE * PAGE
    }

    /// Copies the tail to `file`, which is new, empty and on a faster device; partitions are read
    /// from there from then on, and `counts` hears of it. Neither synced nor checked: it is a
    /// cache. On an error the table has no copy.
    pub fn copy_tail(&self, file: Arc<File>, counts: &Arc<TailCounts>) -> Result<()> {
        let range = (self.tail_start(), self.file_bytes);
        let copy = TailCopy::make(&self.file, range, file, Arc::clone(counts))?;
        *self.copy.lock() = Some(Arc::new(copy));
        Ok(())
    }

    /// There is a copy of the tail.
    pub fn has_copy(&self) -> bool {
        self.copy.lock().is_some()
    }

    /// Why the copy of the tail is not read any more, where there is one that was wrong.
    pub fn copy_failure(&self) -> Option<Error> {
        self.copy.lock().as_ref()?.failure().cloned()
    }

    /// Takes the copy of the tail from the table and says which file is to be deleted.
    pub fn take_copy(&self) -> Option<FileNumber> {
        self.copy.lock().take().map(|copy| copy.number())
    }

    fn sum_partitions(&self) -> Result<u64> {
        let mut cursor = Cursor::new(self.top.clone());
        let mut sum = 0;
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            let (index, filter) = self.partition(cursor.value())?;
            let stored = [index, filter].into_iter().filter(|address| address.len > 0);
            // They are never compressed.
            let raw = stored.map(|address| address.len as usize - BLOCK_TRAILER_BYTES);
            sum += raw.map(weight_bytes).sum::<u64>();
            moved = cursor.step();
        }
        moved.map_err(|why| self.broken(&self.top, why))?;
        Ok(sum)
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    /// The cache that blocks are kept in.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    pub(crate) fn top(&self) -> &Block {
        &self.top
    }

    /// The one data block that can hold the newest version of `key` at or below `word`.
    fn locate(&self, key: &[u8], word: u64, hash: u64) -> Result<Probe> {
        let entry = self.top.index_value(key, word).map_err(|why| self.broken(&self.top, why))?;
        let Some(entry) = entry else {
            return Ok(Probe::Absent);
        };
        let (index, filter) = self.partition(entry)?;
        if filter.len > 0 {
            let block = self.filter_block(filter)?;
            if !may_contain(block.bytes(), hash) {
                return Ok(Probe::Absent);
            }
        }
        let index = self.index_block(index, true)?;
        let address = match index.address(key, word) {
            Ok(None) => return Ok(Probe::Absent),
            Ok(Some(address)) => self.data_block_address(&index, Ok(address))?,
            Err(why) => return Err(self.broken(&index, why)),
        };
        let cached = self.cache.get(self.file.number(), address.offset, BlockClass::Data);
        let fetch = || Probe::Fetch(self.source(address, BlockClass::Data));
        Ok(cached.map_or_else(fetch, Probe::Cached))
    }

    /// Where to read the block at `address`, which the cache does not have.
    pub(crate) fn source(&self, address: BlockAddress, class: BlockClass) -> BlockRead {
        match self.cache.second_level() {
            Some(second) if self.file.tier() != TierIndex(0) => {
                let found = second.find(self.block_key(address), class);
                BlockRead { address, found }
            }
            _ => BlockRead::of_table(address),
        }
    }

    fn block_key(&self, BlockAddress { offset, len }: BlockAddress) -> BlockKey {
        BlockKey { table: self.file.number(), offset, len }
    }

    /// Hands the stored bytes of a block, which were verified, to the second level that wants them.
    pub(crate) fn offer(&self, address: BlockAddress, stored: &[u8]) {
        if let Some(second) = self.cache.second_level() {
            second.offer(self.block_key(address), stored);
        }
    }

    /// The raw bytes of a block, verified, from `stored`, which is what came of reading it as
    /// `read` says.
    fn receive(&self, read: &BlockRead, stored: Result<Buffer>) -> Result<Bytes> {
        let (file, address) = (&self.file, read.address);
        match &read.found {
            Found::Refused => self.open_buffer(address, stored?),
            Found::Admitted => {
                let stored = stored?;
                let checked = check_block(file, address, &stored)?;
                self.offer(address, &stored);
                self.raw_of(address, checked, stored)
            }
            Found::Cached(at) => {
                let copied = stored.and_then(|stored| match check_block(file, address, &stored) {
                    Err(_) if planted(Planted::CachedBlockNotVerified) => {
                        Ok(((PLAIN, stored.len() - BLOCK_TRAILER_BYTES), stored))
                    }
                    checked => checked.map(|checked| (checked, stored)),
                });
                match copied {
                    // What goes wrong from here on is no fault of the copy: the table's dictionary.
                    Ok((checked, stored)) => self.raw_of(address, checked, stored),
                    Err(why) if planted(Planted::CacheErrorFailsRead) => Err(why),
                    Err(why) => {
                        if let Some(second) = self.cache.second_level() {
                            second.failed(self.block_key(address), at, &why);
                        }
                        self.read_block(address)
                    }
                }
            }
        }
    }

    /// Reads a block past the cache and gives its raw bytes, verified.
    pub(crate) fn read_block(&self, address: BlockAddress) -> Result<Bytes> {
        self.open_buffer(address, self.file.read(address.offset, address.len as usize)?)
    }

    fn open_buffer(&self, address: BlockAddress, buffer: Buffer) -> Result<Bytes> {
        self.raw_of(address, check_block(&self.file, address, &buffer)?, buffer)
    }

    /// As the function of that name, with the table's dictionary where the block leans on it.
    fn raw_of(&self, address: BlockAddress, checked: (u8, usize), buffer: Buffer) -> Result<Bytes> {
        match (checked, self.properties.dictionary) {
            ((WITH_DICTIONARY, raw_len), Some(copies)) => {
                let dictionary = self.dictionary(copies, true)?;
                unpack_with(&dictionary, &self.file, address, raw_len, &buffer)
            }
            _ => raw_of(&self.file, address, checked, buffer),
        }
    }

    /// The raw bytes of the block stored in `stored`, sharing its memory where they are plain. A
    /// caller that reads past the cache holds the table's dictionary in `held` from block to block.
    pub(crate) fn open_shared(
        &self,
        address: BlockAddress,
        stored: &Bytes,
        held: Option<&mut HeldDictionary>,
    ) -> Result<Bytes> {
        match (check_block(&self.file, address, stored)?, self.properties.dictionary) {
            ((WITH_DICTIONARY, raw_len), Some(copies)) => {
                let dictionary = match held {
                    None => self.dictionary(copies, true)?,
                    Some(Some(held)) => held.clone()?,
                    Some(held) => {
                        let dictionary = self.dictionary(copies, false)?;
                        *held = Some(Ok(Arc::clone(&dictionary)));
                        dictionary
                    }
                };
                unpack_with(&dictionary, &self.file, address, raw_len, stored)
            }
            (checked, _) => shared_of(&self.file, address, checked, stored),
        }
    }

    /// The dictionary, prepared: from the cache, or read and kept there where `cached`.
    fn dictionary(&self, copies: dictionary::Copies, cached: bool) -> Result<Arc<Dictionary>> {
        let number = self.file.number();
        if let Some(dictionary) = self.cache.dictionary(number) {
            return Ok(dictionary);
        }
        let dictionary = dictionary::read(&self.file, copies)?;
        if cached {
            self.cache.insert_dictionary(number, Arc::clone(&dictionary));
        }
        Ok(dictionary)
    }

    /// Index and filter partition of an entry of the top index.
    pub(crate) fn partition(&self, entry: &[u8]) -> Result<(BlockAddress, BlockAddress)> {
        let limit = self.footer.properties.offset;
        let check = |(index, filter): (BlockAddress, BlockAddress)| {
            index.check(limit)?;
            if filter.len > 0 {
                filter.check(limit)?
            }
            Ok((index, filter))
        };
        partition_addresses(entry).and_then(check).map_err(|why| self.broken(&self.top, why))
    }

    /// The data block that the index partition `index` names, checked.
    pub(crate) fn data_block_address(
        &self,
        index: &Block,
        address: Result<BlockAddress, Broken>,
    ) -> Result<BlockAddress> {
        address
            .and_then(|address| address.check(self.footer.data_end).map(|()| address))
            .map_err(|why| self.broken(index, why))
    }

    /// The index partition at `address`, from the cache or kept in it where `cached`.
    pub(crate) fn index_block(&self, address: BlockAddress, cached: bool) -> Result<Block> {
        self.partition_block(address, BlockClass::Index, cached)
    }

    fn filter_block(&self, address: BlockAddress) -> Result<Block> {
        self.partition_block(address, BlockClass::Filter, true)
    }

    fn partition_block(
        &self,
        address: BlockAddress,
        class: BlockClass,
        cached: bool,
    ) -> Result<Block> {
        if cached && let Some(block) = self.cached_partition(address, class) {
            return Ok(block);
        }
        self.read_partition(address, class, cached)
    }

    /// The partition at `address`, if the cache has it.
    pub(crate) fn cached_partition(
        &self,
        address: BlockAddress,
        class: BlockClass,
    ) -> Option<Block> {
        self.cache.get(self.file.number(), address.offset, class)
    }

    /// Partitions are read from a copy of the tail.
    pub(crate) fn reads_copy(&self) -> bool {
        self.copy.lock().as_ref().is_some_and(|copy| copy.failure().is_none())
    }

    /// Reads the partition at `address`, and keeps it in the cache where `cached`.
    pub(crate) fn read_partition(
        &self,
        address: BlockAddress,
        class: BlockClass,
        cached: bool,
    ) -> Result<Block> {
        let copy = if cached { self.copy.lock().clone() } else { None };
        let copied = copy.and_then(|copy| copy.read(&self.file, address));
        let bytes = match copied {
            Some(bytes) => bytes,
            None if cached => {
                let read = self.source(address, class);
                self.receive(&read, read_now(&read, &self.file))?
            }
            None => read_block(&self.file, address)?,
        };
        self.take_block(address, class, bytes, cached)
    }

    /// The index partition of which `stored` came when it was read as `read` says, verified and
    /// kept in the cache.
    pub(crate) fn receive_index(&self, read: &BlockRead, stored: Result<Buffer>) -> Result<Block> {
        let bytes = self.receive(read, stored)?;
        self.take_block(read.address, BlockClass::Index, bytes, true)
    }

    /// The block of these raw bytes, kept in the cache where `cached`.
    fn take_block(
        &self,
        address: BlockAddress,
        class: BlockClass,
        bytes: Bytes,
        cached: bool,
    ) -> Result<Block> {
        let block = match class {
            BlockClass::Filter => Block::of_filter(bytes, address.offset),
            BlockClass::Index => parse(&self.file, address, bytes, self.footer.index_coding())?,
            BlockClass::Data => parse(&self.file, address, bytes, Coding::Records)?,
        };
        if cached {
            self.cache.insert(self.file.number(), address.offset, block.clone());
        }
        Ok(block)
    }

    /// The error for a block that matches its checksum and is not what a writer writes.
    #[cold]
    pub(crate) fn broken(&self, block: &Block, why: Broken) -> Error {
        Error::corrupt(self.file.describe(), block.offset(), why)
    }
}

/// Carries out `read`, of a block of `table`.
fn read_now(read: &BlockRead, table: &File) -> Result<Buffer> {
    let ReadAt { file, offset, len } = read.read_at(table);
    file.read(offset, len)
}
