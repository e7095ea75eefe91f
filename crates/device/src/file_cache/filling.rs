//! Blocks on their way into the cache: one batch gathers while another is written.
//!
//! Readers copy what they have just read into the gathering batch and go on. Once a block does not
//! fit any more the batch is handed to the one that writes; until it has been taken, what is
//! offered beyond the next batch is dropped. So a reader waits for no write, and memory is two
//! batches.
//!
//! One owner; it locks.

use super::sealed::Layout;
use crate::buffer::{Buffer, PAGE_BYTES};

/// Blocks that are written at once, and where each lies in the batch.
#[derive(Debug)]
pub struct Batch<K> {
    buffer: Buffer,
    end: usize,
    blocks: Vec<(K, u64)>,
}

impl<K: Copy + PartialEq> Batch<K> {
    /// An empty one, of so many bytes at most.
    pub fn new(bytes: usize) -> Self {
        Self { buffer: Buffer::zeroed(bytes), end: 0, blocks: Vec::new() }
    }

    /// Adds a block; false where it does not fit.
    pub fn add(&mut self, layout: Layout, key: K, stored: &[u8]) -> bool {
        let at = layout.place(self.end as u64, stored.len() as u64) as usize;
        let Some(place) = self.buffer.get_mut(at..at + stored.len()) else { return false };
        place.copy_from_slice(stored);
        self.end = at + stored.len();
        self.blocks.push((key, at as u64));
        true
    }

    /// It has no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    fn has(&self, key: K) -> bool {
        self.blocks.iter().any(|(other, _)| *other == key)
    }

    /// The bytes to write, whole pages, and which block begins where.
    pub fn into_parts(self) -> (Buffer, Vec<(K, u64)>) {
        let Self { mut buffer, end, blocks } = self;
        buffer.set_view(0..end.next_multiple_of(PAGE_BYTES));
        (buffer, blocks)
    }
}

/// What became of an offered block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It will be written.
    Taken,
    /// Taken, and the batch before it is to be written.
    BatchFull,
    /// It is under way already, or there is no room for it now.
    Dropped,
}

/// See the module.
#[derive(Debug)]
pub struct Filling<K> {
    layout: Layout,
    batch_bytes: usize,
    gathering: Batch<K>,
    full: Option<Batch<K>>,
}

impl<K: Copy + PartialEq> Filling<K> {
    /// Batches of so many bytes, a multiple of a page.
    pub fn new(layout: Layout, batch_bytes: usize) -> Self {
        Self { layout, batch_bytes, gathering: Batch::new(batch_bytes), full: None }
    }

    /// Copies a block that is not under way already.
    pub fn offer(&mut self, key: K, stored: &[u8]) -> Offered {
        let is_here = |batch: &Batch<K>| batch.has(key);
        if is_here(&self.gathering) || self.full.as_ref().is_some_and(is_here) {
            return Offered::Dropped;
        }
        if self.gathering.add(self.layout, key, stored) {
            return Offered::Taken;
        }
        if self.full.is_some() || stored.len() > self.batch_bytes {
            return Offered::Dropped;
        }
        let next = Batch::new(self.batch_bytes);
        self.full = Some(std::mem::replace(&mut self.gathering, next));
        self.gathering.add(self.layout, key, stored);
        Offered::BatchFull
    }

    /// The batch to write now.
    pub fn take_full(&mut self) -> Option<Batch<K>> {
        self.full.take()
    }

    /// What is gathered so far, at the end.
    pub fn take_rest(&mut self) -> Option<Batch<K>> {
        let next = Batch::new(self.batch_bytes);
        Some(std::mem::replace(&mut self.gathering, next)).filter(|batch| !batch.is_empty())
    }

    /// Drops all that is under way.
    pub fn clear(&mut self) {
        self.full = None;
        drop(self.take_rest());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_batch_is_full_when_a_block_does_not_fit_and_the_next_waits_for_the_job() {
        let mut filling = Filling::new(Layout::Packed, 4096);
        let block = |number: u64| vec![number as u8; 1000];
        let offer = |filling: &mut Filling<u64>, number| filling.offer(number, &block(number));
        let taken: Vec<_> = (0..4).map(|number| offer(&mut filling, number)).collect();
        assert_eq!(taken, [Offered::Taken; 4]);
        assert_eq!(offer(&mut filling, 2), Offered::Dropped, "it is under way");
        assert_eq!(offer(&mut filling, 4), Offered::BatchFull);
        assert_eq!(offer(&mut filling, 0), Offered::Dropped, "still under way");
        (5..8).for_each(|number| assert_eq!(offer(&mut filling, number), Offered::Taken));
        assert_eq!(offer(&mut filling, 8), Offered::Dropped, "the job is behind");
        let (buffer, blocks) = filling.take_full().unwrap().into_parts();
        assert_eq!(buffer.len(), 4096);
        let at: Vec<_> = blocks.iter().map(|(_, at)| *at).collect();
        assert_eq!(at, [0, 1008, 2016, 3024]);
        assert_eq!((buffer[2015], buffer[2016]), (0, 2));
        assert_eq!(offer(&mut filling, 8), Offered::BatchFull);
        assert_eq!(filling.offer(9, &[0; 5000]), Offered::Dropped, "longer than a batch");
        filling.clear();
        assert!(filling.take_full().is_none() && filling.take_rest().is_none());
    }
}
