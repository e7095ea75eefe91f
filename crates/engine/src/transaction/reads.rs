//! What a serializable transaction has read: keys, and the ranges that its scans went through.

use crate::table_set::key_range::{KeyRange, successor};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;

/// Memory of a key besides its bytes.
const READ_OVERHEAD_BYTES: u64 = 64;
/// Memory of a range, with keys as most have them.
const RANGE_BYTES: u64 = 128;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    pub keys: BTreeSet<Bytes>,
    pub ranges: Vec<KeyRange>,
    key_bytes: u64,
}

impl Reads {
    /// `key` was read.
    pub fn add(&mut self, key: &[u8]) {
        if !self.keys.contains(key) {
            self.key_bytes += READ_OVERHEAD_BYTES + key.len() as u64;
            self.keys.insert(Bytes::copy_from_slice(key));
        }
    }

    /// Memory that they take.
    pub fn bytes(&self) -> u64 {
        self.key_bytes + self.ranges.len() as u64 * RANGE_BYTES
    }
}

/// A range that a scan goes through. Until the scan has ended all of it counts as read.
#[derive(Clone, Debug)]
pub(crate) struct RangeRead {
    reads: Arc<Mutex<Reads>>,
    at: usize,
}

impl RangeRead {
    /// A scan of `range` begins.
    pub fn begin(reads: &Arc<Mutex<Reads>>, range: KeyRange) -> Self {
        let mut locked = reads.lock();
        let at = locked.ranges.len();
        locked.ranges.push(range);
        drop(locked);
        Self { reads: Arc::clone(reads), at }
    }

    /// The scan ended before the end of its range: it has read nothing beyond `last`, the last key
    /// that it returned, or nothing at all.
    pub fn cut(&self, last: Option<&[u8]>, reverse: bool) {
        let mut locked = self.reads.lock();
        let range = &mut locked.ranges[self.at];
        match last {
            Some(last) if reverse => range.from = Some(last.to_vec()),
            Some(last) => range.to = Some(successor(last)),
            None => *range = KeyRange { from: None, to: Some(Vec::new()) },
        }
    }
}
