//! Repairs of drawn damages in a few databases; they find the planted bugs of repair.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::repair;
use thermocline_simulation::rot::{Damage, Fixture, Outcome};

/// Of `leveled` and `hybrid`, closed in good order.
const SEEDS: [u64; 3] = [1, 3, 4];
/// Damages of each.
const DAMAGES: usize = 60;

/// How many damages were repaired.
fn repaired() -> Result<u64, String> {
    let mut repaired = 0;
    for seed in SEEDS {
        let fixture = Fixture::new(seed)?;
        let damages = fixture.damages();
        for (place, damage) in damages.iter().step_by(damages.len() / DAMAGES + 1) {
            let outcome = repair::run(&fixture, &place.0, &place.1, damage)
                .map_err(|why| format!("seed {seed}, {damage:?} of {}: {why}", place.1))?;
            repaired += u64::from(outcome == Outcome::Reported);
        }
    }
    Ok(repaired)
}

/// How many manifests were damaged beyond repair, and made anew or refused.
fn made_anew() -> Result<u64, String> {
    made_anew_of(SEEDS)
}

fn made_anew_of(seeds: impl IntoIterator<Item = u64>) -> Result<u64, String> {
    let mut made = 0;
    for seed in seeds {
        let fixture = Fixture::new(seed)?;
        let damages = fixture.damages();
        let of_manifest = damages.iter().filter(|(place, damage)| {
            place.1.ends_with(".manifest") && !matches!(damage, Damage::Flip(..))
        });
        for (place, damage) in of_manifest.take(DAMAGES) {
            let outcome = repair::run(&fixture, &place.0, &place.1, damage)
                .map_err(|why| format!("seed {seed}, {damage:?} of {}: {why}", place.1))?;
            made += u64::from(outcome == Outcome::Reported);
        }
    }
    Ok(made)
}

#[test]
fn a_manifest_that_is_damaged_beyond_repair_is_made_anew() {
    let made = made_anew().unwrap();
    assert!(made > 10, "{made} manifests");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_manifest_that_is_made_anew_without_slots_or_logs_is_found() {
    for bug in [Planted::RebuildForgetsSlots, Planted::RebuildForgetsLogs] {
        let found = with(bug, made_anew);
        assert!(found.is_err(), "{bug:?}: {found:?}");
    }
}

#[test]
fn what_is_damaged_is_repaired_and_what_is_lost_is_named() {
    let repaired = repaired().unwrap();
    assert!(repaired > 60, "{repaired} repairs");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_repair_that_names_nothing_is_found() {
    let found = with(Planted::RepairNamesNothing, repaired);
    assert!(found.is_err(), "{found:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn old_files_that_go_before_the_manifest_are_found() {
    let found = with(Planted::RepairDeletesFirst, repaired);
    assert!(found.is_err(), "{found:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_failed_read_that_is_taken_for_damage_is_found() {
    let found = with(Planted::RepairTakesReadErrorForDamage, repaired);
    assert!(found.is_err(), "{found:?}");
}

/// A history with records in slots, and a load of their keys after them.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_load_that_does_not_say_what_it_follows_is_found() {
    assert!(made_anew_of([36]).is_ok());
    let found = with(Planted::LoadFollowsNothing, || made_anew_of([36]));
    assert!(found.is_err(), "{found:?}");
}

/// Histories open each checkpoint that they take, and compare it.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_copy_that_lacks_a_live_slot_is_found() {
    let histories = || (4..64).step_by(4).try_for_each(|seed| Fixture::new(seed).map(drop));
    assert!(histories().is_ok());
    let found = with(Planted::CopyLacksLastSlot, histories);
    assert!(found.is_err(), "{found:?}");
}
