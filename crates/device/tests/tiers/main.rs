//! The namespace of files over tiers, from its journal up: what it keeps, what it refuses, and what
//! is left of it after a power cut at every single operation.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod checkpoint;
mod crash;
mod golden;
#[allow(dead_code, reason = "shared with the tests of the engine")]
#[path = "../../../engine/tests/reliability/hooked.rs"]
mod hooked;
mod journal;
mod leaving;
mod migration;
mod namespace;
mod open_files;
mod refusals;
mod room;
mod rot;
mod simulated;
mod slabs;
mod small_devices;
mod support;
