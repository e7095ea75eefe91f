//! The front: where a write lands and becomes durable: a memtable before a write-ahead log.

pub(crate) mod log_pool;
pub(crate) mod write_path;
