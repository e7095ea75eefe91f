//! Guards: one kind of mistake a file, each tried with mistakes of its kind in the engine.
//!
//! ```text
//!   moments.rs         reads of a moment, then of now
//!   interruptions.rs   work first, lock later
//!   boundaries.rs      ends of ranges, of prefixes, of keys
//!   at_rest.rs         what only grows
//!   checkpoints.rs     copies beside writers
//!   room.rs            room in the middle of work
//! ```
//! They see what users see, and so stay as they are when the engine's files move.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod at_rest;
mod boundaries;
mod checkpoints;
#[allow(dead_code, reason = "shared with the tests of reliability")]
#[path = "../reliability/hooked.rs"]
mod hooked;
mod interruptions;
mod moments;
mod patience;
mod room;
mod support;
