//! What cannot be called without `unsafe`: the C interface of LevelDB, opening an LMDB environment,
//! RocksDB's cache on a device, and the plugins of hosts. Everything else of this workspace is safe
//! code.

pub mod lmdb_open;
#[cfg(feature = "rocksdb")]
pub mod persistent_cache;
#[cfg(any(feature = "rocksdb", feature = "leveldb"))]
pub mod plugin;
#[cfg(feature = "rocksdb")]
pub mod rocksdb_tiers;

#[cfg(feature = "leveldb")]
pub mod leveldb;
