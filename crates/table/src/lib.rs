//! Immutable sorted tables, and the block cache above them.
//!
//! A table is one file of entries `(user key, trailer, value)`, where the trailer is a sequence
//! number and a record kind. Entries are sorted by key ascending, then trailer descending, so the
//! newest version of a key comes first. The bytes are described in `docs/formats/table.md`.
//!
//! ```text
//!   TableWriter   add entries in order, finish
//!   TableReader   get, probe + fetch + get_in (batched look-ups), iter, verify, salvage
//!     index, filter   which block; whether at all
//!     BlockCache      verified, decompressed blocks in memory
//!     SecondLevel     copies of stored blocks on a faster device, if the engine keeps any
//!   File          (crate device) bytes at offsets
//! ```
//!
//! The crate knows nothing of levels, memtables, snapshots' lifetimes or deletion of files. It
//! never looks at what a value means, and it never drops an entry: shadowing and tombstones are the
//! engine's business.
#![forbid(unsafe_code)]

pub mod block;
pub mod block_cache;
pub mod block_source;
mod builder;
#[doc(hidden)]
pub mod decoders;
pub mod dictionary;
pub mod filter;
pub mod format;
mod index;
mod index_entry;
pub mod iterator;
pub mod key;
mod places;
pub mod properties;
mod read_ahead;
pub mod reader;
mod salvage;
mod sample;
mod sink;
mod stored;
mod tail_copy;
mod verify;
pub mod writer;

pub use block::{Block, Lookup};
pub use block_cache::{BlockCache, BlockClass, CacheCounts};
pub use block_source::{BlockKey, BlockRead, CachedAt, Found, SecondLevel};
pub use dictionary::{DICTIONARY_BYTES_MAX, Samples, Training};
pub use filter::key_hash;
pub use format::{BlockAddress, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use iterator::{AwaitedRead, TableIterator};
pub use key::{RecordKind, Trailer, compare};
pub use places::Places;
pub use properties::Properties;
pub use read_ahead::ReadAhead;
pub use reader::{Probe, TableReader};
pub use salvage::{LostBlocks, SalvageVisit};
pub use tail_copy::TailCounts;
pub use thermocline_foundation::Compression;
pub use verify::VerifySummary;
pub use writer::{TableOptions, TableSummary, TableWriter};

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
