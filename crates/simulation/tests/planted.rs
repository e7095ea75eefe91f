//! Every planted bug is found; and the task that finds it is content without the bug.
//!
//! Needs the feature `planted-bugs`; `cargo xtask test` runs it so.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Planted, threads};
use thermocline_simulation::campaign::Task;
use thermocline_simulation::planted::{
    FOUND_BY_NAMES, FOUND_BY_TRANSACTIONS, attempt, parse_line, parse_task, task_words,
};

/// Bugs that one thread cannot show. Schedules of several find them (`cargo xtask schedules`), and
/// a test there says so.
const FOUND_BY_SCHEDULES: [Planted; 10] = [
    Planted::SyncCountsLaterWrites,
    Planted::IngestEndsBeforeDepartures,
    Planted::HoleInLogSkipped,
    Planted::AcknowledgedOutOfOrder,
    Planted::VisibleBeforeDurable,
    Planted::LogFilledInUse,
    Planted::InsertAfterFreeze,
    Planted::ChecksMissFlyingGroups,
    Planted::WaitingTakenAfterIndex,
    Planted::CopiesLeaveUnlocked,
];

/// Bugs that short scripts show and histories of a few dozen steps do not; `tests/slots.rs` does.
const FOUND_BY_SCRIPTS: [Planted; 20] = [
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
    Planted::RefusalLatches,
    Planted::LastKeyNotCopied,
    Planted::TombstoneLeftBehind,
    Planted::DeadSlotBelieved,
    Planted::DamagedSlotTakenForTorn,
    Planted::LogNotSealedBeforePiece,
    Planted::DoomedTableDeletedAtOnce,
    Planted::ReadOnlyOpeningDropsLogs,
    Planted::LastFrameNotRewritten,
];

/// Bugs of the cache of blocks, which needs more reads than histories have; `tests/fast_cache.rs`
/// finds them.
const FOUND_BY_CACHE_SCRIPTS: [Planted; 7] = [
    Planted::CachedBlockNotVerified,
    Planted::CacheErrorFailsRead,
    Planted::TornFooterBelieved,
    Planted::CacheOfOtherInstanceAdopted,
    Planted::NewerCacheAdopted,
    Planted::CacheFileLeaked,
    Planted::CacheTakesLogRoom,
];

/// Of tables with dictionaries, which want more memory than histories have;
/// `tests/dictionaries.rs` finds it.
const FOUND_BY_DICTIONARY_SCRIPTS: [Planted; 1] = [Planted::DictionaryOfOtherTable];

/// Of repairs; `tests/repair.rs` finds them.
const FOUND_BY_REPAIRS: [Planted; 7] = [
    Planted::RepairNamesNothing,
    Planted::RepairDeletesFirst,
    Planted::RepairTakesReadErrorForDamage,
    Planted::RebuildForgetsSlots,
    Planted::RebuildForgetsLogs,
    Planted::LoadFollowsNothing,
    Planted::CopyLacksLastSlot,
];

/// Bugs of the region of persistent memory, which no store here has; the tests of `crates/pmem`
/// find them, schedules of it, `crates/engine/tests/persistent_memory`, and `tests/region.rs`.
const FOUND_BY_PMEM: [Planted; 20] = [
    Planted::ArenaFreedBeforeEdit,
    Planted::GroupBeforeFence,
    Planted::GroupLineNotFlushed,
    Planted::GroupNotBound,
    Planted::NodeBeforeJournal,
    Planted::RunCountedEarly,
    Planted::ObjectNotFlushed,
    Planted::OlderEntryWins,
    Planted::IndexedBeforeEdit,
    Planted::LastRecordNotEntered,
    Planted::SnapshotSeesLiveAlone,
    Planted::TableDroppedWithEntries,
    Planted::TombstoneDroppedWithOlder,
    Planted::TombstoneEntryRemovedEarly,
    Planted::WaitingRecordsNotSought,
    Planted::LiveCountOutsideRun,
    Planted::ReaderIgnoresSplit,
    Planted::OtherBootBelieved,
    Planted::OlderRegionAccepted,
    Planted::RegionBeginsAgain,
];

fn list() -> Vec<(Planted, Task)> {
    let lines = include_str!("planted-bugs.txt").lines();
    lines.map(|line| parse_line(line).unwrap_or_else(|| panic!("not a line: {line}"))).collect()
}

/// What is wrong with a task: it does not find the bug, or finds something without one.
fn failure_of(bug: Option<Planted>, task: Task) -> Option<String> {
    let Some(bug) = bug else {
        let (_, text) = task.attempt().err()?;
        return Some(format!("{task:?} fails without a bug: {text}"));
    };
    let (found, hits) = attempt(bug, task);
    let text = || format!("{bug:?} is not found by {task:?}; its line was passed {hits} times");
    found.is_none().then(text)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "threads of the test's own, which it joins")]
fn every_planted_bug_is_found() {
    let list = list();
    let listed: BTreeSet<_> = list.iter().map(|(bug, _)| *bug).collect();
    let is_known = |bug: &&Planted| {
        let elsewhere = FOUND_BY_SCHEDULES.contains(bug)
            || FOUND_BY_SCRIPTS.contains(bug)
            || FOUND_BY_TRANSACTIONS.contains(bug)
            || FOUND_BY_PMEM.contains(bug)
            || FOUND_BY_CACHE_SCRIPTS.contains(bug)
            || FOUND_BY_DICTIONARY_SCRIPTS.contains(bug)
            || FOUND_BY_REPAIRS.contains(bug)
            || FOUND_BY_NAMES.contains(bug);
        listed.contains(bug) || elsewhere
    };
    let missing: Vec<_> = Planted::ALL.iter().filter(|bug| !is_known(bug)).collect();
    assert!(missing.is_empty(), "no task is known that finds {missing:?}");
    assert!(list.len() >= 30);
    // What panics in a task is caught there, and told below.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    // A bug is on in the thread that looks for it. Tasks without one are run once each.
    let healthy: BTreeSet<_> = list.iter().map(|(_, task)| task_words(*task)).collect();
    let healthy = healthy.into_iter().map(|words| (None, parse_task(&words).unwrap()));
    let mut work: Vec<_> = list.into_iter().map(|(bug, task)| (Some(bug), task)).collect();
    work.extend(healthy);
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads::available() {
            scope.spawn(|| {
                while let Some((bug, task)) = work.get(next.fetch_add(1, Relaxed)) {
                    failures.lock().extend(failure_of(*bug, *task));
                }
            });
        }
    });
    let failures = failures.into_inner();
    std::panic::set_hook(hook);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
