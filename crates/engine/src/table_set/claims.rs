//! What running merges have taken for themselves, so that no two of them write the same keys.

/// The key range and level that a running compaction writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub output_level: usize,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

impl Claim {
    /// The claim's output could share a level and a key with tables of `level` in `from..=to`.
    pub fn conflicts(&self, level: usize, from: &[u8], to: &[u8]) -> bool {
        self.output_level == level && self.from.as_slice() <= to && from <= self.to.as_slice()
    }
}
