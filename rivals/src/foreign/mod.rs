//! What cannot be called without `unsafe`: the C interface of LevelDB, and opening an LMDB
//! environment. Everything else of this workspace is safe code.

pub mod lmdb_open;

#[cfg(feature = "leveldb")]
pub mod leveldb;
