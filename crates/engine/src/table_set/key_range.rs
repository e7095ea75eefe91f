//! Ranges of keys.

use super::table::{Table, TableMeta};
use std::ops::Bound;

/// Keys from here (inclusive) up to there (exclusive); none is an open end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub from: Option<Vec<u8>>,
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// All keys from `first` to `last`, both included.
    pub fn spanning(first: &[u8], last: &[u8]) -> Self {
        Self { from: Some(first.to_vec()), to: Some(successor(last)) }
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        let before = |to: &Option<Vec<u8>>, from: &Option<Vec<u8>>| match (to, from) {
            (Some(to), Some(from)) => to <= from,
            _ => false,
        };
        !before(&self.to, &other.from) && !before(&other.to, &self.from)
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key)
            && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// No key is in it.
    pub fn is_empty(&self) -> bool {
        let from = self.from.as_deref().unwrap_or_default();
        self.to.as_deref().is_some_and(|to| to <= from)
    }

    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let from = self.from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let to = self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        (from, to)
    }

    /// Some key of the table's span is in the range.
    pub fn has_key_of(&self, meta: &TableMeta) -> bool {
        self.to.as_ref().is_none_or(|to| meta.smallest_key < *to)
            && self.from.as_ref().is_none_or(|from| meta.largest_key >= *from)
    }

    pub fn touches(&self, table: &Table) -> bool {
        self.has_key_of(&table.meta)
    }

    /// Widens the range so that it has all keys of the table.
    pub fn include(&mut self, table: &Table) {
        if self.from.as_ref().is_some_and(|from| table.meta.smallest_key < *from) {
            self.from = Some(table.meta.smallest_key.clone());
        }
        if self.to.as_ref().is_some_and(|to| table.meta.largest_key >= *to) {
            self.to = Some(successor(&table.meta.largest_key));
        }
    }
}

/// The smallest key after `key`.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
