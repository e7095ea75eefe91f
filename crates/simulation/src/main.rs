//! `simulate`: runs the suites over seeds, and replays what failed. `cargo xtask simulate` is the
//! way to start it.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_macros, reason = "a command prints")]

mod command;
#[cfg(feature = "planted-bugs")]
mod without_sync;

/// A simulation makes and drops whole stores all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}
