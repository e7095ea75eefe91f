//! Memory that any driver can transfer: whole pages, aligned to their size.
//!
//! Direct I/O wants addresses, offsets and lengths that are multiples of the device's block. A
//! buffer is therefore a vector of 4 KiB pages of which a range is in view: a read of bytes
//! 5000..5100 fetches page 1 and shows 100 bytes.

use std::ops::{Deref, DerefMut, Range};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the unit of alignment of every driver and durable format.
pub const PAGE_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// An owned, page-aligned run of bytes, of which `view` is visible through `Deref`.
pub struct Buffer {
    pages: Vec<Page>,
    view: Range<usize>,
}

impl Buffer {
    /// `len` zero bytes, all in view; the memory is rounded up to whole pages.
    pub fn zeroed(len: usize) -> Self {
        let count = len.div_ceil(PAGE_BYTES);
        let pages = if count == 0 {
            Vec::new()
        } else {
            // Fails only when memory is exhausted, which stops a Rust program anyway.
            Page::new_vec_zeroed(count).unwrap_or_else(|_| vec![Page([0; PAGE_BYTES]); count])
        };
        Self { pages, view: 0..len }
    }

    /// A copy of `bytes`, all in view.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes that the buffer can show: a multiple of the page size.
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// Shows `view` of the whole capacity.
    pub fn set_view(&mut self, view: Range<usize>) {
        assert!(view.start <= view.end && view.end <= self.capacity(), "view beyond the buffer");
        self.view = view;
    }

    /// What is in view, as a range of the capacity.
    pub fn view(&self) -> Range<usize> {
        self.view.clone()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[self.view.clone()]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[self.view.clone()]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({:?} of {})", self.view, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_show_their_view() {
        let mut buffer = Buffer::zeroed(5000);
        assert_eq!(buffer.as_ptr() as usize % PAGE_BYTES, 0);
        assert_eq!((buffer.len(), buffer.capacity()), (5000, 8192));
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[4999] = 7;
        buffer.set_view(4999..5001);
        assert_eq!(&buffer[..], [7, 0]);
        assert_eq!(Buffer::zeroed(0).len(), 0);
    }
}
