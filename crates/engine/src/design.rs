//! How the store works, as far as its users need to know: an overview with no code in it.
//!
//! # The life of a record
//!
//! ```text
//!   put ──> log on the fast tier ──> memtable ──> fast tier ──> slow tier
//!           durable here             seen here        └─── copied back when asked for again
//! ```
//!
//! 1. A write is a [`WriteBatch`](crate::WriteBatch); [`Db::put`](crate::Db::put) makes one of a
//!    single record. Writers line up, and one of them appends all batches in line to the log and
//!    syncs it once for all of them. Then the records enter the memtable, and readers see them.
//! 2. A full memtable is flushed in the background. With one tier it becomes a sorted table. With
//!    two tiers or more its records go into slots on the fast tier
//!    ([`Preset`](crate::Preset) has the names of the two ways).
//! 3. Records that grow cold are merged into sorted tables on the slow tier. Records that are asked
//!    for again are copied up. This happens record by record, and needs no call.
//! 4. A read looks in memory, then in the slots, then in the tables from new to old. A table whose
//!    index and filter are in memory answers with one read, and with none for most absent keys.
//!
//! # What is durable when
//!
//! With [`Durability::Sync`](crate::Durability::Sync), the default, an acknowledged write survives
//! loss of power. With [`Durability::Buffered`](crate::Durability::Buffered) it survives the end of
//! the process; [`Db::sync`](crate::Db::sync) makes all of them durable. After a crash the store
//! has a prefix of what was written, and each batch whole or not at all. A bulk load
//! ([`Db::ingest`](crate::Db::ingest)) is durable when it finishes.
//!
//! # Moments
//!
//! Each write has a [`Sequence`](crate::Sequence). A [`Snapshot`](crate::Snapshot), a
//! [`Scan`](crate::Scan) that runs and a [`Cursor`](crate::Cursor) show the records as of one
//! sequence, whatever is written meanwhile. The versions that they see take room until they are
//! dropped. A [checkpoint](crate::Db::checkpoint) makes a second database of one moment.
//!
//! # Tiers and memory
//!
//! A [`Tier`](crate::Tier) is a directory, a capacity and a driver. The store keeps to the capacity
//! and says in [`Stats`](crate::Stats) what lies where. Every tier has an identity: one that is
//! missing, swapped, foreign or out of date is refused when the database is opened. All memory
//! comes out of one budget, [`Settings::memory`](crate::Settings::memory).
//!
//! # Errors
//!
//! Each [`ErrorKind`](crate::ErrorKind) is named for what a program can do. Every byte is read
//! together with a checksum of its place, so damage is an error of kind
//! [`Corrupt`](crate::ErrorKind::Corrupt) and never a wrong value. After a failed write or sync the
//! store takes no more writes ([`ReadOnly`](crate::ErrorKind::ReadOnly)); it can be read, and
//! opening it again is the way out.
//!
//! # Threads and processes
//!
//! [`Db`](crate::Db) is a handle. Its clones share the database, and every call may be made from
//! any thread. Calls whose names end in `async` return at once with a [`Ticket`](crate::Ticket), a
//! future of the answer. One process at a time has a database open.
//! [`Db::close`](crate::Db::close) says whether all went well; dropping the last handle closes too,
//! but can only log an error. Files, workers and the clock come from an
//! [`Environment`](crate::Environment), which tests replace.
