//! Golden scripts of the hazards that come with two tiers: a slow one that is full or gone, deleted
//! records that come back, tombstones that never go, batches that are half there, damage that is
//! taken for something else, and tables that go while they are read.

mod journals;
mod snapshots;
mod third;

use super::{SHAPE, life, planned_life, put, put_each};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Db, Durability, Error, ErrorKind, Experiments, Pinning, Promotion};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::devices::{CallKind, Devices, Loss, Watcher, World};
use thermocline_simulation::history::{Step, TIERS, key, value};
use thermocline_simulation::life::{Life, Stop};
use thermocline_simulation::machine::Machine;

/// Where slabs are.
const FAST: &str = TIERS[0];
/// Where tables are.
const SLOW: &str = TIERS[1];

/// All of these keys are deleted, in one batch.
fn delete(numbers: impl Iterator<Item = u64>) -> Step {
    Step::Write(numbers.map(|number| (key(number), None)).collect(), Durability::Buffered)
}

/// Entries of all tables, and how many of these are tombstones.
fn entries(db: &Db) -> (u64, u64) {
    let levels = db.stats().levels;
    levels.iter().fold((0, 0), |(entries, deletes), level| {
        (entries + level.entries, deletes + level.deletes)
    })
}

fn records(db: &Db) -> u64 {
    db.stats().fast_tier.unwrap().records
}

/// The device of the slow tier has no room for anything more.
fn fill_slow(life: &Life) {
    fill_device(life, SLOW);
}

fn fill_device(life: &Life, tier: &str) {
    let devices = &life.machine.devices;
    let files = devices.look(|world| world.list(Path::new(tier)));
    devices.set_capacity(Path::new(tier), Some(files.iter().map(|(_, len)| len).sum()));
}

/// Writes more than the fast tier has room for, until that is refused; what is said then.
fn write_until_refused(life: &mut Life) -> Result<Error, Stop> {
    for (step, number) in (10..20).flat_map(|step| (0..SHAPE.keys).map(move |at| (step, at))) {
        match life.step(&put(number, step, 20_000)) {
            Ok(()) => {}
            Err(Stop::Failed(error)) => return Ok(error),
            Err(stop) => return Err(stop),
        }
    }
    Err("more is written than there is room for, and no write is refused".to_owned().into())
}

/// Records in tables, and newer ones of some keys in slots.
fn life_on_both_tiers(seed: u64, watermarks: (u32, u32)) -> Result<Life, Stop> {
    let mut life = life(seed, watermarks);
    put_each(&mut life, 0..SHAPE.keys, 1, 3_000)?;
    life.step(&Step::Compact)?;
    put_each(&mut life, (0..SHAPE.keys).step_by(4), 2, 3_000)?;
    life.step(&Step::Flush)?;
    life.step(&Step::Settle)?;
    assert!(entries(life.db()).0 > 0 && records(life.db()) > 0);
    Ok(life)
}

/// After trouble with the slow tier another process finds in `world` all that was acknowledged, and
/// goes on.
fn goes_on_after(mut life: Life, world: World) -> Result<(), Stop> {
    life.restart(world, true)?;
    put_each(&mut life, 0..SHAPE.keys, 30, 9_000)?;
    life.step(&Step::Settle)?;
    assert!(life.db().stats().fast_tier.unwrap().demoted_records > 0);
    life.step(&Step::Compact)?;
    life.check_all()?;
    life.check_tidy()
}

/// The fast tier is full of records that no table has, and the slow tier's device has no room for
/// them: writers are refused and hear why. All is read, then and after there is room again.
fn slow_tier_full_of(seed: u64) -> Result<(), Stop> {
    let mut life = life_on_both_tiers(seed, (98, 95))?;
    fill_slow(&life);
    let error = write_until_refused(&mut life)?;
    if !error.to_string().contains(SLOW) {
        return Err(format!("it is not said which tier is full: {error}").into());
    }
    let known = life.known.read().clone();
    let count = known.check_state(life.db(), known.acknowledged)?;
    known.check_reads(life.db(), count)?;
    // What the logs have finds no room either, so the store opens for reading.
    let machine = Machine::new(life.machine.devices.look(|world| world.after(Loss::None)), 1);
    let db = machine.open()?;
    let shown = known.check_state(&db, known.acknowledged)?;
    let reason = db.stats().read_only.unwrap_or_default();
    assert!(reason.contains("the records of the logs") && reason.contains(SLOW), "{reason}");
    assert_eq!(db.put("x", "y").unwrap_err().kind(), ErrorKind::ReadOnly);
    machine.kill(Some(db));
    // What it showed is not lost with the power.
    let cut = Machine::new(machine.devices.look(|world| world.after(Loss::All)), 2);
    let db = cut.open()?;
    known.check_state(&db, shown)?;
    cut.kill(Some(db));
    machine.devices.set_capacity(Path::new(SLOW), None);
    goes_on_after(life, machine.devices.look(|world| world.after(Loss::None)))
}

fn slow_tier_full() -> Result<(), Stop> {
    [4, 12, 16, 20].into_iter().try_for_each(slow_tier_full_of)
}

/// A slow tier that is full stops no writer while the fast one has room. Once there is room below,
/// records leave again, without a new opening.
fn slow_tier_full_for_a_while() -> Result<(), Stop> {
    let mut life = life_on_both_tiers(12, (50, 30))?;
    fill_slow(&life);
    let refusal = |life: &Life| life.db().stats().fast_tier.unwrap().demotion_refusal;
    let mut numbers = (0..SHAPE.keys).cycle().take(10 * SHAPE.keys as usize);
    while refusal(&life).is_none() {
        let number = numbers.next().ok_or_else(|| "no demotion was refused".to_owned())?;
        life.step(&put(number, 10, 9_000))?;
        life.step(&Step::Settle)?;
    }
    let text = refusal(&life).unwrap_or_default();
    if !text.contains(SLOW) {
        return Err(format!("it is not said which tier is full: {text}").into());
    }
    put_each(&mut life, 0..4, 11, 500)?;
    life.step(&Step::Flush)?;
    life.check_all()?;
    life.machine.devices.set_capacity(Path::new(SLOW), None);
    let demoted = |life: &Life| life.db().stats().fast_tier.unwrap().demoted_records;
    let before = demoted(&life);
    // A second passes before another is tried.
    life.machine.clock.advance(1_000_000_000);
    put_each(&mut life, 0..SHAPE.keys, 30, 9_000)?;
    life.step(&Step::Settle)?;
    if (refusal(&life), life.db().stats().read_only) != (None, None) || demoted(&life) == before {
        return Err("no record leaves although there is room".to_owned().into());
    }
    life.check_all()?;
    life.check_tidy()
}

/// The same as the first with a slow tier that may not take more by the settings, until these are
/// changed.
fn slow_tier_at_its_capacity() -> Result<(), Stop> {
    let mut life = planned_life(ByteSize::mib(1), 12, (98, 95));
    life.settings.tiers[1].capacity = ByteSize::mib(1);
    life.create()?;
    let error = write_until_refused(&mut life)?;
    assert_eq!((error.kind(), life.db().stats().read_only), (ErrorKind::OutOfSpace, None));
    if !error.to_string().contains(SLOW) {
        return Err(format!("it is not said which tier is full: {error}").into());
    }
    all_leaves_once_there_is_room(life, 1)?;
    Ok(())
}

/// All is read; and once `tier` may take more, in the next life, all records of slots leave.
fn all_leaves_once_there_is_room(mut life: Life, tier: usize) -> Result<Db, Stop> {
    let known = life.known.read().clone();
    let count = known.check_state(life.db(), known.acknowledged)?;
    known.check_reads(life.db(), count)?;
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    life.kill();
    life.settings.tiers[tier].capacity = ByteSize::mib(256);
    let machine = Machine::new(world, 1);
    let db = machine.open_with(&life.settings)?;
    known.check_state(&db, known.acknowledged)?;
    db.settle()?;
    db.compact_range(None, None, &mut |_| {})?;
    assert_eq!(records(&db), 0);
    known.check_state(&db, known.acknowledged)?;
    Ok(db)
}

/// A caller that asks for a demotion hears of full tiers; nothing has changed, so writing goes on
/// once the fast one has room, and once the slow one has, the same demotion does what it failed to
/// do.
fn slow_tier_full_for_a_caller() -> Result<(), Stop> {
    let mut life = life(12, (98, 95));
    put_each(&mut life, 0..SHAPE.keys, 1, 3_000)?;
    life.step(&Step::Compact)?;
    put_each(&mut life, 0..SHAPE.keys, 2, 3_000)?;
    TIERS.iter().for_each(|tier| fill_device(&life, tier));
    let Err(Stop::Failed(error)) = life.step(&Step::Compact) else {
        return Err("a demotion to full tiers does not fail".to_owned().into());
    };
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert!(TIERS.iter().any(|tier| error.to_string().contains(tier)), "{error}");
    life.check_all()?;
    life.machine.devices.set_capacity(Path::new(TIERS[0]), None);
    put_each(&mut life, 0..8, 3, 500)?;
    life.machine.devices.set_capacity(Path::new(SLOW), None);
    life.step(&Step::Compact)?;
    assert_eq!(records(life.db()), 0);
    life.check_all()?;
    life.check_tidy()
}

/// The slow tier vanishes while the fast one is full of records that no table has: writers are
/// refused and hear why, what is on the fast tier is still read, and all of it once the slow tier
/// is back.
fn slow_tier_gone_of(seed: u64) -> Result<(), Stop> {
    let mut life = life_on_both_tiers(seed, (98, 95))?;
    let slow = Path::new(SLOW);
    life.machine.devices.set_gone(slow, true);
    let error = write_until_refused(&mut life)?;
    if !error.to_string().contains(SLOW) {
        return Err(format!("it is not said which tier is gone: {error}").into());
    }
    let known = life.known.read().clone();
    known.check_some_prefix(life.db(), known.acknowledged)?;
    let on_fast = (0..SHAPE.keys).step_by(4).filter(|number| life.db().get(key(*number)).is_ok());
    let read = on_fast.count() as u64;
    if read < SHAPE.keys / 4 {
        return Err(format!("of what was on the fast tier {read} are read").into());
    }
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    let error = Machine::new(world, 1).open().unwrap_err();
    assert!(error.to_string().contains(SLOW), "{error}");
    life.machine.devices.set_gone(slow, false);
    known.check_state(life.db(), known.acknowledged)?;
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    goes_on_after(life, world)
}

fn slow_tier_gone() -> Result<(), Stop> {
    [4, 12, 16, 20].into_iter().try_for_each(slow_tier_gone_of)
}

/// Tombstones end with what they hide, once they are merged with the oldest run.
fn tombstones_that_end() -> Result<(), Stop> {
    for deleted in [SHAPE.keys, SHAPE.keys / 2] {
        let mut life = life(12, (98, 95));
        put_each(&mut life, 0..SHAPE.keys, 1, 300)?;
        life.step(&Step::Compact)?;
        life.step(&delete(0..deleted))?;
        life.step(&Step::Compact)?;
        life.step(&Step::Settle)?;
        let (entries, deletes) = entries(life.db());
        if (entries, deletes) != (SHAPE.keys - deleted, 0) || records(life.db()) > 0 {
            let left = SHAPE.keys - deleted;
            return Err(format!("{entries} entries, {deletes} deletes, of {left} records").into());
        }
        life.check_all()?;
        life.check_tidy()?;
    }
    Ok(())
}

/// Files of slabs with their bytes.
fn slabs(world: &World) -> Vec<(String, Vec<u8>)> {
    let files = world.list(Path::new(FAST)).into_iter().map(|(name, _)| name);
    let slabs = files.filter(|name| name.ends_with(".slab"));
    slabs.map(|name| (name.clone(), world.bytes(Path::new(FAST), &name))).collect()
}

/// Where in slabs the value of `number` is that `step` wrote.
fn place_of(world: &World, number: u64, step: usize, len: usize) -> Option<(String, usize)> {
    let bytes = value(&key(number), step, len, false);
    let find = |slab: &[u8]| slab.windows(bytes.len()).position(|window| window == bytes);
    slabs(world).into_iter().find_map(|(name, slab)| Some((name, find(&slab)?)))
}

/// Records of these keys are deleted, their tombstones merged away and the slots of those given to
/// others, while the records' own slots still have their bytes; then the process or the power ends.
fn delete_and_crash(
    life: &mut Life,
    numbers: std::ops::Range<u64>,
    len: usize,
) -> Result<(), Stop> {
    life.step(&delete(numbers.clone()))?;
    life.step(&Step::Flush)?;
    life.step(&Step::Compact)?;
    life.step(&Step::Settle)?;
    // As long as a tombstone.
    for number in 48..SHAPE.keys {
        life.step(&put(number, 3, 0))?;
    }
    life.step(&Step::Flush)?;
    for (loss, is_kill) in [(Loss::None, true), (Loss::All, false)] {
        let world = life.machine.devices.look(|world| world.after(loss));
        let left = numbers.clone().filter(|number| place_of(&world, *number, 1, len).is_some());
        assert!(left.count() > 0, "nothing is left of them");
        life.restart(world, is_kill)?;
        life.check_all()?;
    }
    life.check_tidy()
}

/// Records were demoted, and are deleted in the table.
fn deleted_after_they_left() -> Result<(), Stop> {
    let mut life = life(12, (98, 95));
    put_each(&mut life, 0..16, 1, 300)?;
    life.step(&Step::Compact)?;
    assert_eq!(records(life.db()), 0);
    delete_and_crash(&mut life, 0..16, 300)
}

/// Of 48 records of so many bytes that are in tables some were copied up, into memory and from
/// there to slots.
fn life_with_copies_in_slots(len: usize) -> Result<Life, Stop> {
    let mut life = planned_life(ByteSize::mib(1), 12, (98, 95));
    let hybrid = &mut life.settings.hybrid;
    (hybrid.pinning_percent, hybrid.tracker_percent) = (100, 100);
    let (promotion, pinning) = (Some(Promotion::Read), Some(Pinning::Fixed));
    life.experiments = Experiments { promotion, pinning, ..life.experiments };
    life.create()?;
    // Past slots, so that only the copies leave bytes there.
    let loaded = (0..48).map(|number| (key(number), value(&key(number), 1, len, false)));
    life.step(&Step::Ingest(loaded.collect()))?;
    life.step(&Step::Compact)?;
    for number in (0..48).cycle().take(4 * 48) {
        life.step(&Step::Get(key(number)))?;
        life.step(&Step::Background(4))?;
    }
    life.step(&Step::Settle)?;
    let clean = life.db().stats().fast_tier.unwrap().clean_records;
    assert!(clean > 0, "{:?}", life.db().stats().fast_tier);
    Ok(life)
}

/// Records that were copied up are deleted.
fn deleted_after_they_were_copied() -> Result<(), Stop> {
    let len = 3_000;
    let mut life = life_with_copies_in_slots(len)?;
    delete_and_crash(&mut life, 0..48, len)
}

/// Sweeps take slots from copies that no read asks for; no newer version of these records is in a
/// slot. They are overwritten, the newer records leave for tables and their slots are given to
/// others, while those that the copies had still have their bytes; then the process or the power
/// ends.
fn overwritten_after_a_sweep() -> Result<(), Stop> {
    let len = 3_000;
    let mut life = life_with_copies_in_slots(len)?;
    // A slab that the newer records will find free slots in: a new one would want the room of those
    // that are empty.
    put_each(&mut life, 48..SHAPE.keys, 1, 300)?;
    life.step(&Step::Flush)?;
    // A new process has seen no read of the copies.
    life.step(&Step::Kill)?;
    let fast = |life: &Life| life.db().stats().fast_tier.unwrap();
    let mut numbers = 100..400;
    assert!(fast(&life).clean_records > 0, "{:?}", fast(&life));
    while fast(&life).clean_records > 0 {
        let number =
            numbers.next().ok_or_else(|| format!("no sweep takes slots: {:?}", fast(&life)))?;
        life.step(&put(number, 2, len))?;
        life.step(&Step::Flush)?;
        life.step(&Step::Settle)?;
    }
    let has_bytes = |world: &World, number: u64| place_of(world, number, 1, len).is_some();
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    let numbers: Vec<_> = (0..48).filter(|number| has_bytes(&world, *number)).take(12).collect();
    put_each(&mut life, numbers.iter().copied(), 3, 300)?;
    life.step(&Step::Compact)?;
    assert_eq!(records(life.db()), 0);
    // Into the slots that the newer records had.
    put_each(&mut life, 48..SHAPE.keys, 4, 300)?;
    life.step(&Step::Flush)?;
    for (loss, is_kill) in [(Loss::None, true), (Loss::All, false)] {
        let world = life.machine.devices.look(|world| world.after(loss));
        assert!(numbers.iter().any(|number| has_bytes(&world, *number)), "nothing is left of them");
        life.restart(world, is_kill)?;
        life.check_all()?;
    }
    life.check_tidy()
}

/// A bit of an acknowledged slot is flipped while the database is closed, or after a crash: the
/// opening must not take it for a write that was never acknowledged.
fn flipped_bit_of_an_acknowledged_slot() -> Result<(), Stop> {
    let mut life = life(12, (98, 95));
    put_each(&mut life, 0..8, 1, 700)?;
    life.step(&Step::Flush)?;
    let killed = life.machine.devices.look(|world| world.after(Loss::None));
    let cut = life.machine.devices.look(|world| world.after(Loss::All));
    life.close()?;
    for world in [life.machine.devices.world(), killed, cut] {
        for number in 0..8 {
            let (name, at) = place_of(&world, number, 1, 700).unwrap();
            let at = at + 90 * number as usize;
            let byte = world.bytes(Path::new(FAST), &name)[at] ^ 4;
            let mut damaged = world.clone();
            damaged.damage(Path::new(FAST), &name, at as u64, &[byte]);
            let db = Machine::new(damaged, 1).open()?;
            for other in 0..8 {
                match db.get(key(other)) {
                    Ok(found) => {
                        assert_eq!(found.as_deref(), Some(&value(&key(other), 1, 700, false)[..]));
                    }
                    Err(error) => {
                        assert_eq!((error.kind(), other), (ErrorKind::Corrupt, number), "{error}");
                        assert!(error.to_string().contains(&name), "{error}");
                        let refused = db.put("new", "value").unwrap_err();
                        assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
                    }
                }
            }
        }
    }
    Ok(())
}

/// What a power cut that spares nothing in flight leaves, after each call that changes something.
#[derive(Default)]
struct PowerCuts(Mutex<Vec<World>>);

impl Watcher for PowerCuts {
    fn changed(&self, devices: &Devices, _: u64, _: CallKind) {
        self.0.lock().push(devices.look(|world| world.after(Loss::All)));
    }
}

/// A batch is so large that its flush has several pieces; the power is cut between them.
fn batch_of_several_pieces() -> Result<(), Stop> {
    let mut life = life(12, (98, 95));
    let write = |number| (key(number), Some(value(&key(number), 1, 3_500, false)));
    let writes = (0..16).map(write).collect();
    life.step(&Step::Write(writes, Durability::Buffered))?;
    let known = life.known.read().clone();
    assert_eq!((known.count(), known.durable), (1, 0));
    let cuts = Arc::new(PowerCuts::default());
    life.watch(Arc::clone(&cuts) as Arc<_>);
    life.step(&Step::Flush)?;
    let worlds = std::mem::take(&mut *cuts.0.lock());
    let mut shown = [0, 0];
    for (at, world) in worlds.into_iter().enumerate() {
        let db = Machine::new(world, at as u64).open()?;
        shown[known.check_state(&db, 0)?] += 1;
    }
    // Before the log is durable, and between the pieces.
    assert!(shown[0] > 0 && shown[1] > 8, "{shown:?}");
    Ok(())
}

/// Records leave and others come into their slots, with power cuts after each call that changes
/// something: also between what is written there and the edit by which the slots are free.
fn slots_used_again_while_records_leave() -> Result<(), Stop> {
    let mut demoted = 0;
    for seed in (4..84).step_by(4) {
        let mut life = life(seed, (15, 8));
        let cuts = Arc::new(PowerCuts::default());
        for step in 1..7 {
            let durable = life.known.read().durable;
            life.watch(Arc::clone(&cuts) as Arc<_>);
            let numbers = (0..SHAPE.keys).filter(|number| (number + step as u64).is_multiple_of(2));
            let mut written = put_each(&mut life, numbers, step, 3_000);
            written = written.and_then(|()| life.step(&Step::Flush));
            life.machine.devices.watch(None);
            let known = life.known.read().clone();
            for (at, world) in std::mem::take(&mut *cuts.0.lock()).into_iter().enumerate() {
                let db = Machine::new(world, at as u64).open()?;
                known.check_state(&db, durable)?;
            }
            written?;
        }
        demoted += life.db().stats().fast_tier.unwrap().demoted_records;
    }
    assert!(demoted > 0);
    Ok(())
}

/// Tombstones leave for a newer run than that which has what they hide.
fn deleted_above_an_older_run() -> Result<(), Stop> {
    let mut tombstones = 0;
    for seed in (4..44).step_by(4) {
        let mut life = planned_life(ByteSize::mib(1), seed, (15, 8));
        life.experiments.runs = Some(3);
        life.create()?;
        put_each(&mut life, 0..SHAPE.keys, 1, 3_000)?;
        life.step(&Step::Compact)?;
        life.step(&delete(0..SHAPE.keys / 2))?;
        for step in 2..6 {
            put_each(&mut life, SHAPE.keys / 2..SHAPE.keys, step, 3_000)?;
            life.step(&Step::Flush)?;
            life.step(&Step::Settle)?;
            tombstones += entries(life.db()).1;
            life.check_all()?;
        }
        life.step(&Step::Reopen)?;
    }
    assert!(tombstones > 0, "no tombstone came to a run above another");
    Ok(())
}

/// A scan over both tiers has not opened all of its tables when a demotion replaces them.
fn scan_over_tables_that_go() -> Result<(), Stop> {
    let mut life = life(12, (98, 95));
    put_each(&mut life, 0..SHAPE.keys, 1, 9_000)?;
    life.step(&Step::Compact)?;
    put_each(&mut life, 0..2, 2, 300)?;
    // No table is open then.
    life.step(&Step::Reopen)?;
    assert!(life.db().stats().levels.iter().map(|level| level.tables).sum::<usize>() > 4);
    assert_eq!(records(life.db()), 2);
    life.step(&Step::Cursor)?;
    life.step(&Step::Compact)?;
    life.step(&Step::Settle)?;
    assert_eq!(records(life.db()), 0);
    life.step(&Step::Advance(SHAPE.keys as u32 + 1))?;
    life.step(&Step::Settle)?;
    life.check_tidy()
}

scripts! {
    a_slow_tier_that_is_full_stops_writers_and_loses_nothing:
        slow_tier_full, FailedDemotionDeparts;
    a_store_of_full_tiers_opens_for_reading_and_then_with_room:
        slow_tier_full, ReadOnlyOpeningDropsLogs;
    a_slow_tier_that_is_full_for_a_while_stops_nobody:
        slow_tier_full_for_a_while, FailedDemotionDeparts;
    a_slow_tier_at_its_capacity_stops_writers_and_loses_nothing:
        slow_tier_at_its_capacity, FailedDemotionDeparts;
    a_caller_hears_of_a_full_slow_tier_and_goes_on:
        slow_tier_full_for_a_caller, RefusalLatches;
    a_slow_tier_that_vanishes_stops_writers_and_loses_nothing:
        slow_tier_gone, FailedDemotionDeparts;
    a_tombstone_goes_with_what_it_hides:
        tombstones_that_end, TombstoneLeftBehind;
    a_deleted_record_does_not_come_back_from_the_slot_it_left:
        deleted_after_they_left, DeadSlotBelieved;
    a_deleted_record_does_not_come_back_from_the_slot_of_its_copy:
        deleted_after_they_were_copied, DeadSlotBelieved;
    an_overwritten_record_does_not_come_back_from_a_slot_that_a_sweep_took:
        overwritten_after_a_sweep, DeadSlotBelieved;
    a_slot_is_used_again_once_the_edit_that_frees_it_is_durable:
        slots_used_again_while_records_leave, SlotsFreedBeforeEdit;
    rot_in_an_acknowledged_slot_is_damage:
        flipped_bit_of_an_acknowledged_slot, DamagedSlotTakenForTorn;
    a_batch_is_whole_although_its_pieces_are_not_durable_together:
        batch_of_several_pieces, LogNotSealedBeforePiece;
    a_tombstone_above_an_older_run_hides_what_that_has:
        deleted_above_an_older_run, TombstoneDroppedAboveOlder;
    a_table_is_there_as_long_as_a_scan_of_both_tiers_reads_it:
        scan_over_tables_that_go, DoomedTableDeletedAtOnce;
}
