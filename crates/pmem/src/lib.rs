//! A region of persistent memory: one mapped file whose lines are durable once they are flushed and
//! fenced. It holds the write groups of memtables, and an index of the records of all tables
//! (SLM-DB, sections 3.1 and 3.2). The bytes: docs/formats/region.md.
//!
//! ```text
//!   memtable.rs    PersistentMemtable: groups, each durable after one fence; a list in DRAM
//!     arena.rs       the groups of one memtable, and their replay
//!   tree/          Tree: the newest record of each key; readers take no lock
//!     object.rs      a key, or a separator      node.rs       512 bytes, all words atomic
//!     register.rs    a line for each table      run.rs        the journal of lines
//!     allocation.rs  bitmaps in DRAM            readers.rs    which readers are under way
//!   region.rs      opening and closing
//!     identity.rs    whose it is, how recent, and whether it is believed
//!     chunks.rs      room, in runs of neighbours      twin.rs   records that are kept twice
//!   layout.rs      where things are
//!   persist/       store, copy, flush, fence: the only code that writes
//!   shadow.rs      (tests) every store, and what a power cut could leave of them
//! ```
//!
//! What always holds:
//! 1. Only `persist` writes to the region. Nothing points into it but offsets.
//! 2. An object never changes while an entry names it. A node changes only after the run that
//!    changes it is durable in the journal.
//! 3. What is freed is given out again only after the fence that unlinked it, and after all readers
//!    that were under way.
//! 4. Every byte that counts is under a checksum that is bound to its place, and the root's sums
//!    tell a stale part from its successor.
//! 5. A table's `live` is the number of entries that name it, also after a crash.
//!
//! `unsafe` stands in `persist/instructions.rs` alone; the mapping is of the crate `device`.
#![deny(unsafe_code)]

mod allocation;
pub mod arena;
pub mod chunks;
#[doc(hidden)]
pub mod decoders;
pub mod identity;
pub mod layout;
pub mod memtable;
mod node;
mod object;
pub mod persist;
mod readers;
pub mod region;
pub mod register;
mod run;
#[cfg(any(test, feature = "shadow"))]
#[doc(hidden)]
pub mod shadow;
pub mod tree;
mod twin;

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;

#[cfg(all(test, not(any(shuttle, loom))))]
#[path = "../tests/region/mod.rs"]
mod tests;

pub use arena::{Arena, Claim, Group, GroupHeader, replay};
pub use identity::{Circumstances, Expected, RegionIdentity};
pub use layout::{Geometry, Owner};
pub use memtable::{EncodedGroup, Found, PersistentMemtable, Write};
pub use object::Entry;
pub use persist::{Durability, Medium, MediumCounts};
pub use region::{OpenedRegion, Region};
pub use register::TableLine;
pub use tree::{Cursor, LeafEntries, Tree, TreeCounts};
