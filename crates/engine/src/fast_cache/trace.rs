//! What the cache is asked for, in order, as an experiment wants it: admissions and evictions are
//! judged on one such trace, each by arithmetic alone.
//!
//! Requests are noted under the lock under which admission decides, so their order is that of its
//! decisions, whatever threads made them. A block that memory had was not asked for. So what is
//! asked for follows from the workload and from memory, not from what this cache does.

use thermocline_table::BlockKey;

/// A block that was not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRequest {
    /// The number of the table that has it.
    pub table: u64,
    /// Bytes from the start of the table.
    pub offset: u64,
    /// Stored bytes and trailer, in bytes.
    pub len: u32,
}

/// What a cache of blocks was asked for, and how large it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTrace {
    /// What it could take, in bytes.
    pub capacity_bytes: u64,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Bytes that were written at once.
    pub batch_bytes: u64,
    /// What a stored block was expected to have, in bytes.
    pub block_bytes: u64,
    /// The requests, the first one first.
    pub requests: Vec<BlockRequest>,
}

/// Requests up to a number of them; the memory is taken at the beginning.
#[derive(Debug, Default)]
pub(super) struct Noted {
    requests: Vec<BlockRequest>,
    requests_max: usize,
}

impl Noted {
    /// At most so many; none: nothing is noted.
    pub fn new(requests_max: Option<usize>) -> Self {
        let requests_max = requests_max.unwrap_or(0);
        Self { requests: Vec::with_capacity(requests_max), requests_max }
    }

    /// Notes a request.
    pub fn note(&mut self, BlockKey { table, offset, len }: BlockKey) {
        if self.requests.len() < self.requests_max {
            self.requests.push(BlockRequest { table: table.0, offset, len });
        }
    }

    /// Those so far; none where none are wanted.
    pub fn requests(&self) -> Option<Vec<BlockRequest>> {
        (self.requests_max > 0).then(|| self.requests.clone())
    }
}
