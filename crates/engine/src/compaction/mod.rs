//! Compaction: what is rewritten next, how, and how fast writers may go meanwhile.
//!
//! `leveled` chooses the work, and `cost_benefit` what leaves a fast tier by a `demotion` (as
//! `leaving` reads it) in which range (`key_range`);
//! `rewrite` does it (flushes too). `tempo` keeps it from taking more of the devices than it needs,
//! `pacing` slows writers smoothly when it falls behind.

pub(crate) mod cost_benefit;
pub(crate) mod demotion;
pub(crate) mod key_range;
mod leaving;
pub(crate) mod leveled;
pub(crate) mod pacing;
pub(crate) mod rewrite;
#[cfg(test)]
pub(crate) mod still_clock;
pub(crate) mod tempo;

pub(crate) use leaving::LeavingCursor;
