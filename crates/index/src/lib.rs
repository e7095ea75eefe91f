//! What the store keeps in memory about the records of the fast tier: where each one is, and the
//! bytes of the hottest (PrismDB, section 4.1).
//!
//! ```text
//!   fast_index.rs      FastIndex: key and sequence -> Entry; look-ups, changes, counts
//!     traversal.rs       ranges in either order, into an IndexBatch (index_batch.rs)
//!     top.rs             which leaf covers a key: two levels of separators (separators.rs)
//!     block.rs           what a leaf holds: keys, entries and fingerprints, packed
//!     entry.rs           Entry, and its 24 bytes in a leaf
//!   record_cache.rs    RecordCache: values by key and sequence, bounded by bytes
//!     record_shard.rs    a part of it under one lock, and what it evicts; ghosts.rs: what went
//!     record_table.rs    records found by hash, in queues, over lists in chunks (chunks.rs)
//!     record_pieces.rs   a record's bytes, and records that went
//!   key_hash.rs        the hash of a key, the same in every run
//! ```
//!
//! The crate is memory only: it opens no file, knows no slab, and a slot is a number to it. After a
//! crash the engine fills the index again and decides what is in it.
//!
//! Invariants:
//! 1. Same calls, same content and same order, in every run: nothing here draws a random seed.
//! 2. No call waits for anything but the locks of this crate, and no lock outlives its call.
#![forbid(unsafe_code)]

mod block;
mod chunks;
mod entry;
mod fast_index;
mod ghosts;
mod index_batch;
mod key_hash;
mod record_cache;
mod record_pieces;
mod record_shard;
mod record_table;
mod separators;
mod top;
mod traversal;

pub use entry::{Entry, EntryKind};
pub use fast_index::{FastIndex, IndexLimits};
pub use index_batch::IndexBatch;
pub use record_cache::RecordCache;
pub use record_pieces::Evicted;
pub use traversal::RangeTotals;

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
