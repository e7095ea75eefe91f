//! Thermocline: a key-value store for storage that is not all the same speed.
//!
//! ```no_run
//! use thermocline::{ByteSize, Db, Settings, Tier};
//!
//! # fn main() -> thermocline::Result<()> {
//! let settings = Settings {
//!     tiers: vec![
//!         Tier::new("/mnt/fast/db", ByteSize::gib(10)).driver("direct"),
//!         Tier::new("/mnt/slow/db", ByteSize::gib(100)),
//!     ],
//!     memory: ByteSize::gib(1),
//!     ..Settings::default()
//! };
//! let db = Db::open_or_create("/var/lib/db", &settings)?;
//! db.put("water", "warm")?;
//! assert_eq!(db.get("water")?.as_deref(), Some(&b"warm"[..]));
//! for record in db.scan().prefix("wa").limit(10) {
//!     let (key, value) = record?;
//!     println!("{} bytes at {key:?}", value.len());
//! }
//! # Ok(()) }
//! ```
//!
//! [`design`] is an overview of how the store works. Complete programs are in the package's folder
//! `examples`: a first store, batches and snapshots, a bulk load, checkpoints, a small service.
//!
//! One engine with four seams; each choice at a seam is a folder behind a closed enum, and
//! [`Preset`] names the choices that go together:
//!
//! ```text
//!   front        front/        where a write becomes durable: a log, or persistent memory
//!   layout       layout/       where records lie below the memtables: levels, or slots over runs
//!   locator      locator/      which tables may have a key
//!   generation   generations/  what makes a memtable durable
//! ```
//! `table_set/` has the live tables and their manifest, `compaction/` what is rewritten next, as
//! plain data in and a decision out. `engine/opening.rs` puts the parts together; `versions/` says
//! how an edit becomes durable and visible, and which lock guards what.
#![forbid(unsafe_code)]

mod batch;
mod builder;
mod compaction;
mod db;
#[doc(hidden)]
pub mod decoders;
pub mod design;
mod engine;
mod environment;
mod error;
mod fast_cache;
mod front;
mod generations;
mod jobs;
mod layout;
mod limits;
mod locator;
mod merge;
mod read;
mod repair;
mod requests;
mod settings;
mod shared;

#[cfg(test)]
mod support;
mod table_set;
mod transaction;
mod versions;

pub use batch::WriteBatch;
pub use builder::Builder;
pub use db::Db;
pub use db::conditional::Swap;
pub use db::scan::{Scan, ScanPage};
pub use db::snapshot::Snapshot;
pub use db::transaction::Transaction;
pub use engine::activity::ActivityStats;
pub use engine::ingest::Ingest;
pub use engine::live_stats::{LiveMark, LiveStats};
pub use engine::open_files::OpenFileStats;
pub use engine::stats::{
    Amplification, CacheStats, LevelStats, MemoryStats, Mode, OperationStats, Stats, TierStats,
};
pub use engine::tier_change::{TierChange, WhichTier};
pub use engine::verify::{Problem, VerifyReport};
pub use environment::Environment;
pub use environment::experiments::{
    DemotionPolicy, Experiments, LeftOut, MergeOrder, Pinning, Promotion, RequestSchedule, Rule,
};
#[doc(hidden)]
pub use environment::regions::{MappedRegions, RegionDriver, Regions};
pub use error::{Error, ErrorKind, Result};
pub use fast_cache::report::FastCacheStats;
pub use fast_cache::trace::{BlockRequest, BlockTrace};
pub use front::figures::LogStats;
pub use front::persistent::report::RegionStats;
pub use jobs::{Progress, Stepper, Workers};
pub use layout::hybrid::report::{DemotionStats, FastTierStats, RuleStats, SlotStats};
pub use limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use locator::index::IndexStats;
pub use read::cursor::{Cursor, Records};
pub use repair::plan::{IndexRebuild, Lost, RepairPlan, RepairStep};
pub use requests::report::{LoggerStats, RequestStats};
pub use requests::room::HasRoom;
pub use requests::ticket::Ticket;
pub use settings::fast_cache::{
    Admission, BlockLayout, CacheCapacity, Eviction, FastCacheSettings,
};
pub use settings::hybrid::{HybridSettings, IndexCopies, Variant};
pub use settings::persistent_memory::PersistentMemory;
pub use settings::{Compression, Durability, Preset, Settings, Tier};
pub use shared::hits::HitStats;
pub use shared::wear::WearStats;
pub use thermocline_device::{CAPACITY_OF_DEVICE, PlacementChoice, Unreadable};
pub use thermocline_foundation::{ByteSize, Duration, Sequence};
pub use transaction::options::{Isolation, Locking, TransactionOptions};
pub use transaction::savepoint::Savepoint;
pub use transaction::tally::TransactionStats;

#[cfg(test)]
#[path = "../tests/inside/ranges.rs"]
mod ranges;
#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
