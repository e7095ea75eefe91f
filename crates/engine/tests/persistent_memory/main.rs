//! A store whose writes go to a region of persistent memory in place of a log.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod beside_log;
mod conditional;
mod crashes;
mod creation;
mod entering;
#[path = "../reliability/hooked.rs"]
mod hooked;
mod indexed;
mod life;
mod long_scans;
mod order;
mod presets;
mod rebuild;
mod refusals;
mod regions;
mod support;
