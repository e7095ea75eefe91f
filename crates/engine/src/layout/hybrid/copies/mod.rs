//! Clean copies of what tables have: records that move up, and what memory gives up.

pub(crate) mod bounded_queue;
pub(crate) mod promotion;
pub(crate) mod spill;
