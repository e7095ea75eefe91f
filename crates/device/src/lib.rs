//! Tiered files: one namespace of files over an ordered list of storage tiers, fastest first (Keigo, section 4).
//!
//! The crate knows nothing of keys, tables or logs. Its user says of each file what it is and why it is made
//! ([`FileContext`]); a placement policy turns that into a tier. It can be used without the engine.
//!
//! ```text
//!   TieredFiles     create, open, publish, move, delete; capacity by tier and kind
//!     File          read, write, sync at offsets; knows its number, tier and place
//!       Driver      submit and complete batches of I/O on one directory
//! ```
#![deny(unsafe_code)]

pub mod buffer;
pub mod context;
pub mod driver;
pub mod drivers;
pub mod error;
pub mod file;
pub mod file_queue;
pub mod journal;
pub mod tier;

pub use buffer::Buffer;
pub use context::{FileContext, FileKind, Origin};
pub use driver::{Completion, Driver, DriverFile, Handle, Operation, Queue, Request};
pub use error::{Error, ErrorKind, Result};
pub use file::{File, PendingRead, ReadAt, WriteStream, read_batch};
pub use journal::{Journal, JournalEnd};
pub use tier::{Tier, TierIndex, TierSpec, TrafficTotals};
