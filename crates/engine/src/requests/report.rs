//! What statistics say of asynchronous requests.

use serde::{Deserialize, Serialize};

/// Asynchronous requests: those of now, and counts since opening.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Writes that wait for a logger.
    pub waiting_writes: u64,
    /// Transactions that wait for a reader, to look at what they build on.
    #[serde(default)]
    pub waiting_looks: u64,
    /// Gets that wait for a reader.
    pub waiting_gets: u64,
    /// Pages of scans that do.
    pub waiting_pages: u64,
    /// Requests that wait or are carried out; `request_queue` bounds them.
    pub held: u64,
    /// Their bytes; `request_queue_bytes` bounds them.
    pub held_bytes: u64,
    /// Threads that were started for requests.
    pub threads: u64,
    /// Batches that were written.
    pub writes: u64,
    /// Looks of readers at what transactions build on; memory decides about the others.
    #[serde(default)]
    pub looks: u64,
    /// Gets that a reader answered; memory answers the others at once.
    pub gets: u64,
    /// Pages of scans.
    pub pages: u64,
    /// Requests that were refused as `Busy`.
    pub refused: u64,
    /// Groups in which loggers took writes.
    pub groups: u64,
    /// Writes that they took.
    pub grouped_writes: u64,
    /// Writes of the largest group.
    pub largest_group: u64,
}
