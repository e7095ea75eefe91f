//! The range of a scan.

use crate::table_set::key_range::{KeyRange, successor};
use std::ops::Bound;

/// What a scan covers, before its end is known to the tables.
#[derive(Clone, Debug)]
pub(crate) struct ScanRange {
    pub from: Bound<Vec<u8>>,
    pub to: Bound<Vec<u8>>,
}

impl ScanRange {
    pub fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// Cuts the range to the keys that begin with `prefix`.
    pub fn with_prefix(mut self, prefix: &[u8]) -> Self {
        let above_from = match &self.from {
            Bound::Included(from) | Bound::Excluded(from) => from.as_slice() < prefix,
            Bound::Unbounded => true,
        };
        if above_from {
            self.from = Bound::Included(prefix.to_vec());
        }
        // The first key after all with the prefix: drop trailing 0xff bytes and count the last one
        // up.
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        if let Some(last) = end.last_mut() {
            *last += 1;
            let below_to = match &self.to {
                Bound::Included(to) => *to >= end,
                Bound::Excluded(to) => *to > end,
                Bound::Unbounded => true,
            };
            if below_to {
                self.to = Bound::Excluded(end);
            }
        }
        self
    }

    /// The same keys, from the first (inclusive) up to the last (exclusive).
    pub fn keys(&self) -> KeyRange {
        let from = match &self.from {
            Bound::Included(from) => Some(from.clone()),
            Bound::Excluded(from) => Some(successor(from)),
            Bound::Unbounded => None,
        };
        let to = match &self.to {
            Bound::Included(to) => Some(successor(to)),
            Bound::Excluded(to) => Some(to.clone()),
            Bound::Unbounded => None,
        };
        KeyRange { from, to }
    }

    pub fn below_end(&self, key: &[u8]) -> bool {
        match &self.to {
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
            Bound::Unbounded => true,
        }
    }

    pub fn above_start(&self, key: &[u8]) -> bool {
        match &self.from {
            Bound::Included(from) => key >= from.as_slice(),
            Bound::Excluded(from) => key > from.as_slice(),
            Bound::Unbounded => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_cuts_the_range_at_both_ends() {
        let range = ScanRange::all().with_prefix(b"ab");
        assert_eq!(range.from, Bound::Included(b"ab".to_vec()));
        assert_eq!(range.to, Bound::Excluded(b"ac".to_vec()));
        let range = ScanRange::all().with_prefix(&[7, 0xff, 0xff]);
        assert_eq!(range.to, Bound::Excluded(vec![8]));
        assert_eq!(ScanRange::all().with_prefix(&[0xff]).to, Bound::Unbounded);
        let narrow = ScanRange {
            from: Bound::Excluded(b"abc".to_vec()),
            to: Bound::Included(b"abd".to_vec()),
        };
        let cut = narrow.clone().with_prefix(b"ab");
        assert_eq!((cut.from, cut.to), (narrow.from, narrow.to));
    }
}
