//! The write-ahead log: where a write becomes durable before it reaches a table (SpanDB, section
//! 4.2).
//!
//! A log is one file of one stream. [`LogWriter`] appends records, each a run of sequence numbers
//! with a payload, and makes them durable for many threads at once; [`LogReader`] gives the records
//! back after a crash, exactly up to the first one that was not completely written. Nothing is
//! global: a store with several streams has one writer for each.
//!
//! ```text
//!   writer.rs        append, group commit, seal; the failed state
//!     page_buffer.rs   lays records over sectors and pages in memory
//!   reader.rs        walks the sectors of a file, tells torn from damaged
//!     record_assembly.rs  puts records together again
//!     remains.rs     what a damaged log has behind what is missing
//!   format.rs        the bytes: sectors, pages, records (docs/formats/log.md)
//! ```
//!
//! The crate knows nothing of keys or of other logs. It opens no file: the caller makes the
//! [`File`](thermocline_device::File), names it and publishes it.
#![forbid(unsafe_code)]

mod claims;
#[doc(hidden)]
pub mod decoders;
pub mod format;
mod page_buffer;
mod reader;
mod record_assembly;
mod remains;
mod writer;

pub use claims::{Claim, ClaimLog, Record};
pub use format::{LogHeader, PAYLOAD_BYTES_MAX};
pub use reader::{LogReader, RecordSink, ReplayEnd, ReplaySummary};
pub use remains::RemainsSink;
pub use writer::{Durability, LogPosition, LogSettings, LogWriter, MayGrow, bytes_of_log};

#[cfg(all(test, shuttle))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
