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
//!
//! One thread at a time; iterators of one reader are independent.

use crate::block::{Block, Broken, Coding, Cursor};
use crate::block_cache::BlockClass;
use crate::key::{Trailer, seek_word};
use crate::read_ahead::{Direction, ReadAhead, Reader};
use crate::reader::{TableReader, open_shared, parse};
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{Error, Result};
use thermocline_foundation::Sequence;

/// A place among the entries of a table, or at none.
#[derive(Debug)]
pub struct TableIterator {
    table: Arc<TableReader>,
    read_ahead: Reader,
    top: Cursor,
    index: Cursor,
    data: Cursor,
    /// `index` is the partition of the entry that `top` is at.
    trailer: Trailer,
    valid: bool,
    failure: Option<Error>,
}

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
            trailer: Trailer::newest_at(Sequence::ZERO),
            valid: false,
            failure: None,
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
    fn run(&mut self, motion: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.failure = None;
        self.valid = false;
        let result = motion(self).and_then(|()| {
            if self.data.valid() {
                let decoded = Trailer::decode(self.data.word());
                let unknown = "an entry's kind is unknown";
                self.trailer = decoded.ok_or_else(|| self.broken_data(unknown))?;
                self.valid = true;
            }
            Ok(())
        });
        if let Err(error) = &result {
            self.failure = Some(error.clone());
        }
        result
    }

    fn seek_to(&mut self, key: &[u8], word: u64) -> Result<()> {
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

    fn last(&mut self) -> Result<()> {
        let moved = self.top.seek_last();
        self.check_top(moved)?;
        self.enter_partition(Direction::Backward)
    }

    /// After the fast step failed: either the block is at its end, or it is damaged.
    fn leave_forward(&mut self) -> Result<()> {
        if self.data.valid() {
            return Ok(());
        }
        if !self.data.at_end() {
            let moved = self.data.step();
            return self.check_data(moved);
        }
        self.next_block()
    }

    fn backward(&mut self) -> Result<()> {
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

    fn next_block(&mut self) -> Result<()> {
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
    fn enter_partition(&mut self, direction: Direction) -> Result<()> {
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
            return Err(self.broken(self.index.block(), "an index partition is empty"));
        }
        self.enter_data(direction)
    }

    /// To the near end of the data block that the index is at.
    fn enter_data(&mut self, direction: Direction) -> Result<()> {
        self.load_data(direction)?;
        let moved = match direction {
            Direction::Forward => self.data.seek_first(),
            Direction::Backward => self.data.seek_last(),
        };
        self.check_data(moved)?;
        if self.data.valid() { Ok(()) } else { Err(self.broken_data("a data block is empty")) }
    }

    fn load_partition(&mut self) -> Result<()> {
        let (address, _) = self.table.partition(self.top.value())?;
        let block = self.table.index_block(address, !self.read_ahead.streams())?;
        self.index.set_block(block);
        Ok(())
    }

    fn load_data(&mut self, direction: Direction) -> Result<()> {
        let table = &self.table;
        let address = table.data_block_address(self.index.block(), self.index.address())?;
        let (file, number) = (table.file(), table.file().number());
        if self.read_ahead.streams() {
            let stored = self.read_ahead.block(address, direction)?;
            let bytes = open_shared(file, address, &stored)?;
            self.data.set_block(parse(file, address, bytes, Coding::Records)?);
            return Ok(());
        }
        if let Some(block) = table.cache().get(number, address.offset, BlockClass::Data) {
            self.read_ahead.skip(address);
            self.data.set_block(block);
            return Ok(());
        }
        let stored = self.read_ahead.block(address, direction)?;
        let shared = open_shared(file, address, &stored)?;
        // A plain block is a slice of a whole window, which the cache must not keep alive.
        let plain = shared.as_ptr() == stored.as_ptr();
        let bytes = if plain { Bytes::copy_from_slice(&shared) } else { shared };
        let block = parse(file, address, bytes, Coding::Records)?;
        table.cache().insert(number, address.offset, block.clone());
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
