//! Other stores behind the benchmark's traits, one file each.
//!
//! ```text
//!   rocksdb   11.8, and Speedb 2.8 (feature rocksdb)       leveldb   1.23 (feature leveldb)
//!   lmdb  redb  fjall  sled   one tier                     absent    named, with the reason
//!   tiers     RocksDB, Speedb and LevelDB over tiers by our plugin
//!   foyer     a cache and no store: replays traces of blocks
//!   foreign   the only `unsafe` code                       (all: tests/conformance.rs)
//! ```
//! An engine here is given memory, durability and directories, and turns them into its own options
//! the way its authors recommend; what it cannot do as asked is said in `describe`.
#![deny(unsafe_code)]

pub mod absent;
pub mod fjall;
#[allow(unsafe_code, reason = "the fence: C interfaces and a mapped file")]
mod foreign;
pub mod foyer;
#[cfg(feature = "leveldb")]
pub mod leveldb;
pub mod lmdb;
pub mod redb;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sled;
#[cfg(any(feature = "rocksdb", feature = "leveldb"))]
mod tiers;

use thermocline_bench::store::EngineKind;

/// Every engine of the benchmark, ours first.
pub fn all() -> Vec<&'static dyn EngineKind> {
    let mut engines = thermocline_bench::engines::ALL.to_vec();
    #[cfg(feature = "rocksdb")]
    engines.extend([&rocksdb::ROCKSDB as &dyn EngineKind, &rocksdb::SPEEDB]);
    #[cfg(not(feature = "rocksdb"))]
    engines.extend([&absent::ROCKSDB as &dyn EngineKind, &absent::SPEEDB]);
    #[cfg(feature = "leveldb")]
    engines.push(&leveldb::LevelDb);
    #[cfg(not(feature = "leveldb"))]
    engines.push(&absent::LEVELDB);
    engines.extend([
        &lmdb::Lmdb as &dyn EngineKind,
        &redb::Redb,
        &fjall::Fjall,
        &sled::Sled,
        &foyer::Foyer,
        &absent::HOTRAP,
        &absent::PRISMDB,
    ]);
    engines
}
