//! Walks a table forward and backward, block by block.
//!
//! Three cursors follow each other: the top index, an index partition, a data block. Only the data
//! cursor is moved by most steps.
//!
//! Invariants:
//! 1. An error is returned by the call that met it; the iterator is then at no entry, and further
//!    steps return the error again until a seek. A failed read can therefore never be taken for the
//!    end.
//! 2. Keys and values are those of verified blocks; a value shares the memory of its block.
//! 3. Of a seek that is begun ([`TableIterator::begin`]) only the reads of the place that it leads
//!    to, an index partition and then a window of data blocks, are left to the caller, each once.
//!    Where it has to go on from there it reads itself: begun again it asks for nothing twice.
//!
//! One thread at a time; iterators of one reader are independent.

use crate::block::{Block, Broken, Coding, Cursor};
use crate::block_cache::BlockClass;
use crate::block_source::{BlockRead, Found};
use crate::format::BlockAddress;
use crate::key::{Trailer, seek_word};
use crate::read_ahead::{Direction, LARGE_BYTES, ReadAhead, Reader};
use crate::reader::{HeldDictionary, TableReader};
use crate::stored::parse;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{Buffer, Error, File, ReadAt, Result};
use thermocline_foundation::Sequence;

/// A place among the entries of a table, or at none.
#[derive(Debug)]
pub struct TableIterator {
    table: Arc<TableReader>,
    read_ahead: Reader,
    top: Cursor,
    index: Cursor,
    data: Cursor,
    /// The partition that `index` walks: after a seek, that of the entry that `top` is at.
    partition: Option<BlockAddress>,
    trailer: Trailer,
    valid: bool,
    failure: Option<Error>,
    /// Reads are left to the caller.
    defers: bool,
    awaited: Option<AwaitedRead>,
    /// The block that a seek landed on and that a second level wants, to be offered to it.
    admitted: Option<BlockAddress>,
    /// The block that a seek awaited by itself, and where it lies.
    arrived: Option<(BlockAddress, Block)>,
    /// Where the cache is not asked.
    dictionary: HeldDictionary,
}

/// A read that a seek waits for; see [`TableIterator::begin`].
#[derive(Debug)]
pub struct AwaitedRead {
    /// The table's.
    file: Arc<File>,
    what: Awaited,
}

/// What a seek waits for.
#[derive(Debug)]
enum Awaited {
    /// An index partition.
    Partition(BlockRead),
    /// A copy of a data block.
    Copy(BlockRead),
    /// Data blocks, from an offset on.
    Window(u64, usize),
}

impl AwaitedRead {
    /// What to read.
    pub fn read_at(&self) -> ReadAt<'_> {
        match &self.what {
            Awaited::Partition(read) | Awaited::Copy(read) => read.read_at(&self.file),
            Awaited::Window(offset, len) => ReadAt { file: &self.file, offset: *offset, len: *len },
        }
    }
}

/// Why a motion ends early.
enum Stop {
    Failed(Error),
    Waits(AwaitedRead),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Motion = Result<(), Stop>;

impl TableIterator {
    pub(crate) fn new(table: Arc<TableReader>, mode: ReadAhead) -> Self {
        let file = Arc::clone(table.file());
        let read_ahead = Reader::new(file, table.footer().data_end, mode);
        let top = table.top().clone();
        Self {
            read_ahead,
            index: Cursor::new(top.clone()),
            data: Cursor::new(top.clone()),
            top: Cursor::new(top),
            partition: None,
            trailer: Trailer::newest_at(Sequence::ZERO),
            valid: false,
            failure: None,
            defers: false,
            awaited: None,
            admitted: None,
            arrived: None,
            dictionary: None,
            table,
        }
    }

    /// At an entry. False before the first seek, past either end, and after an error.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The user key of the entry. Only where [`TableIterator::valid`].
    #[inline]
    pub fn key(&self) -> &[u8] {
        debug_assert!(self.valid, "the iterator is at no entry");
        self.data.key()
    }

    /// Sequence and kind of the entry. Only where [`TableIterator::valid`].
    #[inline]
    pub fn trailer(&self) -> Trailer {
        self.trailer
    }

    /// The value of the entry, sharing the memory of its block. Only where
    /// [`TableIterator::valid`].
    #[inline]
    pub fn value(&self) -> Bytes {
        self.data.value_bytes()
    }

    /// The value of the entry, to be looked at and not kept. Only where [`TableIterator::valid`].
    #[inline]
    pub fn value_slice(&self) -> &[u8] {
        self.data.value()
    }

    /// Where the data block with the entry lies. Only where [`TableIterator::valid`].
    pub fn block_address(&self) -> Result<BlockAddress> {
        debug_assert!(self.valid, "the iterator is at no entry");
        self.table.data_block_address(self.index.block(), self.index.address())
    }

    /// To the first entry at or after `(key, sequence)`: the newest version of `key` at or below
    /// `sequence`, or the first entry of the next key.
    pub fn seek(&mut self, key: &[u8], sequence: Sequence) -> Result<()> {
        self.run(|it| it.seek_to(key, seek_word(sequence)))
    }

    /// To the last entry at or before `(key, sequence)`: with `Sequence::ZERO`, the oldest version
    /// of the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8], sequence: Sequence) -> Result<()> {
        // The word of the last kind that can be at this sequence.
        let word = sequence.0 << 8;
        self.run(|it| {
            it.seek_to(key, word)?;
            if !it.data.valid() {
                it.last()
            } else if it.data.key() == key && it.data.word() == word {
                Ok(())
            } else {
                it.backward()
            }
        })
    }

    /// To the first entry.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.run(|it| {
            let moved = it.top.seek_first();
            it.check_top(moved)?;
            it.enter_partition(Direction::Forward)
        })
    }

    /// To the last entry.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.run(Self::last)
    }

    /// Makes `seek`, one of this iterator's seeks, as far as memory leads. Where a read must come
    /// first the iterator is at no entry and says which: the caller carries it out, with those of
    /// other iterators at once, hands the result to [`TableIterator::supply`], and begins the same
    /// seek again. Iterators that stream read themselves.
    pub fn begin(
        &mut self,
        seek: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Option<AwaitedRead>> {
        self.defers = !self.read_ahead.streams();
        let moved = seek(self);
        self.defers = false;
        let awaited = self.awaited.take();
        moved.map(|()| awaited)
    }

    /// What came of the read that the seek waits for. Its error, or that of an index partition
    /// which is not intact, is this iterator's.
    pub fn supply(&mut self, awaited: &AwaitedRead, read: Result<Buffer>) -> Result<()> {
        self.run(|it| {
            match &awaited.what {
                Awaited::Partition(partition) => {
                    let block = it.table.receive_index(partition, read)?;
                    it.enter_index(partition.address, block);
                }
                Awaited::Copy(copy) => {
                    it.arrived = Some((copy.address, it.table.fetch(copy, read)?));
                }
                Awaited::Window(offset, _) => it.read_ahead.supply(*offset, read?),
            }
            it.data.set_invalid();
            Ok(())
        })
    }

    /// To the next entry; past the last the iterator is no longer valid. At no entry it does
    /// nothing.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "a cursor lends its entry; it is no Iterator")]
    pub fn next(&mut self) -> Result<()> {
        if !self.valid {
            return self.failure.clone().map_or(Ok(()), Err);
        }
        if self.data.step().is_ok()
            && self.data.valid()
            && let Some(trailer) = Trailer::decode(self.data.word())
        {
            self.trailer = trailer;
            return Ok(());
        }
        self.run(Self::leave_forward)
    }

    /// To the entry before; before the first the iterator is no longer valid. At no entry it does
    /// nothing.
    pub fn prev(&mut self) -> Result<()> {
        if !self.valid {
            return self.failure.clone().map_or(Ok(()), Err);
        }
        self.run(Self::backward)
    }

    /// Moves, then takes over trailer and validity, or keeps the error.
    fn run(&mut self, motion: impl FnOnce(&mut Self) -> Motion) -> Result<()> {
        self.failure = None;
        self.valid = false;
        let moved = motion(self).and_then(|()| {
            if self.data.valid() {
                let decoded = Trailer::decode(self.data.word());
                let unknown = "an entry's kind is unknown";
                self.trailer = decoded.ok_or_else(|| self.broken_data(unknown))?;
                self.valid = true;
            }
            Ok(())
        });
        match moved {
            Ok(()) => Ok(()),
            Err(Stop::Waits(awaited)) => {
                self.awaited = Some(awaited);
                Ok(())
            }
            Err(Stop::Failed(error)) => {
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    fn seek_to(&mut self, key: &[u8], word: u64) -> Motion {
        let moved = self.top.seek(key, word);
        self.check_top(moved)?;
        if !self.top.valid() {
            self.data.set_invalid();
            return Ok(());
        }
        self.load_partition()?;
        let moved = self.index.seek(key, word);
        self.check_index(moved)?;
        if !self.index.valid() {
            return self.next_block();
        }
        self.load_data(Direction::Forward)?;
        let moved = self.data.seek(key, word);
        self.check_data(moved)?;
        // The separator may lie behind the block's last entry.
        if self.data.valid() { Ok(()) } else { self.next_block() }
    }

    fn last(&mut self) -> Motion {
        let moved = self.top.seek_last();
        self.check_top(moved)?;
        self.enter_partition(Direction::Backward)
    }

    /// After the fast step failed: either the block is at its end, or it is damaged.
    fn leave_forward(&mut self) -> Motion {
        if self.data.valid() {
            return Ok(());
        }
        if !self.data.at_end() {
            let moved = self.data.step();
            return Ok(self.check_data(moved)?);
        }
        self.next_block()
    }

    fn backward(&mut self) -> Motion {
        self.defers = false;
        let moved = self.data.step_back();
        self.check_data(moved)?;
        if self.data.valid() {
            return Ok(());
        }
        let moved = self.index.step_back();
        self.check_index(moved)?;
        if self.index.valid() {
            return self.enter_data(Direction::Backward);
        }
        let moved = self.top.step_back();
        self.check_top(moved)?;
        self.enter_partition(Direction::Backward)
    }

    fn next_block(&mut self) -> Motion {
        self.defers = false;
        if self.index.valid() {
            let moved = self.index.step();
            self.check_index(moved)?;
        }
        if self.index.valid() {
            return self.enter_data(Direction::Forward);
        }
        let moved = self.top.step();
        self.check_top(moved)?;
        self.enter_partition(Direction::Forward)
    }

    /// To the near end of the partition that the top index is at.
    fn enter_partition(&mut self, direction: Direction) -> Motion {
        if !self.top.valid() {
            self.data.set_invalid();
            return Ok(());
        }
        self.load_partition()?;
        let moved = match direction {
            Direction::Forward => self.index.seek_first(),
            Direction::Backward => self.index.seek_last(),
        };
        self.check_index(moved)?;
        if !self.index.valid() {
            return Err(self.broken(self.index.block(), "an index partition is empty").into());
        }
        self.enter_data(direction)
    }

    /// To the near end of the data block that the index is at.
    fn enter_data(&mut self, direction: Direction) -> Motion {
        self.load_data(direction)?;
        let moved = match direction {
            Direction::Forward => self.data.seek_first(),
            Direction::Backward => self.data.seek_last(),
        };
        self.check_data(moved)?;
        if self.data.valid() {
            return Ok(());
        }
        Err(self.broken_data("a data block is empty").into())
    }

    fn load_partition(&mut self) -> Motion {
        let (address, _) = self.table.partition(self.top.value())?;
        if self.partition == Some(address) {
            return Ok(());
        }
        let (table, cached) = (&self.table, !self.read_ahead.streams());
        let found = if cached { table.cached_partition(address, BlockClass::Index) } else { None };
        let block = match found {
            Some(block) => block,
            // A copy is read at once: it is on a fast device, and what it comes to is its own
            // affair.
            None if self.defers && !table.reads_copy() => {
                let read = table.source(address, BlockClass::Index);
                return self.wait(Awaited::Partition(read));
            }
            None => table.read_partition(address, BlockClass::Index, cached)?,
        };
        self.enter_index(address, block);
        Ok(())
    }

    fn enter_index(&mut self, address: BlockAddress, block: Block) {
        self.index.set_block(block);
        self.partition = Some(address);
    }

    fn wait(&self, what: Awaited) -> Motion {
        let file = Arc::clone(self.table.file());
        Err(Stop::Waits(AwaitedRead { file, what }))
    }

    fn load_data(&mut self, direction: Direction) -> Motion {
        let table = &self.table;
        let address = table.data_block_address(self.index.block(), self.index.address())?;
        let file = table.file();
        if self.read_ahead.streams() {
            if self.data.block().bytes().len() >= LARGE_BYTES as usize {
                // It would be in memory beside the next one.
                self.data.set_block(table.top().clone());
            }
            let stored = self.read_ahead.block(address, direction)?;
            let bytes = table.open_shared(address, &stored, Some(&mut self.dictionary))?;
            self.data.set_block(parse(file, address, bytes, Coding::Records)?);
            return Ok(());
        }
        if self.read_ahead.take_supplied(address) {
            return self.take_from_window(address, direction);
        }
        if let Some((_, block)) = self.arrived.take_if(|(arrived, _)| *arrived == address) {
            self.data.set_block(block);
            return Ok(());
        }
        let cached = table.cache().get(file.number(), address.offset, BlockClass::Data);
        if let Some(block) = cached {
            self.read_ahead.skip(address, direction);
            self.data.set_block(block);
            return Ok(());
        }
        if self.read_ahead.asks(address, direction) {
            let read = table.source(address, BlockClass::Data);
            if read.is_of_copy() {
                return self.take_copy(read, direction);
            }
            self.admitted = matches!(read.found, Found::Admitted).then_some(address);
        }
        if self.defers
            && let Some((offset, len)) = self.read_ahead.wanted(address, direction)
        {
            return self.wait(Awaited::Window(offset, len));
        }
        self.take_from_window(address, direction)
    }

    /// To the block of which a second level has the copy that `read` names.
    fn take_copy(&mut self, read: BlockRead, direction: Direction) -> Motion {
        self.read_ahead.land(read.address, direction);
        if self.defers {
            return self.wait(Awaited::Copy(read));
        }
        self.data.set_block(self.table.read(&read)?);
        Ok(())
    }

    /// To the block at `address`, from what was read of the table or is read now.
    fn take_from_window(&mut self, address: BlockAddress, direction: Direction) -> Motion {
        let (table, file) = (&self.table, self.table.file());
        let stored = self.read_ahead.block(address, direction)?;
        let shared = table.open_shared(address, &stored, None)?;
        if self.admitted.take() == Some(address) {
            table.offer(address, &stored);
        }
        // A plain block is a slice of a whole window, which the cache must not keep alive.
        let plain = shared.as_ptr() == stored.as_ptr();
        let bytes = if plain { Bytes::copy_from_slice(&shared) } else { shared };
        let block = parse(file, address, bytes, Coding::Records)?;
        table.cache().insert(file.number(), address.offset, block.clone());
        self.data.set_block(block);
        Ok(())
    }

    fn check_top(&self, moved: Result<(), Broken>) -> Result<()> {
        moved.map_err(|why| self.broken(self.top.block(), why))
    }

    fn check_index(&self, moved: Result<(), Broken>) -> Result<()> {
        moved.map_err(|why| self.broken(self.index.block(), why))
    }

    fn check_data(&self, moved: Result<(), Broken>) -> Result<()> {
        moved.map_err(|why| self.broken_data(why))
    }

    fn broken_data(&self, why: Broken) -> Error {
        self.broken(self.data.block(), why)
    }

    fn broken(&self, block: &Block, why: Broken) -> Error {
        self.table.broken(block, why)
    }
}
