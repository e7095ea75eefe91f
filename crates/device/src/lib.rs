//! Tiered files: one namespace of files over an ordered list of storage tiers, fastest first
//! (Keigo, section 4).
//!
//! The crate knows nothing of keys, tables or logs. Its user says of each file what it is and why
//! it is made ([`FileContext`]); a placement policy turns that into a tier. It can be used without
//! the engine.
//!
//! ```text
//!   TieredFiles     create, open, publish, move, delete; capacity by tier and kind
//!     File          read, write, sync at offsets; knows its number, tier and place
//!       Driver      submit and complete batches of I/O on one directory
//!   Names           files of another program, in its own directory over the same tiers
//!     Hosts         all directories of such a program, by paths: what a plugin calls
//! ```
#![deny(unsafe_code)]

pub mod buffer;
mod checksum_line;
pub mod context;
pub mod driver;
pub mod drivers;
pub mod error;
pub mod file;
pub mod file_cache;
pub mod file_map;
pub mod file_queue;
pub mod hosts;
pub mod identity;
mod io_classes;
mod joined_reads;
pub mod journal;
pub mod load;
pub mod migration;
pub mod migration_queue;
pub mod names;
mod open_files;
pub mod placement;
pub mod pool_size;
pub mod profile;
mod refusals;
mod small_file;
pub mod tier;
pub mod tiered_files;

pub use buffer::Buffer;
pub use context::{FileContext, FileKind, Keeping, Origin};
pub use driver::{
    Completion, CountedDevice, DeviceCounts, DirectoryId, Driver, DriverFile, FileStamp, Handle,
    HostUse, Operation, Queue, Request,
};
pub use drivers::{DriverSpec, OwnerProcess};
pub use error::{Error, ErrorKind, Result};
pub use file::{File, PendingRead, ReadAt, WriteStream, read_batch, sync_batch};
pub use hosts::{HostSettings, Hosts};
pub use io_classes::{Background, background};
pub use joined_reads::{PendingJoined, read_joined, start_joined};
pub use journal::{Extent, Journal, JournalEnd, Purpose};
pub use load::TierLoad;
pub use names::{FileClass, Heat, Holds, NamedFile, NamedInfo, Names, Writer};
pub use open_files::OpenFileCounts;
pub use placement::{ByLevel, FileInfo, FillFirst, Placement, PlacementChoice, TierState, TierUse};
pub use profile::{Curve, DeviceProfile, TierProfile};
pub use tier::{Tier, TierIndex, TierSpec, TrafficTotals};
pub use tiered_files::{
    CAPACITY_OF_DEVICE, Devices, GivesWay, MapRebuild, MemoryDevices, Spared, SystemDevices,
    TierChange, TierUsage, TieredFiles, Unreadable, shortfall,
};

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
