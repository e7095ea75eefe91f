//! One file per command. Each opens the database, does one thing, prints, and closes.

mod checkpoint;
mod compact;
mod delete;
pub mod fast_tier;
mod get;
mod put;
mod scan;
pub mod stats;
pub mod tiers;
mod verify;

use crate::arguments::{Arguments, Command};
use crate::failure::Result;
use crate::{load, trial};

/// Carries out what was asked.
pub fn run(arguments: Arguments) -> Result<()> {
    let database = &arguments.database;
    match arguments.command.unwrap_or_else(|| Command::Try(Default::default())) {
        Command::Try(arguments) => trial::run(database, &arguments),
        Command::Load(arguments) => load::run(database, &arguments),
        Command::Get(arguments) => get::run(database, &arguments),
        Command::Put(arguments) => put::run(database, &arguments),
        Command::Delete(arguments) => delete::run(database, &arguments),
        Command::Scan(arguments) => scan::run(database, &arguments),
        Command::Stats(arguments) => stats::run(database, &arguments),
        Command::Tiers(arguments) => tiers::run(database, &arguments),
        Command::Compact(arguments) => compact::run(database, &arguments),
        Command::Checkpoint(arguments) => checkpoint::run(database, &arguments),
        Command::Verify(arguments) => verify::run(database, &arguments),
    }
}
