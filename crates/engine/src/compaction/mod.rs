//! Compaction: what is rewritten next, and how.
//!
//! ```text
//!   View ──chooser──> Selection ──Claims::take──> MergeJob ──commit──> the claim ends
//! ```
//! A chooser (`leveled`, by the sizes in `targets`; `reclaim`, by tombstones and by what
//! `overwrites` finds; `selective`, by live records and by what `sequentiality` finds) is plain
//! data in and a decision out. `inputs` and `rewrite` carry it out; flushes and demotions use them
//! too.

pub(crate) mod inputs;
pub(crate) mod leveled;
pub(crate) mod merge_job;
pub(crate) mod overwrites;
pub(crate) mod reclaim;
pub(crate) mod rewrite;
pub(crate) mod selection;
pub(crate) mod selective;
pub(crate) mod sequentiality;
pub(crate) mod targets;
pub(crate) mod view;
