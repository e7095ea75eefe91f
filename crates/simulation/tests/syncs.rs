//! Every sync has a name, is needed and guarded: something objects where it is missing.
//!
//! Needs the feature `planted-bugs`; `cargo xtask test` runs it so.
#![cfg(feature = "planted-bugs")]

use std::collections::BTreeSet;
use thermocline_simulation::campaign::{Suite, Task};
use thermocline_simulation::syncs::{Change, List, met_by};

#[test]
fn every_place_that_makes_something_durable_is_in_the_list() {
    let tasks = |suite, one_in| (1..=12).map(move |seed| Task { suite, seed, one_in, only: None });
    let mut failures = Vec::new();
    let met = met_by(|| {
        for task in
            tasks(Suite::Crash, 3).chain(tasks(Suite::Drills, 1)).chain(tasks(Suite::Errors, 64))
        {
            if let Err(e) = task.attempt() {
                failures.push(format!("{task:?}: {e:?}"));
            }
        }
    });
    assert!(failures.is_empty(), "{failures:?}");
    let listed: BTreeSet<_> = List::kept()
        .0
        .into_iter()
        .filter_map(|(change, _)| match change {
            Change::Without(place) => Some(place),
            Change::Exchanged(..) => None,
        })
        .collect();
    assert_eq!(met, listed);
}
