//! Demotions: which records leave the fast tier, and how they are merged into tables.
//!
//! ```text
//!   space/room.rs   that room is wanted, and by which step    (rules/fullness.rs)
//!   plan.rs         a sweep or a demotion                     (make_room)
//!   choice.rs       which range, of which runs; the claim     (ranges.rs, statistics.rs)
//!   space.rs        another purpose: tombstones that give space of the slow tier back
//!   judgement.rs    which records of the range, once it is claimed
//!   job.rs          asks the budget again, merges, commits
//! ```
//! A demotion has one of four purposes (`ranges.rs`): room; reads of tables that ask for a merge
//! (`choice.rs`); space of the slow tier; a compaction that a caller asks for
//! (`compact_range.rs`).

pub(crate) mod choice;
mod compact_range;
pub(crate) mod job;
mod judgement;
pub(crate) mod leaving;
pub(crate) mod ranges;
pub(crate) mod space;
mod statistics;
