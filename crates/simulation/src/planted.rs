//! The tester tested: planted bugs (`foundation/planted.rs`), each of which some task must find.
//!
//! `planted-bugs.txt` says for each bug a task that finds it, so that the test does not search. The
//! search (`simulate --find-planted`) writes the list anew after the suites have changed. A bug
//! that no task finds means that the suites lack an operation or a fault: add that, not an excuse.

use crate::campaign::{SUITES, Suite, Task};
use thermocline_foundation::Planted;
use thermocline_foundation::planted::{hits, with};

/// Bugs that histories of transactions find (`tests/transactions.rs`).
pub const FOUND_BY_TRANSACTIONS: [Planted; 5] = [
    Planted::RangeNotValidated,
    Planted::SnapshotTooNew,
    Planted::SavepointKeepsWrites,
    Planted::CommitValidatesMemoryOnly,
    Planted::LockReleasedEarly,
];

/// Bugs of names over links, which the engine does not use; their own histories find them
/// (`tests/names.rs`).
pub const FOUND_BY_NAMES: [Planted; 14] = [
    Planted::LinkSwitchedUnsynced,
    Planted::OldPlaceDeletedFirst,
    Planted::HomeSyncedBeforeTier,
    Planted::FirstSyncForgetsName,
    Planted::DirectorySyncForgetsTiers,
    Planted::SerialReused,
    Planted::CopyOfReplacedFileServed,
    Planted::CopyOfWrittenFileServed,
    Planted::MovedWhileWritten,
    Planted::ExtentOfReplacedFileServed,
    Planted::LinkedNamesShareFile,
    Planted::LostLinkDropped,
    Planted::CopiedDirectoryAccepted,
    Planted::OverflowRepeatsAppend,
];

/// A bug, and what came of a task with the bug in the engine.
#[derive(Debug)]
pub struct Found {
    /// The task that finds it.
    pub task: Task,
    /// What it says.
    pub text: String,
}

/// Tasks that are tried in turn, the cheap and telling ones first. Every fourth seed is of the
/// preset `hybrid`: of the dear suites each round has one of these and one other.
fn candidates() -> impl Iterator<Item = Task> {
    let round = |round: u64| {
        let seeds = 1 + round * 4..5 + round * 4;
        let of = move |suite: Suite, one_in: u64| {
            seeds.clone().map(move |seed| Task { suite, seed, one_in, only: None })
        };
        of(Suite::Drills, 1)
            .take(2)
            .chain(of(Suite::Crash, 2))
            .chain(of(Suite::Errors, 16).step_by(3))
            .chain(of(Suite::Lies, 8).step_by(3))
            .chain(of(Suite::Rot, 64).step_by(3))
            .chain(of(Suite::Steady, 16).step_by(3))
    };
    (0..24).flat_map(round)
}

/// The first task of `suites` (all, if there are none) that finds `bug` and is content without it;
/// none if none of many does.
pub fn find(bug: Planted, suites: &[Suite]) -> Option<Found> {
    let mut tasks = candidates().filter(|task| suites.is_empty() || suites.contains(&task.suite));
    tasks.find_map(|task| {
        let (only, text) = with(bug, || task.attempt().err())?;
        let task = Task { only, ..task };
        task.attempt().is_ok().then_some(Found { task, text })
    })
}

/// Runs `task` with `bug` in the engine; what it finds, and how often the bug's line was passed.
pub fn attempt(bug: Planted, task: Task) -> (Option<String>, u64) {
    with(bug, || {
        let found = task.attempt().err().map(|(_, text)| text);
        (found, hits())
    })
}

/// A line of the list.
pub fn line(bug: Planted, task: Task) -> String {
    format!("{} {}", bug.name(), task_words(task))
}

/// Reads a line of the list.
pub fn parse_line(line: &str) -> Option<(Planted, Task)> {
    let (bug, task) = line.split_once(' ')?;
    Some((Planted::parse(bug)?, parse_task(task)?))
}

/// A task in words: suite, seed, one in how many, item.
pub fn task_words(task: Task) -> String {
    let item = task.only.map_or(String::new(), |item| format!(" {item}"));
    format!("{} {} {}{item}", task.suite.name(), task.seed, task.one_in)
}

/// Reads [`task_words`].
pub fn parse_task(words: &str) -> Option<Task> {
    let mut words = words.split_whitespace();
    let name = words.next()?;
    let suite = SUITES.into_iter().find(|suite| suite.name() == name)?;
    let (seed, one_in) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let only = match words.next() {
        Some(word) => Some(word.parse().ok()?),
        None => None,
    };
    Some(Task { suite, seed, one_in, only })
}
