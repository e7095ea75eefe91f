//! The `thermocline` command: a store's whole life from a shell.
//!
//! ```text
//!   main ── arguments            what was asked
//!     ├── commands/*             one file per command, over the engine's public interface
//!     ├── load/*                 one file per input format, one loader under them
//!     ├── trial/*                `try`: a store made, filled, used, reopened and checked
//!     └── figures, keys, output, table, progress, text, failure, store
//! ```
//!
//! Invariants:
//! 1. Results go to standard output, everything else to standard error. A reader that goes away
//!    (`| head`) ends the command quietly.
//! 2. A failure is one line, `thermocline: what and where; the way out`. Exit status 1, or 2 where
//!    the command line itself is wrong.
//! 3. Nothing is made, moved or deleted before the arguments are known to be right.
//!
//! Threads: one, except for the clients that `try` starts.
#![forbid(unsafe_code)]

mod arguments;
mod commands;
mod failure;
mod figures;
mod keys;
mod load;
mod output;
mod progress;
mod store;
mod table;
mod text;
mod trial;

use clap::Parser;
use failure::Failure;
use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: thermocline_allocator::Allocator = thermocline_allocator::Allocator;

fn main() -> ExitCode {
    thermocline_allocator::give_back_early();
    let outcome = match arguments::Arguments::try_parse() {
        Ok(arguments) => commands::run(arguments),
        Err(error) => arguments::refuse(&error),
    };
    match outcome {
        Ok(()) | Err(Failure::ReaderGone) => ExitCode::SUCCESS,
        Err(failure) => {
            // Where standard error is gone too, no message can reach the user.
            let _ = writeln!(std::io::stderr(), "thermocline: {failure}");
            ExitCode::from(failure.status())
        }
    }
}
