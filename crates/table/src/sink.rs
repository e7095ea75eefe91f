//! Where a writer's bytes go: gathered into large aligned writes, blocks placed and sealed.
//!
//! Every write is a multiple of the page, at a multiple of the page. Used by one thread, the
//! writer's.

use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, PAGE, bound_to, place_block};
use std::sync::Arc;
use thermocline_device::{Buffer, File, Result};
use thermocline_foundation::Place;
use thermocline_foundation::checksum::checksum_parts;

/// Bytes of the first write to the file, and of the largest; each is four times as long as the one
/// before, so that a small table needs no large buffer.
const CHUNK_BYTES_FIRST: usize = 64 << 10;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Gathers bytes into page-aligned chunks.
pub(crate) struct Sink {
    pub file: Arc<File>,
    chunk: Buffer,
    filled: usize,
    /// Bytes taken so far, in the chunk included.
    pub position: u64,
}

impl Sink {
    pub fn new(file: Arc<File>) -> Self {
        Self { file, chunk: Buffer::zeroed(CHUNK_BYTES_FIRST), filled: 0, position: 0 }
    }

    pub fn place(&self) -> Place {
        self.file.place(self.position)
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let len = bytes.len().min(self.chunk.len() - self.filled);
            self.chunk[self.filled..self.filled + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
            self.advance(len)?;
        }
        Ok(())
    }

    fn pad(&mut self, len: u64) -> Result<()> {
        const ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
        self.write(&ZEROS[..len as usize])
    }

    pub fn pad_to_page(&mut self) -> Result<()> {
        self.pad(self.position.next_multiple_of(PAGE) - self.position)
    }

    fn advance(&mut self, len: usize) -> Result<()> {
        self.filled += len;
        self.position += len as u64;
        if self.filled == self.chunk.len() { self.flush() } else { Ok(()) }
    }

    /// Writes the chunk, which ends at a page.
    pub fn flush(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let offset = self.position - self.filled as u64;
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.set_view(0..self.filled);
        let (mut chunk, result) = self.file.write(offset, chunk);
        let len = (4 * chunk.capacity()).clamp(CHUNK_BYTES_FIRST, CHUNK_BYTES_MAX);
        self.chunk = if chunk.capacity() == len {
            chunk.set_view(0..len);
            chunk
        } else {
            Buffer::zeroed(len)
        };
        self.filled = 0;
        result
    }

    /// Pads as placement wants, writes the parts and the trailer; the padding is given beside the
    /// address.
    pub fn write_block(
        &mut self,
        kind: u8,
        raw_len: usize,
        parts: &[&[u8]],
        align_pages: bool,
    ) -> Result<(BlockAddress, u64)> {
        let stored: usize = parts.iter().map(|part| part.len()).sum();
        let len = stored + BLOCK_TRAILER_BYTES;
        let offset = place_block(self.position, len as u64, align_pages);
        let padding = offset - self.position;
        self.pad(padding)?;
        let mut trailer = [0; BLOCK_TRAILER_BYTES];
        trailer[0] = kind;
        trailer[1..5].copy_from_slice(&(raw_len as u32).to_le_bytes());
        let place = bound_to(self.place());
        let sum = match *parts {
            [part] => checksum_parts(&place, &[part, &trailer[..5]]),
            [head, value, tail] => checksum_parts(&place, &[head, value, tail, &trailer[..5]]),
            _ => unreachable!("a block is written in one part or three"),
        };
        trailer[5..].copy_from_slice(&sum.to_le_bytes());
        for part in parts {
            self.write(part)?;
        }
        self.write(&trailer)?;
        Ok((BlockAddress { offset, len: len as u32 }, padding))
    }
}
