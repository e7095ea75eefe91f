//! The engine under chosen schedules: see `thermocline_foundation::sync::schedules`, and
//! `docs/decisions/0024-schedules.md` for what is and what is not looked at.
//!
//! `database.rs` runs the whole store over devices in memory, `failures.rs` over devices that fail,
//! the others one structure each. They are compiled into the library, for they look at what it does
//! not show.

mod database;
mod jobs;
mod support;
