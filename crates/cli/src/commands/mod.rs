//! One file per command. Each opens the database, does one thing, prints, and closes; `profile`
//! and `tiers ACTION DIR` need none.

pub mod cache;
mod checkpoint;
mod compact;
mod delete;
pub mod fast_tier;
mod get;
mod host_tiers;
mod profile;
mod put;
mod rebuild_index;
mod repair;
mod scan;
pub mod stats;
mod tier_change;
pub mod tiers;
mod verify;
mod watch;

use crate::arguments::{Arguments, Command};
use crate::failure::Result;
use crate::{load, trial};

/// Carries out what was asked.
pub fn run(arguments: Arguments) -> Result<()> {
    let (database, json) = (&arguments.database, arguments.json);
    match arguments.command.unwrap_or_else(|| Command::Try(Default::default())) {
        Command::Try(arguments) => trial::run(database, &arguments, json),
        Command::Load(arguments) => load::run(database, &arguments, json),
        Command::Get(arguments) => get::run(database, &arguments, json),
        Command::Put(arguments) => put::run(database, &arguments),
        Command::Delete(arguments) => delete::run(database, &arguments),
        Command::Scan(arguments) => scan::run(database, &arguments, json),
        Command::Stats(arguments) => stats::run(database, &arguments, json),
        Command::Tiers(arguments) => match &arguments.action {
            None => tiers::run(database, json),
            Some(action) => host_tiers::run(database, action, json),
        },
        Command::Compact(arguments) => compact::run(database, &arguments, json),
        Command::Checkpoint(arguments) => checkpoint::run(database, &arguments, json),
        Command::Cache(arguments) => cache::run(database, &arguments, json),
        Command::Profile(arguments) => profile::run(&arguments, json),
        Command::Verify => verify::run(database, json),
        Command::Repair(arguments) => repair::run(database, &arguments, json),
    }
}
