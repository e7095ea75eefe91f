//! What the store does when the world fails it: power cuts, I/O errors, rot, wrong disks, full
//! disks, and many threads at once.
//!
//! Every failure prints the seed and the step that bring it back. `THERMOCLINE_SEED` is the first
//! seed, `THERMOCLINE_ROUNDS` multiplies the counts (1 is the form for every day).
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod capacities;
#[path = "../guards/closing.rs"]
mod closing;
mod crash;
mod faults;
mod history;
mod hooked;
mod outgrown;
mod panics;
mod refusals;
mod rot;
#[allow(dead_code, reason = "shared with the tests of the device crate")]
#[path = "../../../device/tests/tiers/simulated.rs"]
mod simulated;

mod small_devices;
mod stress;
mod support;
mod syncs;
