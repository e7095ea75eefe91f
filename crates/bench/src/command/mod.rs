//! The command line of a benchmark binary, whichever engines it brings.

use crate::store::EngineKind;
use std::process::ExitCode;

/// Runs the command line with `engines`.
pub fn main(engines: &[&dyn EngineKind]) -> ExitCode {
    let _ = engines;
    ExitCode::FAILURE
}
