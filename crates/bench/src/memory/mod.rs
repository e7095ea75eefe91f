//! `memory`: the most that a process has resident while its store does one thing, beside the
//! store's setting `memory`.
//!
//! ```text
//!   mod.rs      a process for each row, its peak, the table     scripts.rs   what a process does
//! ```
//! Each row begins with a new directory and a new process that does nothing else, so its peak is
//! the store's but for a few MiB of the program. The bound is 1.10 of `memory` and 64 MiB more.
//!
//! Invariants:
//! 1. Every value that is read is checked; a wrong one fails the row.
//! 2. A row over the bound is a miss and no failure: the command still ends well.

mod scripts;

use crate::files::{make, remove};
use crate::measure::process::{peak_rss_bytes, reset_peak_rss};
use crate::report::table::align;
use crate::{Failure, Outcome};
use clap::Args;
use scripts::{Script, Store};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use thermocline::{ByteSize, Preset};

/// What a process may have resident: a share of `memory`, in percent, and bytes beside it.
const BOUND_PERCENT: u64 = 110;
const BOUND_BESIDE: u64 = 64 << 20;
const PRESETS: [(&str, Preset); 2] = [("leveled", Preset::Leveled), ("hybrid", Preset::Hybrid)];
/// Begins the line in which a child tells what it measured.
const MARK: &str = "measured ";

/// `memory`.
#[derive(Clone, Debug, Args)]
pub struct MemoryArguments {
    /// Memory of the store
    #[arg(long, default_value = "64MiB")]
    pub memory: ByteSize,
    /// Bytes of records, in multiples of the memory
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub data_over_memory: u64,
    /// Rows whose name begins so, such as leveled/scans; all where none is given
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub row: Vec<String>,
    /// A new directory for the stores, which is removed; else one for temporary files
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print the rows as JSON
    #[arg(long)]
    pub json: bool,
    /// For a child: what it does, in the directory that is named
    #[arg(long, hide = true)]
    pub child: Option<String>,
}

/// What a process had.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub row: String,
    pub resident_bytes: u64,
    /// The store's own count, at the end.
    pub counted_bytes: u64,
    pub bound_bytes: u64,
}

impl Measured {
    fn over_memory(&self, memory: ByteSize) -> f64 {
        self.resident_bytes as f64 / memory.0.max(1) as f64
    }

    fn verdict(&self) -> &'static str {
        if self.resident_bytes <= self.bound_bytes { "reached" } else { "missed" }
    }
}

fn bound(memory: ByteSize) -> u64 {
    memory.0 / 100 * BOUND_PERCENT + BOUND_BESIDE
}

/// Names of rows: a preset and a script.
fn rows(wanted: &[String]) -> Outcome<Vec<String>> {
    let all = PRESETS.iter().flat_map(|(preset, _)| {
        scripts::ALL.iter().map(move |script| format!("{preset}/{}", script.name))
    });
    let is_wanted = |row: &String| {
        wanted.is_empty() || wanted.iter().any(|name| row.starts_with(name.as_str()))
    };
    let all: Vec<String> = all.collect();
    let found: Vec<String> = all.iter().filter(|row| is_wanted(row)).cloned().collect();
    if found.is_empty() {
        return Err(format!("no row begins so; the rows are {}", all.join(", ")).into());
    }
    Ok(found)
}

/// Measures row after row; `say` gets the lines as they come.
pub fn run(
    arguments: &MemoryArguments,
    program: &Path,
    say: &mut dyn FnMut(&str),
) -> Outcome<Vec<Measured>> {
    let rows = rows(&arguments.row)?;
    let place = match &arguments.dir {
        Some(dir) if dir.exists() => {
            return Err(format!("{} exists; name a new directory", dir.display()).into());
        }
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("thermocline-memory-{}", std::process::id())),
    };
    let mut measured = Vec::new();
    for row in rows {
        say(&row);
        make(&place)?;
        let outcome = in_processes(arguments, program, &row, &place);
        remove(&place)?;
        measured.push(outcome?);
    }
    Ok(measured)
}

/// A process for each part of the row's script; the peak of the last one counts.
fn in_processes(
    arguments: &MemoryArguments,
    program: &Path,
    row: &str,
    place: &Path,
) -> Outcome<Measured> {
    let (_, script) = parts(row)?;
    let mut last = None;
    for part in 0..script.parts.len() {
        let mut command = Command::new(program);
        command.arg("memory").arg("--memory").arg(arguments.memory.0.to_string());
        command.arg("--data-over-memory").arg(arguments.data_over_memory.to_string());
        command.arg("--dir").arg(place).arg("--child").arg(format!("{row}:{part}"));
        let output = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = said.lines().find_map(|line| line.strip_prefix(MARK));
        let Some(told) = told.filter(|_| output.status.success()) else {
            let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("{row}: {}: {error}", output.status).into());
        };
        last = Some(serde_json::from_str(told)?);
    }
    last.ok_or_else(|| Failure::from(format!("{row} has no part")))
}

fn parts(row: &str) -> Outcome<(Preset, &'static Script)> {
    let unknown = || Failure::from(format!("{row} is no row"));
    let (preset, script) = row.split_once('/').ok_or_else(unknown)?;
    let preset = PRESETS.iter().find(|(name, _)| *name == preset).ok_or_else(unknown)?.1;
    let script = scripts::ALL.iter().find(|known| known.name == script).ok_or_else(unknown)?;
    Ok((preset, script))
}

/// The child's side: does one part of a row and returns the line that tells what it took.
pub fn child(arguments: &MemoryArguments, task: &str) -> Outcome<String> {
    let unknown = || Failure::from(format!("{task} is no part of a row"));
    let (row, part) = task.rsplit_once(':').ok_or_else(unknown)?;
    let (preset, script) = parts(row)?;
    let part = script.parts.get(part.parse::<usize>()?).ok_or_else(unknown)?;
    let place = arguments.dir.clone().ok_or_else(unknown)?;
    let store =
        Store { place, preset, memory: arguments.memory, factor: arguments.data_over_memory };
    reset_peak_rss();
    let counted_bytes = part(&store)?;
    let measured = Measured {
        row: row.to_owned(),
        resident_bytes: peak_rss_bytes(),
        counted_bytes,
        bound_bytes: bound(arguments.memory),
    };
    Ok(format!("{MARK}{}\n", serde_json::to_string(&measured)?))
}

/// The table, and below it the lines for programs.
pub fn shown(measured: &[Measured], memory: ByteSize) -> String {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    let heads = ["row", "", "resident MiB", "counted MiB", "bound MiB", "of memory"];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    table.extend(measured.iter().map(|row| {
        vec![
            row.row.clone(),
            row.verdict().to_owned(),
            mib(row.resident_bytes),
            mib(row.counted_bytes),
            mib(row.bound_bytes),
            format!("{:.2}", row.over_memory(memory)),
        ]
    }));
    let lines = measured
        .iter()
        .map(|row| format!("ratio memory/{} {:.3}\n", row.row, row.over_memory(memory)));
    align(&table) + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_chosen_by_how_they_begin() {
        assert_eq!(rows(&[]).unwrap().len(), PRESETS.len() * scripts::ALL.len());
        let chosen = rows(&["hybrid/scans".to_owned()]).unwrap();
        assert_eq!(chosen, ["hybrid/scans"]);
        assert!(rows(&["indexed".to_owned()]).unwrap_err().to_string().contains("leveled/fill"));
    }

    #[test]
    fn a_row_over_the_bound_is_a_miss() {
        let memory = ByteSize::mib(100);
        let row = |resident_bytes| Measured {
            row: "leveled/fill".to_owned(),
            resident_bytes,
            counted_bytes: 1 << 20,
            bound_bytes: bound(memory),
        };
        assert_eq!(bound(memory) >> 20, 174);
        assert_eq!(row(bound(memory)).verdict(), "reached");
        assert_eq!(row(bound(memory) + 1).verdict(), "missed");
        let text = shown(&[row(150 << 20)], memory);
        assert!(text.ends_with("ratio memory/leveled/fill 1.500\n"), "{text}");
    }

    #[test]
    fn every_script_of_one_process_runs_with_little() {
        for row in rows(&[]).unwrap() {
            let place = tempfile::tempdir().unwrap();
            let arguments = MemoryArguments {
                memory: ByteSize::mib(8),
                data_over_memory: 1,
                row: Vec::new(),
                dir: Some(place.path().to_owned()),
                json: false,
                child: None,
            };
            let last = parts(&row).unwrap().1.parts.len() - 1;
            let told = child(&arguments, &format!("{row}:{last}"));
            if last > 0 {
                assert!(told.is_err(), "{row} needs what its first process leaves");
                continue;
            }
            let told = told.unwrap();
            let told: Measured = serde_json::from_str(told.strip_prefix(MARK).unwrap()).unwrap();
            assert_eq!(told.row, row);
        }
    }
}
