//! The memory that records are appended to: a run of whole pages of the file, filled from the
//! front.
//!
//! ```text
//!          base                     dirty        end               base + capacity
//! file  ----|------ written ----------|-- to do --|      free            |----
//! ```
//!
//! Invariants:
//! 1. `base <= dirty <= end <= base + capacity`, and `base` is the start of a page.
//! 2. `end` never points at a sector's checksum: a full sector moves it to the start of the next
//!    one. Where `end` is at the start of a page, that page is not begun and has no header yet.
//! 3. From `end` to the end of its page the memory is zero, apart from checksums not yet computed.
//!
//! Owned by the writer's lock; what is taken out as a [`Batch`] belongs to the thread that writes
//! it.

use crate::format::{
    PAGE, PAGE_HEADER_BYTES, PAGE_STREAM_BYTES, PageHeader, SECTOR, SECTOR_BODY_BYTES,
    SECTOR_BYTES, seal_sector,
};
use thermocline_device::Buffer;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_foundation::Place;

/// Pages being filled.
#[derive(Debug)]
pub(crate) struct PageBuffer {
    buffer: Buffer,
    base: u64,
    end: u64,
    dirty: u64,
    /// What a write starts and ends at multiples of: a sector, or a page for direct I/O.
    unit: u64,
}

/// Bytes on their way to the file.
#[derive(Debug)]
pub(crate) struct Batch {
    pub buffer: Buffer,
    /// Offset in the file at which the buffer's memory starts.
    base: u64,
    /// Offset of the first byte to write.
    pub start: u64,
    /// Offset after the last record or piece of one.
    pub end: u64,
    /// Offset after the last byte to write.
    pub stop: u64,
}

impl PageBuffer {
    /// An empty buffer of `capacity` bytes (a multiple of a page) for pages from `base` on.
    pub fn new(capacity: usize, base: u64, alignment: usize) -> Self {
        let unit = if alignment <= SECTOR_BYTES { SECTOR } else { PAGE };
        Self { buffer: Buffer::zeroed(capacity), base, end: base, dirty: base, unit }
    }

    /// The page at `base`, which holds something up to `end`, to be continued.
    pub fn resume(page: Buffer, base: u64, end: u64, alignment: usize) -> Self {
        let unit = if alignment <= SECTOR_BYTES { SECTOR } else { PAGE };
        Self { buffer: page, base, end, dirty: end, unit }
    }

    /// A copy of the last page, which is not full.
    pub fn last_page(&self) -> Buffer {
        let at = (self.end - self.end % PAGE - self.base) as usize;
        Buffer::copy_of(&self.buffer[at..at + PAGE_BYTES])
    }

    /// Bytes of the stream that the last page, which is not full, still takes.
    pub fn page_room(&self) -> usize {
        let at = (self.end % PAGE) as usize;
        let sums = at / SECTOR_BYTES * (SECTOR_BYTES - SECTOR_BODY_BYTES);
        PAGE_STREAM_BYTES + PAGE_HEADER_BYTES + sums - at
    }

    /// Offset in the file after the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The next byte would start a page.
    pub fn at_page_start(&self) -> bool {
        self.end.is_multiple_of(PAGE)
    }

    /// There is no room for another page.
    pub fn is_full(&self) -> bool {
        self.end - self.base == self.buffer.len() as u64
    }

    /// Something has not been taken yet.
    pub fn is_dirty(&self) -> bool {
        self.dirty < self.end
    }

    /// Begins the page at `end`.
    pub fn begin_page(&mut self, header: &PageHeader) {
        debug_assert!(self.at_page_start() && !self.is_full());
        let at = (self.end - self.base) as usize;
        let page = &mut self.buffer[at..at + PAGE_BYTES];
        page.fill(0);
        page[..PAGE_HEADER_BYTES].copy_from_slice(&header.encode());
        self.end += PAGE_HEADER_BYTES as u64;
    }

    /// Appends to the begun page as much of `bytes` as fits; returns how much.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        debug_assert!(!self.at_page_start());
        let memory = &mut self.buffer[..];
        let mut at = (self.end - self.base) as usize;
        let mut done = 0;
        while done < bytes.len() {
            let room = SECTOR_BODY_BYTES - at % SECTOR_BYTES;
            let count = room.min(bytes.len() - done);
            memory[at..at + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
            at += count;
            if count == room {
                at += SECTOR_BYTES - SECTOR_BODY_BYTES;
                if at.is_multiple_of(PAGE_BYTES) {
                    break;
                }
            }
        }
        self.end = self.base + at as u64;
        done
    }

    /// Leaves the rest of the page empty.
    pub fn skip_page(&mut self) {
        self.end = self.end.next_multiple_of(PAGE);
    }

    /// Takes everything that has not been taken. No more is put before [`PageBuffer::reuse`], and
    /// then a page is begun.
    pub fn take_rest(&mut self) -> Batch {
        let batch = Batch {
            buffer: std::mem::take(&mut self.buffer),
            base: self.base,
            start: self.dirty - self.dirty % self.unit,
            end: self.end,
            stop: self.end.next_multiple_of(self.unit),
        };
        self.base = self.end.next_multiple_of(PAGE);
        (self.end, self.dirty) = (self.base, self.base);
        batch
    }

    /// The memory for what follows.
    pub fn reuse(&mut self, buffer: Buffer) {
        self.buffer = buffer;
    }

    /// Takes everything that has not been taken, and goes on in `next` with what of the last unit
    /// must be written again: at most a sector, or a page for direct I/O.
    pub fn take(&mut self, next: Option<Buffer>) -> Batch {
        debug_assert!(self.is_dirty());
        let capacity = self.buffer.len();
        let mut next = next.unwrap_or_else(|| Buffer::zeroed(capacity));
        let base = self.end - self.end % PAGE;
        if base < self.end {
            let keep = (self.end - self.end % self.unit - self.base) as usize;
            let end = (self.end - self.base) as usize;
            let shift = (base - self.base) as usize;
            next[end - shift..PAGE_BYTES].fill(0);
            next[keep - shift..end - shift].copy_from_slice(&self.buffer[keep..end]);
        }
        let batch = Batch {
            buffer: std::mem::replace(&mut self.buffer, next),
            base: self.base,
            start: self.dirty - self.dirty % self.unit,
            end: self.end,
            stop: self.end.next_multiple_of(self.unit),
        };
        self.base = base;
        self.dirty = self.end;
        batch
    }
}

impl Batch {
    /// Computes the checksums of all sectors that hold something and shows what is to be written.
    pub fn seal(&mut self, place: &Place) {
        let memory = (self.start - self.base) as usize..(self.stop - self.base) as usize;
        let used = self.end.next_multiple_of(SECTOR) - self.start;
        let sectors = self.buffer[memory.clone()][..used as usize].chunks_exact_mut(SECTOR_BYTES);
        for (offset, sector) in (self.start..).step_by(SECTOR_BYTES).zip(sectors) {
            seal_sector(&place.at(offset), sector);
        }
        self.buffer.set_view(memory);
    }
}
