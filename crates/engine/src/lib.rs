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
//! One engine with four seams; each choice at a seam is a module, and [`Preset`] names the sets
//! that go together:
//!
//! ```text
//!   front        front/         where a write lands: memtable before a log, then tables or slots
//!   table set    table_set/     how sorted tables are arranged: levels, which serve as runs too
//!   locator      table_set/     how a key is found among them: per level, by ranges and filters;
//!                               in slots by the index of the fast tier (crate `index`)
//!   compaction   compaction/    what is rewritten next: leveled, or by cost and benefit
//! ```
//! `environment.rs` wires the parts; `state.rs` says what is shared and which lock guards what.
#![forbid(unsafe_code)]

mod background;
mod batch;
mod builder;
mod checkpoint;
mod compaction;
mod db;
#[doc(hidden)]
pub mod decoders;
mod environment;
mod error;
mod front;
mod holders;
mod holdings;
mod hybrid_settings;
mod ingest;
mod iterator;
mod jobs;
mod make_log;
mod manifest;
mod merge;
mod read_path;
mod recovery;
mod settings;
mod snapshot;
mod state;
mod stats;
#[cfg(test)]
mod support;
mod table_set;
mod totals;
mod verify;
mod wear;
mod write_path;

pub use background::Progress;
pub use batch::WriteBatch;
pub use builder::Builder;
pub use db::{Db, Scan, Snapshot};
pub use environment::Environment;
pub use error::{Error, ErrorKind, Result};
pub use front::slabs::report::{DemotionStats, RegulationStats};
pub use hybrid_settings::{
    DemotionPolicy, HybridSettings, IndexCopies, Pinning, PopularityKind, Promotion,
};
pub use ingest::Ingest;
pub use iterator::{Cursor, Records};
pub use jobs::{Stepper, Workers};
pub use settings::{
    BATCH_BYTES_MAX, Compression, Durability, KEY_BYTES_MAX, Preset, Settings, Tier,
    VALUE_BYTES_MAX,
};
pub use stats::{
    Amplification, CacheStats, FastTierStats, HitStats, LevelStats, MemoryStats, Mode,
    OperationStats, SlotStats, Stats, TierStats,
};
pub use thermocline_foundation::{ByteSize, Duration, Sequence};
pub use verify::{Problem, VerifyReport};
pub use wear::WearStats;

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
