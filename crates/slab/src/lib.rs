//! Slabs: files of fixed-size slots on the fast tier, where records are written and moved one by
//! one (PrismDB, section 4.1).
//!
//! A sorted table is rewritten whole; a slot is written alone. That lets the engine keep hot
//! records on the fast tier and take cold ones away without touching their neighbours. What a slot
//! holds is found by address, never by search: the index is the engine's, in memory.
//!
//! ```text
//!   slabs.rs         all open slabs of a store: open, look up, remove, figures
//!     allocation.rs    which slots are free
//!     reservation.rs   slots for a batch, and the slabs that are made for it
//!     removal.rs       slabs that go; frees held back for a checkpoint
//!     writer.rs        many records at once: long aligned writes, neighbours kept, one batch of
//!                      syncs
//!     reader.rs        one slot, a batch of slots, a whole slab; verification
//!     salvage.rs       what a slab with damaged slots still tells
//!     remains.rs       what its file tells where there is no manifest
//!     emptying.rs      slabs whose room another size of slots needs more
//!     slab.rs          one slab: its file, its shape, the lock of its writers
//!   live.rs          which slots are live: the manifest's half, with a sum for each slab
//!     change.rs        how an edit of the manifest changes that
//!     bitmap.rs        a set of slots, and its bytes
//!   size_class.rs    the sizes of slots
//!   format.rs        the bytes of header page and slot (docs/formats/slab.md)
//!     packed.rs        values that are compressed
//! ```
//!
//! What always holds:
//! 1. *The manifest says what is live, the bytes of a slot never do.* A dead slot is not looked at,
//!    but by a repair that has no manifest.
//! 2. A live slot is never written. A new version of a record goes to another slot; an edit makes
//!    the one live and the other dead, at once.
//! 3. A slot is given out again only after the edit by which it died is durable.
//! 4. Every live slot is found intact, or found damaged: its checksum is bound to its place, and
//!    the slab's sum finds an older intact record of the same slot.
//!
//! # A flush, from the engine
//! ```text
//!   reservation = slabs.allocate(sizes)     free slots, in the order of the keys; new slabs;
//!                                           extend(..) for more, split_first(..) for many edits
//!   slabs.write(records)                    completed, not durable
//!   slabs.sync(touched)                     durable, still dead
//!   files.publish(reservation.new_slabs())
//!   manifest edit: LiveSlots::change(..)    live, and what they replace dead
//!   reservation.commit()                    given back on drop instead, had anything failed
//!   index; slabs.free(replaced)
//! ```
#![forbid(unsafe_code)]

mod address;
mod allocation;
mod bitmap;
mod change;
#[doc(hidden)]
pub mod decoders;
mod emptying;
pub mod format;
mod live;
pub mod packed;
mod reader;
mod remains;
mod removal;
mod reservation;
mod salvage;
mod size_class;
mod slab;
mod slabs;
mod stats;
mod writer;

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;

pub use address::{SlabId, SlotAddress};
pub use bitmap::SlotBitmap;
pub use change::SlabChange;
pub use emptying::Closed;
pub use format::{Broken, Record, RecordKind, Slot, record_bytes};
pub use live::{LiveError, LiveSlots, SlabLive, SlabShape, SlotSum};
pub use remains::SlabRemains;
pub use removal::FreesHeld;
pub use reservation::Reservation;
pub use salvage::{LostRecord, LostSlot, Salvage};
pub use size_class::{SLAB_BYTES_MAX, SLAB_BYTES_MIN, SizeClass, SizeClasses};
pub use slabs::{DamagedHeader, Slabs};
pub use stats::{ClassStats, KeptReads, SlabStats};
