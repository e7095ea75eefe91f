//! `verify`: reads every stored byte and says where one is not what was written.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Bar;
use crate::table::Table;
use crate::{store, text};
use thermocline::VerifyReport;
use thermocline_foundation::ByteSize;

/// Verifies the database; a failure where it has a problem.
pub fn run(database: &Database, json: bool) -> Result<()> {
    let db = store::open_to_read(database)?;
    let bar = Bar::new("verifying", Some(0));
    let report = db.verify(&mut |progress| bar.show(&progress))?;
    drop(bar);
    let mut output = Output::new();
    if json {
        output.json(&report)?;
    } else {
        print(&report, &mut output)?;
    }
    output.finish()?;
    db.close()?;
    match report.problems.len() as u64 {
        0 => Ok(()),
        problems => Err(Failure::new(format!(
            "{} in {}; restore the database from a checkpoint, or see what `repair` can do",
            text::counted(problems, "problem"),
            database.db.display()
        ))),
    }
}

fn print(report: &VerifyReport, output: &mut Output) -> Result<()> {
    if !report.problems.is_empty() {
        let mut table = Table::new(&["file", ">tier", "problem"]);
        for problem in &report.problems {
            table.row([problem.file.clone(), problem.tier.to_string(), problem.text.clone()]);
        }
        table.print("Problems", output)?;
    }
    output.line(format!(
        "verified {}, {}, {}: {}",
        text::counted(report.files, "file"),
        ByteSize(report.bytes),
        text::counted(report.entries, "record"),
        if report.problems.is_empty() { "all is well" } else { "damage found" }
    ))
}
