//! Guards: one kind of mistake a file, each tried with mistakes of its kind in the engine.
//!
//! ```text
//!   moments.rs   reads of a moment, then of now
//! ```
//! They see what users see, and so stay as they are when the engine's files move.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod moments;
mod support;
