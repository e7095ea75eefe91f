//! Tables on two tiers below the first: the second overflows to the third, which is lost to power
//! cuts, gone or full like any other.

use super::{
    all_leaves_once_there_is_room, delete, entries, goes_on_after, records, write_until_refused,
};
use crate::{SHAPE, planned_life, put_each};
use parking_lot::RwLock;
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Db, Tier};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::campaign::crash_shape;
use thermocline_simulation::devices::Loss;
use thermocline_simulation::history::{Step, TIERS, has_third_tier};
use thermocline_simulation::life::{Life, Stop};
use thermocline_simulation::oracle::Known;

/// Bytes of tables on each tier.
fn table_bytes(db: &Db) -> [u64; 3] {
    let levels = db.stats().levels;
    [0, 1, 2].map(|tier| levels.iter().map(|level| level.bytes_by_tier[tier]).sum())
}

/// 64 records of so many bytes in tables, and none in slots. The second tier may have 1 MiB, the
/// third `capacity`.
fn life_of_three_tiers(capacity: ByteSize, len: usize) -> Result<Life, Stop> {
    let mut life = planned_life(ByteSize::mib(1), 12, (98, 95));
    life.settings.tiers[1].capacity = ByteSize::mib(1);
    life.settings.tiers.push(Tier::new(TIERS[2], capacity).driver("memory"));
    life.create()?;
    put_each(&mut life, 0..SHAPE.keys, 1, len)?;
    life.step(&Step::Compact)?;
    assert!(records(life.db()) == 0 && table_bytes(life.db())[0] == 0);
    Ok(life)
}

/// What is deleted and overwritten stays so on whatever tier its tables are, and after the process
/// or the power ends; the room that tables leave on the second tier is used again.
#[test]
fn what_is_overwritten_on_three_tiers_stays_so() {
    let mut life = life_of_three_tiers(ByteSize::mib(16), 19_000).unwrap();
    assert!(table_bytes(life.db())[2] > 0);
    let mut second_bytes = 0;
    for step in 2..5 {
        life.step(&delete((0..SHAPE.keys).skip(step).step_by(3))).unwrap();
        put_each(&mut life, (0..SHAPE.keys).skip(step + 1).step_by(3), step, 15_000).unwrap();
        life.step(&Step::Flush).unwrap();
        life.check_all().unwrap();
        for (loss, is_kill) in [(Loss::None, true), (Loss::All, false)] {
            let world = life.machine.devices.look(|world| world.after(loss));
            life.restart(world, is_kill).unwrap();
            life.check_all().unwrap();
        }
        life.step(&Step::Compact).unwrap();
        life.check_all().unwrap();
        life.check_tidy().unwrap();
        second_bytes += table_bytes(life.db())[1];
    }
    assert!(second_bytes > 0);
    let left = (entries(life.db()), life.known.read().model().len() as u64);
    assert_eq!(left.0, (left.1, 0));
}

/// The second tier is full and the third gone: nothing is lost, and once it is back writing goes
/// on.
fn third_tier_gone() -> Result<(), Stop> {
    let mut life = life_of_three_tiers(ByteSize::mib(256), 19_000)?;
    let third = Path::new(TIERS[2]);
    life.machine.devices.set_gone(third, true);
    let error = write_until_refused(&mut life)?;
    if !error.to_string().contains(TIERS[2]) {
        return Err(format!("it is not said which tier is gone: {error}").into());
    }
    let bytes = table_bytes(life.db());
    assert!(bytes[1] > 0 && bytes[2] > 0, "{bytes:?}");
    let known = life.known.read().clone();
    known.check_some_prefix(life.db(), known.acknowledged)?;
    life.machine.devices.set_gone(third, false);
    known.check_state(life.db(), known.acknowledged)?;
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    goes_on_after(life, world)
}

/// Both tiers below the first are full by the settings: writers are refused, all is read, and once
/// the third may take more all of it leaves.
fn third_tier_at_its_capacity() -> Result<(), Stop> {
    let mut life = life_of_three_tiers(ByteSize::mib(1), 9_000)?;
    let error = write_until_refused(&mut life)?;
    if !TIERS.iter().all(|tier| error.to_string().contains(tier)) {
        return Err(format!("it is not said that all are full: {error}").into());
    }
    let bytes = table_bytes(life.db());
    assert!(bytes[1] > 0 && bytes[2] > 0, "{bytes:?}");
    let db = all_leaves_once_there_is_room(life, 2)?;
    assert_eq!(table_bytes(&db)[0], 0);
    Ok(())
}

/// In some of these histories a table outgrows the second tier in the midst of a key: a snapshot
/// keeps versions of it, which go to one table, and all of that moves to the third.
fn versions_that_outgrow_the_second_tier() -> Result<(), Stop> {
    for seed in (32..400).step_by(4).filter(|seed| has_third_tier(*seed)) {
        let shape = crash_shape(seed);
        let mut life = Life::new(seed, &shape, Arc::new(RwLock::new(Known::new(shape.keys))));
        life.run(&shape).map_err(|(_, stop)| stop)?;
        for step in [Step::Flush, Step::Compact, Step::ReleaseSnapshot] {
            life.step(&step)?;
        }
        life.check_all()?;
    }
    Ok(())
}

scripts! {
    a_third_tier_that_vanishes_loses_nothing:
        third_tier_gone, FailedDemotionDeparts;
    a_third_tier_at_its_capacity_loses_nothing:
        third_tier_at_its_capacity, FailedDemotionDeparts;
    versions_of_a_key_that_outgrow_their_tier_move_together:
        versions_that_outgrow_the_second_tier, LastKeyNotCopied;
}
