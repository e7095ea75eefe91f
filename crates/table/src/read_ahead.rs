//! Reads the data area ahead of an iterator, in windows that hold several blocks.
//!
//! ```text
//!   data area   ..|b|b|b|b|b|b|b|b|b|b|b|b|..
//!   window              |-------|             bytes in memory
//!   pending                     |-------|     a read under way, adjoining the window
//! ```
//! A jump reads what the caller's hint says, or just the block, and so does the first step from
//! there: most scans end soon, and most sources of a merge are left early. Blocks asked for in
//! order after that are read in windows of 16 KiB that double up to a limit, and past the middle of
//! a large one the next is started, so that it overlaps with the use of this one; a short scan pays
//! for no read that it does not need. Streaming, for compactions, starts at full size. Both
//! directions work alike.
//!
//! Where a second level has copies of blocks, a scan that expects less than [`SHORT_BYTES`] asks it
//! for each block up to these, as long as it has them: a few reads of a fast device are cheaper
//! than one of the slow. A longer scan reads its windows of the table.
//!
//! A caller can also ask for the window of a jump, read it together with those of other iterators,
//! and supply it.
//!
//! Invariants: bytes are only handed out for the address asked for, unverified; a read error
//! belongs to the block whose bytes it lost, and asking again reads again. One thread at a time,
//! the iterator's.

use crate::format::{BlockAddress, PAGE};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use thermocline_device::{Buffer, File, PendingRead, Result};

/// How an iterator reads blocks that are not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// For scans of unknown or small length: starts with `first_bytes` (0 for one block), grows
    /// while the scan goes on, and keeps blocks in the cache.
    Adaptive {
        /// Bytes that the caller expects to read, known or guessed.
        first_bytes: u32,
        /// Where growing ends. An iterator holds up to three windows, and a merge has many
        /// iterators.
        window_bytes_max: u32,
    },
    /// For reading a whole table once: windows of `window_bytes`, and the cache is neither asked
    /// nor filled.
    Stream {
        /// Bytes a read; 1 MiB is good on every device.
        window_bytes: u32,
    },
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self::Adaptive { first_bytes: 0, window_bytes_max: 1 << 20 }
    }
}

/// A block of at least so many bytes is let go once it is taken: its bytes and what they unpack to
/// would take memory at the same time.
pub(crate) const LARGE_BYTES: u32 = 1 << 20;

/// A scan that expects less asks a second level for its blocks: up to five of them. No window is
/// held to less, so that a scan that expects more never looks shorter.
const SHORT_BYTES: u64 = 16 << 10;
const GROWN_BYTES_MIN: u64 = 16 << 10;
/// From windows of this size on the next one is read ahead.
const OVERLAP_BYTES_MIN: u64 = 64 << 10;

/// Which way blocks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

#[derive(Debug)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn block(&self, address: BlockAddress) -> Option<Bytes> {
        (self.start <= address.offset && address.end() <= self.end()).then(|| {
            let from = (address.offset - self.start) as usize;
            self.bytes.slice(from..from + address.len as usize)
        })
    }
}

/// The read-ahead of one iterator.
#[derive(Debug)]
pub(crate) struct Reader {
    file: Arc<File>,
    mode: ReadAhead,
    /// Where data blocks end; nothing is read beyond it.
    data_end: u64,
    window: Option<Window>,
    pending: Option<(u64, PendingRead)>,
    /// The block asked for last, for telling a run from a jump.
    last: Option<BlockAddress>,
    /// The window was supplied for the block asked for last, and no read has taken it yet.
    supplied: bool,
    /// Bytes of the next window of a run.
    next_bytes: u64,
    /// Reads since the last jump.
    reads: u32,
    /// Bytes since the last jump that were in memory or read elsewhere, block after block.
    elsewhere: u64,
}

impl Reader {
    pub fn new(file: Arc<File>, data_end: u64, mode: ReadAhead) -> Self {
        Self {
            file,
            mode,
            data_end,
            window: None,
            pending: None,
            last: None,
            supplied: false,
            next_bytes: 0,
            reads: 0,
            elsewhere: 0,
        }
    }

    /// The cache is neither asked nor filled.
    pub fn streams(&self) -> bool {
        matches!(self.mode, ReadAhead::Stream { .. })
    }

    /// The block at `address` was found in the cache.
    pub fn skip(&mut self, address: BlockAddress, direction: Direction) {
        let run = self.last.replace(address).is_some_and(|last| adjoins(last, address, direction));
        self.elsewhere = match (run, self.elsewhere) {
            // The table was read since the jump.
            (true, 0) => 0,
            (true, before) => before + u64::from(address.len),
            (false, _) => address.len.into(),
        };
    }

    /// Whether a copy of the block at `address` is worth a read of its own. Nothing of it is in
    /// memory or under way, and the last block does not lead to it, or was one of the first of a
    /// short scan, all of which were elsewhere.
    pub fn asks(&self, address: BlockAddress, direction: Direction) -> bool {
        let ReadAhead::Adaptive { first_bytes, .. } = self.mode else { return false };
        let expected = u64::from(first_bytes);
        let is_here = |window: &Window| window.block(address).is_some();
        let run = self.last.is_some_and(|last| adjoins(last, address, direction));
        let may = match run {
            false => expected < SHORT_BYTES.max(u64::from(address.len) + 1),
            true => expected < SHORT_BYTES && (1..expected).contains(&self.elsewhere),
        };
        may && self.pending.is_none() && !self.window.as_ref().is_some_and(is_here)
    }

    /// The block at `address`, for which a second level was asked, is read elsewhere.
    pub fn land(&mut self, address: BlockAddress, direction: Direction) {
        self.skip(address, direction);
        (self.next_bytes, self.reads) = (0, 1);
    }

    /// Where the bytes to read for the block at `address` begin, and how many there are; none where
    /// they are in memory or under way. To be supplied before the block is asked for.
    pub fn wanted(&mut self, address: BlockAddress, direction: Direction) -> Option<(u64, usize)> {
        let window = self.window.as_ref().and_then(|window| window.block(address));
        if window.is_some() || self.pending.is_some() {
            return None;
        }
        let run = self.arrive(address, direction);
        let (start, end) = self.plan(run, address, direction);
        Some((start, (end - start) as usize))
    }

    /// What was wanted at `start`.
    pub fn supply(&mut self, start: u64, buffer: Buffer) {
        self.window = Some(Window { start, bytes: Bytes::from_owner(buffer) });
        self.supplied = true;
    }

    /// The window was supplied for the block at `address`, which is to be taken from it now.
    pub fn take_supplied(&mut self, address: BlockAddress) -> bool {
        std::mem::take(&mut self.supplied) && self.last == Some(address)
    }

    /// The stored bytes of the block at `address`.
    pub fn block(&mut self, address: BlockAddress, direction: Direction) -> Result<Bytes> {
        let block = self.taken(address, direction)?;
        if address.len >= LARGE_BYTES && direction == Direction::Forward {
            self.let_go(address);
        }
        Ok(block)
    }

    /// Keeps what the window has behind the block at `address`, where that is less than a page.
    fn let_go(&mut self, address: BlockAddress) {
        let Some(window) = &self.window else { return };
        let Some(rest) = window.end().checked_sub(address.end()).filter(|rest| *rest < PAGE) else {
            return;
        };
        let behind = &window.bytes[window.bytes.len() - rest as usize..];
        let bytes = Bytes::copy_from_slice(behind);
        self.window = Some(Window { start: address.end(), bytes });
    }

    fn taken(&mut self, address: BlockAddress, direction: Direction) -> Result<Bytes> {
        let run = self.arrive(address, direction);
        if let Some(bytes) = self.window.as_ref().and_then(|window| window.block(address)) {
            self.read_on(address, direction);
            return Ok(bytes);
        }
        if let Some(bytes) = self.take_pending(address)? {
            self.read_on(address, direction);
            return Ok(bytes);
        }
        let (start, end) = self.plan(run, address, direction);
        let buffer = self.file.read(start, (end - start) as usize)?;
        let window = Window { start, bytes: Bytes::from_owner(buffer) };
        let block = window.block(address);
        self.window = Some(window);
        self.read_on(address, direction);
        match block {
            Some(block) => Ok(block),
            // The range holds the block, so this is not reached; reading it alone is right in any
            // case.
            None => {
                let buffer = self.file.read(address.offset, address.len as usize)?;
                Ok(Bytes::from_owner(buffer))
            }
        }
    }

    /// Goes on to the block at `address`, in a run or by a jump.
    fn arrive(&mut self, address: BlockAddress, direction: Direction) -> bool {
        self.elsewhere = 0;
        let last = self.last.replace(address);
        last.is_some_and(|last| adjoins(last, address, direction))
    }

    /// From where to where to read now.
    fn plan(&mut self, run: bool, address: BlockAddress, direction: Direction) -> (u64, u64) {
        let bytes = self.size(run);
        self.range(address, bytes, direction)
    }

    /// Bytes of the window to read now.
    fn size(&mut self, run: bool) -> u64 {
        match self.mode {
            ReadAhead::Stream { window_bytes } => {
                self.next_bytes = u64::from(window_bytes).max(PAGE);
                self.next_bytes
            }
            ReadAhead::Adaptive { first_bytes, .. } if !run => {
                (self.next_bytes, self.reads) = (0, 1);
                u64::from(first_bytes)
            }
            ReadAhead::Adaptive { first_bytes, .. } if self.reads == 1 => {
                self.reads = 2;
                u64::from(first_bytes)
            }
            ReadAhead::Adaptive { first_bytes, window_bytes_max } => {
                self.grow(first_bytes.into(), window_bytes_max.into())
            }
        }
    }

    fn grow(&mut self, first_bytes: u64, window_bytes_max: u64) -> u64 {
        let bytes = self.next_bytes.max(first_bytes) * 2;
        self.next_bytes = bytes.min(window_bytes_max).max(GROWN_BYTES_MIN);
        self.next_bytes
    }

    /// `bytes` from (or back from) the block on, rounded to pages and cut to the data area.
    fn range(&self, address: BlockAddress, bytes: u64, direction: Direction) -> (u64, u64) {
        match direction {
            Direction::Forward => {
                let end = address.end().max(address.offset + bytes).next_multiple_of(PAGE);
                (address.offset, end.min(self.data_end.max(address.end())))
            }
            Direction::Backward => {
                let start = address.offset.min(address.end().saturating_sub(bytes));
                (start - start % PAGE, address.end())
            }
        }
    }

    /// A block that lies in the pending read, or across the window and the pending read.
    fn take_pending(&mut self, address: BlockAddress) -> Result<Option<Bytes>> {
        let Some((start, pending)) = self.pending.take() else {
            return Ok(None);
        };
        let Some(before) = self.window.take() else {
            return Ok(None);
        };
        let reach = if start == before.end() {
            before.start <= address.offset
        } else {
            address.end() <= before.end()
        };
        if !reach {
            // A jump: the read under way is of no use, nor is its error.
            return Ok(None);
        }
        let window = Window { start, bytes: Bytes::from_owner(pending.wait()?) };
        let block = window.block(address).or_else(|| across(&before, &window, address));
        self.window = Some(window);
        Ok(block)
    }

    /// Starts the next window once this one is half used.
    fn read_on(&mut self, address: BlockAddress, direction: Direction) {
        let small = self.next_bytes < OVERLAP_BYTES_MIN && !self.streams();
        if self.pending.is_some() || small {
            return;
        }
        let Some(window) = &self.window else { return };
        let middle = window.start + window.bytes.len() as u64 / 2;
        let (window_start, window_end) = (window.start, window.end());
        let past = match direction {
            Direction::Forward => address.end() >= middle,
            Direction::Backward => address.offset <= middle,
        };
        if !past && !self.streams() {
            return;
        }
        let bytes = self.size(true);
        let (start, end) = match direction {
            Direction::Forward => (window_end, (window_end + bytes).min(self.data_end)),
            Direction::Backward => (window_start.saturating_sub(bytes), window_start),
        };
        if start < end {
            let read = self.file.start_read(start, (end - start) as usize);
            self.pending = Some((start, read));
        }
    }
}

/// The block follows (or precedes) the last one, but for padding.
fn adjoins(last: BlockAddress, address: BlockAddress, direction: Direction) -> bool {
    let gap = match direction {
        Direction::Forward => address.offset.checked_sub(last.end()),
        Direction::Backward => last.offset.checked_sub(address.end()),
    };
    gap.is_some_and(|gap| gap < PAGE)
}

/// A block that begins in one window and ends in the other.
fn across(a: &Window, b: &Window, address: BlockAddress) -> Option<Bytes> {
    let (low, high) = if a.start < b.start { (a, b) } else { (b, a) };
    let fits = low.end() == high.start
        && low.start <= address.offset
        && address.offset < low.end()
        && address.end() <= high.end();
    fits.then(|| {
        let mut bytes = BytesMut::with_capacity(address.len as usize);
        bytes.extend_from_slice(&low.bytes[(address.offset - low.start) as usize..]);
        bytes.extend_from_slice(&high.bytes[..(address.end() - high.start) as usize]);
        bytes.freeze()
    })
}
