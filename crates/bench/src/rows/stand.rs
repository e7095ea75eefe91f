//! Where rows are measured that no cell of a run measures ([`Drill`](super::Drill)), and cells that
//! such a drill runs in turn.

use crate::Outcome;
use crate::cell::{Cell, MARK, Message, Purpose};
use crate::plan::Launcher;
use crate::results::Measured;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

/// Where a row that no cell measures is measured.
#[allow(missing_debug_implementations, reason = "a launcher has none")]
pub struct Stand<'a> {
    /// The fast directory.
    pub fast: &'a Path,
    /// The slow one.
    pub slow: &'a Path,
    /// What the slow one is to be as slow as, where it is no device of the rig.
    pub emulated: Option<&'static str>,
    /// What is put around processes.
    pub launcher: &'a dyn Launcher,
    /// The program that runs cells.
    pub program: &'a Path,
}

impl Stand<'_> {
    /// Begins a cell in a process of its own.
    pub fn start(&self, cell: &Cell) -> Outcome<Child> {
        let arguments = ["cell".to_owned(), "--json".to_owned(), serde_json::to_string(cell)?];
        let mut command = self.launcher.command(self.program, &arguments, cell)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().map_err(|error| format!("cannot start a cell: {error}").into())
    }

    /// Waits for the end of `child`, and says what it measured.
    pub fn finish(&self, mut child: Child, cell: &Cell) -> Outcome<Measured> {
        let output = child.stdout.take().ok_or("the cell has no standard output")?;
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        let said =
            lines.filter_map(|line| serde_json::from_str::<Message>(line.strip_prefix(MARK)?).ok());
        let last = said.filter(|message| !matches!(message, Message::Progress { .. })).last();
        let status = child.wait()?;
        self.launcher.ended(cell)?;
        match last {
            Some(Message::Measured(measured)) => Ok(*measured),
            Some(Message::Failed(reason)) => Err(reason.into()),
            _ => Err(format!("the process ended with {status}").into()),
        }
    }

    /// Runs a cell to its end.
    pub fn run(&self, cell: &Cell) -> Outcome<Measured> {
        self.finish(self.start(cell)?, cell)
    }

    /// Makes what a cell begins with.
    pub fn load(&self, cell: &Cell) -> Outcome<()> {
        self.run(&Cell { purpose: Purpose::Load, ..cell.clone() }).map(drop)
    }
}
