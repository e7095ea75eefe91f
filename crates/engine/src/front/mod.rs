//! The front: where a write lands and becomes durable. One choice so far, the memtable before a
//! write-ahead log.

pub(crate) mod memtable;
