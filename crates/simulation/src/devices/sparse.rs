//! Bytes of a simulated file: pages shared between the copies that crash images are.
//!
//! ```text
//!   clone        one reference count
//!   first write  copies the list of pages and one page; the copies share the rest
//!   hole         no page; reads as zero
//! ```
//! 1. Pages hold zeros beyond the length, so that growing shows nothing old.

use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = Option<Arc<[u8; PAGE_BYTES]>>;

/// A sparse run of bytes that is cheap to copy.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    pages: Arc<Vec<Page>>,
    len: u64,
}

impl Sparse {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `view` from `offset`; returns how many bytes there were.
    pub fn read(&self, offset: u64, view: &mut [u8]) -> usize {
        let available = self.len.saturating_sub(offset).min(view.len() as u64) as usize;
        let mut done = 0;
        while done < available {
            let at = offset as usize + done;
            let (page, skip) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let count = (PAGE_BYTES - skip).min(available - done);
            let target = &mut view[done..done + count];
            match self.pages.get(page).and_then(Option::as_ref) {
                Some(page) => target.copy_from_slice(&page[skip..skip + count]),
                None => target.fill(0),
            }
            done += count;
        }
        available
    }

    /// All bytes of `range`, zero where there are none.
    pub fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes);
        bytes
    }

    /// Puts `bytes` at `offset`, growing where needed.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        self.len = self.len.max(end);
        let pages = Arc::make_mut(&mut self.pages);
        pages.resize(pages.len().max((end as usize).div_ceil(PAGE_BYTES)), None);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset as usize + done;
            let (index, skip) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let count = (PAGE_BYTES - skip).min(bytes.len() - done);
            let page = pages[index].get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[skip..skip + count].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
    }

    /// Cuts or extends.
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let pages = Arc::make_mut(&mut self.pages);
            pages.truncate((len as usize).div_ceil(PAGE_BYTES));
            let used = len as usize % PAGE_BYTES;
            if used > 0
                && let Some(Some(page)) = pages.get_mut(len as usize / PAGE_BYTES)
            {
                Arc::make_mut(page)[used..].fill(0);
            }
        }
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::random::Random;

    #[test]
    fn it_is_a_vector_of_bytes_and_copies_are_apart() {
        let mut random = Random::new(1);
        let (mut sparse, mut plain) = (Sparse::default(), Vec::new());
        let mut copies = Vec::new();
        for _ in 0..500 {
            let offset = random.below(20_000);
            match random.below(4) {
                0 => {
                    sparse.set_len(offset);
                    plain.resize(offset as usize, 0);
                }
                1 => copies.push((sparse.clone(), plain.clone())),
                _ => {
                    let mut bytes = vec![0; random.below(9_000) as usize];
                    random.fill(&mut bytes);
                    let end = offset as usize + bytes.len();
                    if !bytes.is_empty() {
                        plain.resize(plain.len().max(end), 0);
                        plain[offset as usize..end].copy_from_slice(&bytes);
                    }
                    sparse.write(offset, &bytes);
                }
            }
            let from = random.below(25_000);
            let mut view = vec![1; random.below(9_000) as usize];
            let got = sparse.read(from, &mut view);
            let expected: Vec<_> = plain.iter().skip(from as usize).take(view.len()).collect();
            assert!(view[..got].iter().eq(expected), "from {from}");
        }
        for (sparse, plain) in copies {
            assert_eq!(sparse.bytes(0, sparse.len() as usize), plain);
        }
    }
}
