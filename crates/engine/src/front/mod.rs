//! The front: where a write lands and becomes durable. A memtable before a write-ahead log, always;
//! what a full memtable goes to is tables, or slots on the fast tier.

pub(crate) mod log_pool;
pub(crate) mod slabs;
