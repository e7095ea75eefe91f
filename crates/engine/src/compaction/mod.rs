//! Compaction: what is rewritten next, how, and how fast writers may go meanwhile.
//!
//! `leveled` chooses the work, and `cost_benefit` what leaves a fast tier by a `demotion` (as
//! `leaving` reads it) in which range (`key_range`);
//! `rewrite` does it (flushes too). `tempo` keeps it from taking more of the devices than it needs,
//! `shared::write_throttle` slows writers smoothly when it falls behind.

pub(crate) mod leveled;
pub(crate) mod rewrite;
