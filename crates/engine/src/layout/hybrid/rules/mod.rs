//! The rules of the fast tier as plain arithmetic: data in, decision out. No lock, no atomic, no
//! clock and no file is known here (`cargo xtask tidy` checks it), so a test of a rule is a script:
//! define, act, print.
//!
//! ```text
//!   rule_set.rs   which rules hold, by variant and experiment
//!   fullness.rs   when room is made, for how much, and by which step (PrismDB, section 4.2)
//!   pinning.rs    how many records may be pinned (PrismDB, section 4.3)
//!   promotion.rs  when the first read is reason enough
//!   memory.rs     how many keys are tracked; blocks of tables beside records
//!   space.rs      when tombstones are looked at for space of the slow tier
//! ```
//! Rules that other engines could use as well are in the crate `popularity`: threshold, clock,
//! reuse of reads, worth of copies, read-triggered merges. `feedback` counts what they are asked
//! about and keeps their last answers.

pub(crate) mod fullness;
pub(crate) mod memory;
pub(crate) mod pinning;
pub(crate) mod promotion;
pub(crate) mod rule_set;
pub(crate) mod space;
