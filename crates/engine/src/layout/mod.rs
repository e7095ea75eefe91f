//! The layout: where records lie below the memtables, and what moves them.

pub(crate) mod leveled;
