//! Every sync comes from a named place, and something objects where the syncs of a place are
//! missing or come too late; `every-sync.txt` says what.
//!
//! Needs the feature `planted-bugs`; `cargo xtask test` runs it so.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;
use thermocline_simulation::campaign::{Suite, Task};
use thermocline_simulation::syncs::{Change, List, attempt, is_within, met_by};

/// Tasks that meet the places of the list to which nothing objects.
fn further_tasks() -> impl Iterator<Item = Task> {
    let of = |suite, one_in| (1..=12).map(move |seed| Task { suite, seed, one_in, only: None });
    of(Suite::Crash, 3).chain(of(Suite::Drills, 4)).chain(of(Suite::Errors, 64))
}

#[test]
fn every_sync_comes_from_a_place_of_the_list_and_every_place_is_met() {
    let List(list) = List::kept();
    let mut tasks: Vec<Task> = Vec::new();
    for task in list.iter().filter_map(|(_, task)| *task).chain(further_tasks()) {
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    let mut failures = Vec::new();
    let met = met_by(|| {
        for task in tasks {
            if let Err((_, text)) = task.attempt() {
                failures.push(format!("{task:?} fails with all syncs: {text}"));
            }
        }
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let named: BTreeSet<&String> = list.iter().flat_map(|(change, _)| change.places()).collect();
    let unlisted: Vec<_> = met.iter().filter(|place| !named.contains(place)).collect();
    assert!(unlisted.is_empty(), "places that are not in every-sync.txt: {unlisted:?}");
    let is_met = |name: &&&String| met.iter().any(|place| is_within(place, name));
    let stale: Vec<_> = named.iter().filter(|name| !is_met(name)).collect();
    assert!(stale.is_empty(), "no sync comes from {stale:?}");
    assert!(met.len() >= 60, "only {} places were met", met.len());
}

#[test]
fn something_objects_to_each_sync_that_is_missing_or_late() {
    let List(list) = List::kept();
    // What panics in a task is caught there, and told below.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failures = Vec::new();
    for (change, task) in &list {
        let Some(task) = task else { continue };
        let (found, made) = attempt(change, *task);
        if found.is_none() {
            failures.push(format!("{task:?} does not object to {change}, made {made} times"));
        }
    }
    std::panic::set_hook(hook);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_change_is_written_as_it_is_read() {
    assert_eq!(Change::parse("a/b,c").to_string(), "a/b,c");
}
