//! Every sync comes from a named place, and something objects where the syncs of a place are
//! missing; `every-sync.txt` says what.
//!
//! `simulate --without-sync kept` tries too that each task is content with all syncs. Needs the
//! feature `planted-bugs`; `cargo xtask test` runs it so.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;
use thermocline_simulation::syncs::{Change, Guard, List, attempt, is_within, pairs};

#[test]
fn every_sync_that_lives_make_comes_from_a_place_of_the_list() {
    let List(list) = List::kept();
    let pairs = pairs();
    assert!(pairs.len() >= 60, "lives meet {} pairs of places", pairs.len());
    let met: BTreeSet<_> = pairs.iter().flat_map(Change::places).collect();
    let is_listed = |place: &str| {
        list.iter().any(|(change, _)| change.places().iter().any(|name| is_within(place, name)))
    };
    let unlisted: Vec<_> = met.iter().filter(|place| !is_listed(place.as_str())).collect();
    assert!(unlisted.is_empty(), "places that are not in every-sync.txt: {unlisted:?}");
}

#[test]
fn a_task_objects_to_each_sync_that_is_missing() {
    let List(list) = List::kept();
    let tasks = list.iter().filter_map(|(change, guard)| match guard {
        Guard::Task(task) => Some((change, *task)),
        _ => None,
    });
    // What panics in a task is caught there, and told below.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut failures = Vec::new();
    let mut tried = 0;
    for (change, task) in tasks {
        let (found, made) = attempt(change, task);
        if found.is_none() {
            failures.push(format!("{task:?} does not object to {change}, made {made} times"));
        }
        tried += 1;
    }
    std::panic::set_hook(hook);
    assert!(tried >= 55, "the list has only {tried} places with a task");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_list_names_each_place_once_and_the_decision_says_why_one_stays() {
    let page = include_str!("../../../docs/decisions/0074-every-sync.md");
    let List(list) = List::kept();
    let changes: BTreeSet<&Change> = list.iter().map(|(change, _)| change).collect();
    assert_eq!(changes.len(), list.len());
    for (change, guard) in &list {
        let is_said = *guard != Guard::Nothing || page.contains(&format!("`{change}`"));
        assert!(is_said, "0074-every-sync.md does not say why {change} stays");
        assert_eq!(Change::parse(&change.to_string()), *change);
    }
}
