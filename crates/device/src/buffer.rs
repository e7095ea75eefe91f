//! Memory that any driver can transfer: whole pages, aligned to their size.
//!
//! Direct I/O wants addresses, offsets and lengths that are multiples of the device's block. A
//! buffer is therefore a vector of 4 KiB pages of which a range is in view: a read of bytes
//! 5000..5100 fetches page 1 and shows 100 bytes.
//!
//! Aligned memory that is zeroed costs a small read more of the processor than its checksum does,
//! and a read overwrites it all the same. So each thread keeps the pages of some small buffers that
//! it dropped (`Spares`), and [`Buffer::for_read`] takes them as they are.

use std::cell::RefCell;
use std::mem;
use std::ops::{Deref, DerefMut, Range};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the unit of alignment of every driver and durable format.
pub const PAGE_BYTES: usize = 4096;

/// The first place at or behind `position` where `len` bytes touch no more pages than they must
/// (MyNVM, section 4.1.2).
pub fn fewest_pages(position: u64, len: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    let in_page = position % page;
    let touched = (in_page + len).div_ceil(page);
    if touched > len.div_ceil(page) { position + (page - in_page) } else { position }
}

#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Buffers of more pages are not kept.
const SPARE_PAGES_MAX: usize = 8;
/// Pages that a thread keeps, 128 KiB: a batch of reads of slots.
const KEPT_PAGES_MAX: usize = 32;

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares::new()) };
}

/// Pages of buffers that a thread has dropped, by their number. What they hold is of earlier use.
struct Spares {
    by_pages: [Vec<Vec<Page>>; SPARE_PAGES_MAX],
    pages: usize,
}

impl Spares {
    const fn new() -> Self {
        Self { by_pages: [const { Vec::new() }; SPARE_PAGES_MAX], pages: 0 }
    }

    /// Exactly so many pages, if there are.
    fn take(&mut self, count: usize) -> Option<Vec<Page>> {
        let pages = self.by_pages.get_mut(count.checked_sub(1)?)?.pop()?;
        self.pages -= count;
        Some(pages)
    }

    /// Keeps these, for others of the size that there is most of; frees them where that is theirs.
    fn keep(&mut self, pages: Vec<Page>) {
        let count = pages.len();
        while self.pages + count > KEPT_PAGES_MAX {
            let of_size = |at: &usize| (at + 1) * self.by_pages[*at].len();
            let most = (0..SPARE_PAGES_MAX).max_by_key(of_size).unwrap_or_default() + 1;
            if most == count {
                return;
            }
            drop(self.take(most));
        }
        self.pages += count;
        self.by_pages[count - 1].push(pages);
    }
}

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

    /// `len` bytes of no meaning, all in view, for something to be read into. A caller that reads
    /// less than that narrows the view.
    pub fn for_read(len: usize) -> Self {
        // A thread that ends has none any more.
        let spare = SPARES.try_with(|spares| spares.borrow_mut().take(len.div_ceil(PAGE_BYTES)));
        match spare.ok().flatten() {
            Some(pages) => Self { pages, view: 0..len },
            None => Self::zeroed(len),
        }
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

impl Drop for Buffer {
    fn drop(&mut self) {
        if (1..=SPARE_PAGES_MAX).contains(&self.pages.len()) {
            let pages = mem::take(&mut self.pages);
            // Freed here where the thread ends.
            let _ended = SPARES.try_with(|spares| spares.borrow_mut().keep(pages));
        }
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

    #[test]
    fn pages_of_small_buffers_are_used_again_and_others_are_zero() {
        let of_pages = |count: usize| Buffer::for_read(count * PAGE_BYTES - 1);
        let address = |count| of_pages(count).as_ptr();
        for count in [1, 2, 3, SPARE_PAGES_MAX] {
            assert_eq!(address(count), address(count), "{count} pages");
        }
        let mut buffer = of_pages(2);
        buffer.fill(7);
        drop(buffer);
        let again = of_pages(2);
        assert_eq!((again.len(), again.capacity()), (2 * PAGE_BYTES - 1, 2 * PAGE_BYTES));
        assert!(again.iter().all(|byte| *byte == 7), "as they are");
        drop(again);
        assert!(Buffer::zeroed(2 * PAGE_BYTES - 1).iter().all(|byte| *byte == 0));
        assert_eq!(Buffer::for_read(0).len(), 0);
    }

    #[test]
    fn a_thread_keeps_so_many_pages_and_no_more() {
        let many: Vec<_> = (0..2 * KEPT_PAGES_MAX).map(|_| Buffer::for_read(1)).collect();
        drop(many);
        let kept = || SPARES.with(|spares| spares.borrow().pages);
        assert_eq!(kept(), KEPT_PAGES_MAX);
        drop(Buffer::zeroed((SPARE_PAGES_MAX + 1) * PAGE_BYTES));
        let two = [Buffer::for_read(1), Buffer::for_read(1)];
        assert_eq!(kept(), KEPT_PAGES_MAX - 2);
        drop(two);
        // Others than it had come in for these.
        let large = || Buffer::for_read(SPARE_PAGES_MAX * PAGE_BYTES);
        let address = large().as_ptr();
        assert_eq!(large().as_ptr(), address);
        assert_eq!(kept(), KEPT_PAGES_MAX);
    }
}
