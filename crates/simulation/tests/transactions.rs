//! Histories of transactions, and the planted bugs that they find.
#![allow(clippy::unwrap_used)]

use thermocline_simulation::transactions::{Counts, run};

/// Steps of a history.
const STEPS: u64 = 400;

#[test]
fn transactions_read_commit_conflict_and_survive_kills_as_the_model_says() {
    let mut all = Counts::default();
    for seed in 0..100 {
        let counts = run(seed, STEPS).unwrap();
        all.commits += counts.commits;
        all.conflicts += counts.conflicts;
        all.locked += counts.locked;
        all.kills += counts.kills;
    }
    assert!(all.commits > 600 && all.conflicts > 150, "{all:?}");
    assert!(all.locked > 150 && all.kills > 150, "{all:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_histories_find_what_is_planted() {
    use thermocline_foundation::planted::with;
    for bug in thermocline_simulation::planted::FOUND_BY_TRANSACTIONS {
        let found = (0..40).any(|seed| with(bug, || run(seed, STEPS)).is_err());
        assert!(found, "{bug:?} is not found");
    }
}
