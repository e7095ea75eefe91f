//! Names over links under crashes and faults, and the planted bugs that this finds.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use thermocline_simulation::names::{
    Counts, calls_of, faults, fill_device, overwrite, run, run_end, run_leave, run_with_fault,
    vanish, write_beside,
};

#[test]
fn synced_files_keep_name_and_bytes_whatever_call_a_crash_follows() {
    let mut all = Counts::default();
    for seed in 0..48 {
        let counts = run(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        all.images += counts.images;
        all.moves += counts.moves;
        all.overflows += counts.overflows;
        all.replaced += counts.replaced;
        all.links += counts.links;
        all.copies += counts.copies;
        all.stayed += counts.stayed;
        all.announced += counts.announced;
        all.served += counts.served;
        all.restarts += counts.restarts;
        all.left_names += counts.left_names;
    }
    assert!(all.images > 20_000 && all.moves > 60 && all.replaced > 15, "{all:?}");
    assert!(all.copies > 30 && all.stayed > 10 && all.announced > 10, "{all:?}");
    assert!(all.served > 20 && all.left_names > 40, "{all:?}");
    assert!(all.overflows > 5 && all.links > 10 && all.restarts > 40, "{all:?}");
}

#[test]
fn a_directory_leaves_its_tiers_whatever_call_a_crash_follows() {
    let images: u64 = (0..30).map(|seed| run_end(seed).unwrap()).sum();
    assert!(images > 500, "{images} images");
}

#[test]
fn a_directory_with_its_files_leaves_its_tiers_whatever_call_a_crash_follows() {
    let images = (0..16).map(|seed| run_leave(seed).unwrap_or_else(|why| panic!("{seed}: {why}")));
    let images: Vec<u64> = images.collect();
    let left = images.iter().filter(|images| **images > 0).count();
    assert!(left > 8 && images.iter().sum::<u64>() > 1000, "{images:?} images");
}

#[test]
fn what_is_written_beside_a_move_or_a_copy_is_there() {
    let written: u64 = (0..3).map(|seed| write_beside(seed).unwrap()).sum();
    assert!(written > 24, "{written} writings");
}

#[test]
fn extents_of_an_earlier_opening_are_not_served_for_what_was_written_before_a_power_cut() {
    for seed in 0..3 {
        let served = overwrite(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(served > 30, "{served} reads");
    }
}

#[test]
fn extents_leave_a_part_of_their_device_free_and_give_way_to_files() {
    for seed in 0..3 {
        let most = fill_device(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(most > 500 && most <= 950, "{most} thousandths");
    }
}

#[test]
fn a_tier_that_is_away_takes_no_name_and_has_its_files_when_it_is_back() {
    for seed in 0..6 {
        let failed = vanish(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(failed, 3, "seed {seed}");
    }
}

#[test]
fn a_call_that_fails_breaks_no_promise() {
    // On each seed other calls, so that each kind of step meets its faults. All calls of a seed:
    // `cargo xtask simulate --suite names`.
    const SHARE: u64 = 7;
    let (mut failed, mut wrong) = (BTreeMap::new(), Vec::new());
    for seed in 0..SHARE {
        let faults = faults(&calls_of(seed).unwrap());
        for fault in faults.into_iter().filter(|fault| fault.at % SHARE == seed) {
            match run_with_fault(seed, &fault) {
                Ok(failed_step) => {
                    let failed = failed.entry(format!("{:?}", fault.kind)).or_insert(0);
                    *failed += u64::from(failed_step);
                }
                Err(why) => wrong.push(format!("seed {seed}, {fault:?}: {why}")),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong, such as {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(9)]
    );
    assert_eq!(failed.len(), 5, "{failed:?}");
    assert!(failed.values().sum::<u64>() > 500 && failed.values().all(|n| *n > 0), "{failed:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn crashes_find_what_is_planted() {
    use thermocline_foundation::planted::with;
    for bug in thermocline_simulation::planted::FOUND_BY_NAMES {
        let found = (0..30).find_map(|seed| with(bug, || run(seed)).err());
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
