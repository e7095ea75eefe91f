//! The engine under chosen schedules: see `thermocline_foundation::sync::schedules`, and
//! `docs/decisions/0024-schedules.md` for what is and what is not looked at.
//!
//! `copies.rs`, `database.rs`, `departures.rs`, `indexed.rs`, `requests.rs` and `zeros.rs` run the
//! whole store over devices in memory, `jobs.rs` one structure. They are compiled into the library,
//! for they look at what it does not show.

mod copies;
mod database;
mod departures;
mod indexed;
mod jobs;
mod requests;
mod support;
mod zeros;
