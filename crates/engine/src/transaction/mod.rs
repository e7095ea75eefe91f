//! Conditions on writes: a batch is written only if what it builds on still holds.
//!
//! Sequences number all records in the order of their writes, so "nothing has changed" is "no
//! version is newer than the one that was read". A [`Footprint`] says which keys and ranges a batch
//! builds on, each as of a sequence. It is looked at twice:
//!
//! ```text
//!   phase 1   Reader::look         without locks, may read devices: all up to v1, the newest
//!                                  sequence that readers see then
//!   phase 2   Check, Recent        the leader of the writes, in memory only: what came after v1
//! ```
//! Where memory has all that came after the footprint's oldest sequence, and that is no more than a
//! leader looks at, phase 1 is left out.
//! Where a memtable from after v1 was flushed meanwhile, phase 2 asks for phase 1 again. So the
//! answer is exact however short the history in memory is. Pessimistic transactions have locks of
//! keys besides ([`Locks`]): these make others wait where they would conflict, and change nothing
//! of the validation. This goes beyond the papers that the store is built after, which have no
//! transactions.
//!
//! Invariants:
//! 1. The leader looks before sequences are claimed: a batch that is refused uses none.
//! 2. The leader looks under its lock, at the batches of its own group too, and at those that are
//!    on their way to the log and not in a memtable yet: between its look and the batch comes no
//!    other write. One that flies may still fail; then none behind it is published either.
//! 3. A delete counts as a version. What is read is read as of a registered snapshot: where it was
//!    there, no merge drops a delete that came later. Where it was not, a put and its delete may
//!    both be gone, and then it is not there again.

mod check;
mod commit;
mod deadlock;
mod locks;
pub(crate) mod options;
mod reads;
pub(crate) mod savepoint;
pub(crate) mod tally;
mod validation;

pub(crate) use check::{Check, Recent, Refused};
pub(crate) use commit::{Attempts, Commit};
pub(crate) use locks::{HeldLocks, Locks, Opened, Patience};
pub(crate) use reads::{RangeRead, Reads};
pub(crate) use savepoint::{Writes, Written};
pub(crate) use validation::{Footprint, conflict};
