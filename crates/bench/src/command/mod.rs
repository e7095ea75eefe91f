//! The command line of a benchmark binary, whichever engines it brings.

use crate::store::EngineKind;
use std::process::ExitCode;

/// Runs the command line with `engines`.
pub fn main(engines: &[&dyn EngineKind]) -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "rig") {
        return crate::rig::command::main();
    }
    let _ = engines;
    ExitCode::FAILURE
}
