//! Names over links on real directories: what a host sees, with this code and without it, and what
//! is refused. Crashes and faults are in `crates/simulation/src/names`.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "the test is the host, whose files are its own")]

mod calls;
mod extents;
mod golden;
mod moves;
mod refusals;
mod sampling;
mod support;
#[path = "../watched/mod.rs"]
mod watched;
mod writing;
