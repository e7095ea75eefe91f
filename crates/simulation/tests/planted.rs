//! Every planted bug is found; and the task that finds it is content without the bug.
//!
//! Needs the feature `planted-bugs`; `cargo xtask test` runs it so.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;
use thermocline_foundation::Planted;
use thermocline_simulation::campaign::Task;
use thermocline_simulation::planted::{attempt, parse_line};

/// Bugs that one thread cannot show. Schedules of several find them (`cargo xtask schedules`), and
/// a test there says so.
const FOUND_BY_SCHEDULES: [Planted; 6] = [
    Planted::SyncCountsLaterWrites,
    Planted::IngestEndsBeforeDepartures,
    Planted::HoleInLogSkipped,
    Planted::AcknowledgedOutOfOrder,
    Planted::InsertAfterFreeze,
    Planted::ChecksMissFlyingGroups,
];

/// Bugs that short scripts show and histories of a few dozen steps do not; `tests/slots.rs` does.
const FOUND_BY_SCRIPTS: [Planted; 17] = [
    Planted::CursorMissesDepartures,
    Planted::SlotSumsNotCompared,
    Planted::MovedSlotNotFreed,
    Planted::MovedSlotUnpacked,
    Planted::StalePromotion,
    Planted::PieceCutsVersions,
    Planted::DemotionFreesOldSlot,
    Planted::CopyStaysUnderIngest,
    Planted::IndexCopyNotChecked,
    Planted::IndexCopyOutlivesTable,
    Planted::FailedDemotionDeparts,
    Planted::TombstoneLeftBehind,
    Planted::DeadSlotBelieved,
    Planted::DamagedSlotTakenForTorn,
    Planted::LogNotSealedBeforePiece,
    Planted::DoomedTableDeletedAtOnce,
    Planted::ReadOnlyOpeningDropsLogs,
];

/// Bugs that histories of transactions show; `tests/transactions.rs` does.
const FOUND_BY_TRANSACTIONS: [Planted; 5] = [
    Planted::RangeNotValidated,
    Planted::SnapshotTooNew,
    Planted::SavepointKeepsWrites,
    Planted::CommitValidatesMemoryOnly,
    Planted::LockReleasedEarly,
];

fn list() -> Vec<(Planted, Task)> {
    let lines = include_str!("planted-bugs.txt").lines();
    lines.map(|line| parse_line(line).unwrap_or_else(|| panic!("not a line: {line}"))).collect()
}

#[test]
fn every_planted_bug_is_found() {
    let list = list();
    let listed: BTreeSet<_> = list.iter().map(|(bug, _)| *bug).collect();
    let is_known = |bug: &&Planted| {
        let elsewhere = FOUND_BY_SCHEDULES.contains(bug)
            || FOUND_BY_SCRIPTS.contains(bug)
            || FOUND_BY_TRANSACTIONS.contains(bug);
        listed.contains(bug) || elsewhere
    };
    let missing: Vec<_> = Planted::ALL.iter().filter(|bug| !is_known(bug)).collect();
    assert!(missing.is_empty(), "no task is known that finds {missing:?}");
    assert!(list.len() >= 30);
    // What panics in a task is caught there, and told below.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failures = Vec::new();
    for (bug, task) in list {
        let (found, hits) = attempt(bug, task);
        if found.is_none() {
            failures.push(format!(
                "{bug:?} is not found by {task:?}; its line was passed {hits} times"
            ));
        }
        if let Err((_, text)) = task.attempt() {
            failures.push(format!("{task:?} fails without {bug:?}: {text}"));
        }
    }
    std::panic::set_hook(hook);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
