//! A version that a snapshot still sees is overwritten or deleted: its slot is not given away, and
//! no merge leaves it out.

use super::{SHAPE, delete, entries, life, put_each, records};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::history::{Step, key};
use thermocline_simulation::life::{Life, Stop};

/// Keys of which the snapshot sees a version that is not the newest.
const OLD: std::ops::Range<u64> = 0..16;

/// All that the snapshot sees is what it saw when it was taken, and so is the present.
fn check_both(life: &mut Life) -> Result<(), Stop> {
    (0..SHAPE.keys).try_for_each(|number| life.step(&Step::Get(key(number))))?;
    life.check_all()
}

/// Records are in slots, overwritten in slots, and whatever is free of their size is used again:
/// by flushes, and once all versions have left for tables.
fn overwritten_in_slots() -> Result<(), Stop> {
    for seed in [4, 12, 16, 20] {
        let mut life = life(seed, (98, 95));
        put_each(&mut life, OLD, 1, 700)?;
        life.step(&Step::Flush)?;
        life.step(&Step::Snapshot)?;
        put_each(&mut life, OLD, 2, 700)?;
        life.step(&Step::Flush)?;
        for step in 3..6 {
            put_each(&mut life, OLD.end..48, step, 700)?;
            life.step(&Step::Flush)?;
            check_both(&mut life)?;
        }
        life.step(&Step::Compact)?;
        assert_eq!(records(life.db()), 0);
        check_both(&mut life)?;
        // Into the slots that the versions had.
        put_each(&mut life, OLD.end..SHAPE.keys, 6, 700)?;
        life.step(&Step::Flush)?;
        check_both(&mut life)?;
        life.step(&Step::ReleaseSnapshot)?;
        life.step(&Step::Compact)?;
        life.check_all()?;
        life.check_tidy()?;
    }
    Ok(())
}

/// Records are in tables, and what is newer is merged with them, twice, while a snapshot sees them;
/// no slot has an older version.
fn merged_away() -> Result<(), Stop> {
    for seed in [4, 12, 16, 20] {
        let mut life = life(seed, (98, 95));
        put_each(&mut life, OLD, 1, 700)?;
        life.step(&Step::Compact)?;
        life.step(&Step::Snapshot)?;
        for step in 2..4 {
            // Every other record is deleted, then written anew.
            life.step(&delete(OLD.skip(step).step_by(2)))?;
            put_each(&mut life, OLD.skip(step + 1).step_by(2), step, 700)?;
            life.step(&Step::Compact)?;
            assert_eq!(records(life.db()), 0);
            check_both(&mut life)?;
        }
        life.step(&Step::ReleaseSnapshot)?;
        // No reader sees the older versions any more, and they go.
        life.step(&Step::Compact)?;
        life.check_all()?;
        life.check_tidy()?;
        let (left, live) = (entries(life.db()), life.known.read().model().len() as u64);
        if left != (live, 0) {
            return Err(format!("tables have {left:?} entries and deletes of {live}").into());
        }
    }
    Ok(())
}

scripts! {
    a_version_that_a_snapshot_sees_keeps_its_slot:
        overwritten_in_slots, SlotReusedUnderSnapshot;
    a_version_that_a_snapshot_sees_outlives_merges:
        merged_away, RetentionIgnoresSnapshots;
}
