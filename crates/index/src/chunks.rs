//! A list in chunks: it grows and shrinks by a few kilobytes, and what it holds never moves.
//!
//! A `Vec` doubles. At the moment it does, it takes three times what is in it, and afterwards keeps
//! half of that free; a cache that counts its memory would have to give up records for both.
//!
//! Invariants:
//! 1. All chunks but the last one in use are full. At most one chunk is empty, so that a list whose
//!    length goes up and down around a border does not allocate each time.
//! 2. An empty list holds no memory.

use crate::key_hash::allocated_bytes;
use std::ops::{Index, IndexMut};

/// Chunks take about this much: a size that allocators have, for items of 16 and 48 bytes too.
const CHUNK_BYTES: usize = 3072;

#[derive(Debug)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T> Chunks<T> {
    /// Items of a chunk: a power of two, so that finding one is a shift.
    const ITEMS: usize = 1 << (CHUNK_BYTES / size_of::<T>()).ilog2();

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, item: T) {
        let chunk = self.len / Self::ITEMS;
        if chunk == self.chunks.len() {
            let list = self.list_growth();
            self.chunks.reserve_exact(list);
            self.chunks.push(Vec::with_capacity(Self::ITEMS));
        }
        self.chunks[chunk].push(item);
        self.len += 1;
    }

    pub fn pop(&mut self) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        let item = self.chunks[last / Self::ITEMS].pop();
        self.len = last;
        self.shrink();
        item
    }

    /// Takes an item out and puts the last one in its place.
    pub fn swap_remove(&mut self, at: usize) -> Option<T> {
        let last = self.pop()?;
        Some(if at == self.len { last } else { std::mem::replace(&mut self[at], last) })
    }

    /// Gives back an empty chunk, once the one before it has room as well.
    fn shrink(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        } else if self.chunks.len() * Self::ITEMS > self.len + Self::ITEMS * 3 / 2 {
            self.chunks.pop();
            if self.chunks.capacity() > self.chunks.len() * 2 + 8 {
                self.chunks.shrink_to(self.chunks.len() + 4);
            }
        }
    }

    /// How many places the list of chunks lacks for one more.
    fn list_growth(&self) -> usize {
        let chunks = self.chunks.len();
        if self.chunks.capacity() > chunks { 0 } else { chunks / 4 + 4 }
    }

    const fn list_bytes(capacity: usize) -> usize {
        allocated_bytes(capacity * size_of::<Vec<T>>())
    }

    /// Memory that it has, in use or not.
    pub fn memory_bytes(&self) -> usize {
        self.chunks.len() * allocated_bytes(Self::ITEMS * size_of::<T>())
            + Self::list_bytes(self.chunks.capacity())
    }

    /// Memory that one item more will take besides.
    pub fn growth_bytes(&self) -> usize {
        if self.len < self.chunks.len() * Self::ITEMS {
            return 0;
        }
        let (capacity, growth) = (self.chunks.capacity(), self.list_growth());
        allocated_bytes(Self::ITEMS * size_of::<T>()) + Self::list_bytes(capacity + growth)
            - Self::list_bytes(capacity)
    }

    /// Memory of the first item.
    pub const fn first_bytes() -> usize {
        allocated_bytes(Self::ITEMS * size_of::<T>()) + Self::list_bytes(4)
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        &self.chunks[at / Self::ITEMS][at % Self::ITEMS]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / Self::ITEMS][at % Self::ITEMS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_list_whose_growth_is_foretold_and_which_gives_its_memory_back() {
        let mut chunks = Chunks::<u64>::default();
        assert_eq!(
            (chunks.memory_bytes(), chunks.growth_bytes()),
            (0, Chunks::<u64>::first_bytes())
        );
        for n in 0..10_000 {
            let foretold = chunks.memory_bytes() + chunks.growth_bytes();
            chunks.push(n);
            assert_eq!(chunks.memory_bytes(), foretold);
        }
        assert!(chunks.memory_bytes() < 80_000 * 11 / 10);
        assert_eq!(chunks.swap_remove(17), Some(17));
        assert_eq!((chunks[17], chunks.len()), (9999, 9999));
        chunks[17] = 17;
        for n in (0..9999).rev() {
            assert_eq!(chunks.pop(), Some(n));
            assert!(chunks.memory_bytes() <= n as usize * 9 + 2 * 4096);
        }
        assert_eq!((chunks.pop(), chunks.swap_remove(0), chunks.memory_bytes()), (None, None, 0));
    }

    #[test]
    fn a_length_that_swings_around_a_border_keeps_its_chunk() {
        let mut chunks = Chunks::<u64>::default();
        (0..2 * 256 + 1).for_each(|n| chunks.push(n));
        let before = chunks.memory_bytes();
        for n in 0..100 {
            assert!(chunks.pop().is_some() && chunks.pop().is_some());
            assert_eq!(chunks.growth_bytes(), 0);
            (0..2).for_each(|_| chunks.push(n));
            assert_eq!(chunks.memory_bytes(), before);
        }
    }
}
