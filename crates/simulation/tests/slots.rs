//! Golden scripts of the preset `hybrid`: what the simulation has found of records in slots, as
//! short histories that show it.
#![allow(clippy::unwrap_used)]

use parking_lot::RwLock;
use std::sync::Arc;
use thermocline::{Compression, Durability};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::campaign::crash_shape;
use thermocline_simulation::devices::{CallKind, Fault, FaultKind, Loss};
use thermocline_simulation::history::{
    Shape, Step, has_long_slabs, has_third_tier, is_hybrid, key, value, value_in_part_compressible,
};
use thermocline_simulation::life::{Life, Stop};
use thermocline_simulation::machine::Machine;
use thermocline_simulation::oracle::Known;

const SHAPE: Shape =
    Shape { steps: 0, keys: 64, crashes: false, reopens: false, large_values: false };

/// A test of each script, and one that each finds the bug beside it; `tests/planted.rs` lists these
/// as found here.
macro_rules! scripts {
    ($($test:ident: $script:ident, $bug:ident;)*) => {
        $(#[test]
        fn $test() {
            $script().unwrap();
        })*

        #[cfg(feature = "planted-bugs")]
        #[test]
        fn the_scripts_find_what_is_planted() {
            $({
                let found = with(Planted::$bug, || std::panic::catch_unwind($script));
                assert!(!matches!(found, Ok(Ok(()))), "{} is not found", stringify!($bug));
            })*
        }
    };
}

mod hazards;

/// A database of `seed` that begins to demote at these watermarks.
fn life(seed: u64, watermarks: (u32, u32)) -> Life {
    let mut life = planned_life(thermocline::ByteSize::mib(1), seed, watermarks);
    life.create().unwrap();
    life
}

/// A life whose database is not made yet.
fn planned_life(capacity: thermocline::ByteSize, seed: u64, (high, low): (u32, u32)) -> Life {
    assert!(is_hybrid(seed));
    let mut life = Life::new(seed, &SHAPE, Arc::new(RwLock::new(Known::new(SHAPE.keys))));
    life.settings.tiers[0].capacity = capacity;
    life.settings.memory = thermocline::ByteSize::mib(1);
    // What the log takes of the fast tier is the same for all seeds.
    life.settings.log_writes = 1;
    life.settings.hybrid.high_watermark_percent = high;
    life.experiments.low_watermark_percent = Some(low);
    life
}

fn put(number: u64, step: usize, len: usize) -> Step {
    let key = key(number);
    let value = value(&key, step, len, false);
    Step::Write(vec![(key, Some(value))], Durability::Buffered)
}

/// A record of so many bytes under each of some keys.
fn put_each(
    life: &mut Life,
    mut numbers: impl Iterator<Item = u64>,
    step: usize,
    len: usize,
) -> Result<(), Stop> {
    numbers.try_for_each(|number| life.step(&put(number, step, len)))
}

/// A record in a slab of each of many sizes, until there is no room for another slab.
fn fill(life: &mut Life) {
    for number in 0..SHAPE.keys {
        let fast = life.db().stats().fast_tier.unwrap();
        if fast.slab_bytes + (64 << 10) > fast.limit_bytes {
            return;
        }
        life.step(&put(number, 1, 40 << (number % 7))).unwrap();
        life.step(&put(number, 2, 30 << (number % 7))).unwrap();
        life.step(&Step::Flush).unwrap();
    }
}

/// A checkpoint kept all slots from being given away while it still waited for a flush, which
/// waited for a slot: for ever.
#[test]
fn a_checkpoint_on_a_full_fast_tier_ends() {
    for seed in [4, 8, 12, 16] {
        let mut life = life(seed, (98, 95));
        fill(&mut life);
        for number in 0..4 {
            life.step(&put(number, 3, 60_000)).unwrap();
            life.step(&Step::Checkpoint).unwrap();
            life.check_all().unwrap();
        }
    }
}

/// Where nothing could leave, demotions of nothing went on for ever, and a flush that waited for
/// room never heard that there would be none.
#[test]
fn a_flush_goes_on_where_nothing_can_leave() {
    for seed in [4, 8, 12, 16] {
        let mut life = life(seed, (15, 8));
        for number in 0..40 {
            life.step(&put(number, 1, 40 * number as usize)).unwrap();
        }
        life.step(&Step::Compact).unwrap();
        life.step(&put(2, 2, 30_000)).unwrap();
        life.step(&Step::Flush).unwrap();
        life.check_all().unwrap();
    }
}

/// A memtable had two versions of a key, for a snapshot; the snapshot went while the flush waited
/// for room; then the version in a slot was freed twice, once for each.
#[test]
fn a_version_that_two_others_replace_is_freed_once() {
    for steps in 0..24 {
        let mut life = life(12, (98, 95));
        life.step(&put(63, 1, 500)).unwrap();
        fill(&mut life);
        (0..20).for_each(|_| life.step(&Step::Get(key(63))).unwrap());
        life.step(&put(63, 2, 500)).unwrap();
        life.step(&Step::Snapshot).unwrap();
        life.step(&put(63, 3, 500)).unwrap();
        put_each(&mut life, 40..47, 3, 13_000).unwrap();
        life.step(&Step::Background(steps)).unwrap();
        life.step(&Step::ReleaseSnapshot).unwrap();
        life.step(&Step::Flush).unwrap();
        life.check_all().unwrap();
    }
}

/// Errors, seed 8, item 1868: a piece of a memtable was durable in slots before the log's tail was;
/// a power cut left some of the later records and not all of the earlier ones.
#[test]
fn a_piece_of_a_flush_is_durable_after_its_log() {
    for steps in 0..24 {
        let mut life = life(12, (98, 95));
        // Neither the order of the keys nor the opposite is that of the writes.
        put_each(&mut life, (0..16).map(|number| number * 7 % 16), 1, 6_000).unwrap();
        life.step(&Step::Background(steps)).unwrap();
        let world = life.machine.devices.look(|world| world.after(Loss::All));
        life.restart(world, false).unwrap_or_else(|stop| panic!("after {steps} steps: {stop:?}"));
    }
}

/// What the suites do to such a seed is done to slabs of several lengths.
#[test]
fn where_the_fast_tier_has_room_slabs_grow() {
    for seed in [28, 60, 92] {
        assert!(has_long_slabs(seed));
        let shape = crash_shape(seed);
        let mut life = Life::new(seed, &shape, Arc::new(RwLock::new(Known::new(shape.keys))));
        // Packed, half of the values are a few bytes, and all fit into short ones.
        life.settings.hybrid.record_compression = Compression::None;
        life.run(&shape).unwrap();
        let classes = life.db().stats().fast_tier.unwrap().classes;
        // Eight slots are what the largest sizes have at the least.
        let many = classes.iter().filter(|class| class.slots > 8 * class.slabs);
        let bytes = many.map(|class| u64::from(class.slot_bytes) * class.slots / class.slabs);
        let longest = bytes.max();
        assert!(longest.unwrap() > 64 << 10, "{classes:?}");
    }
}

/// What the suites do to such a seed is done to tables of both tiers below the first.
#[test]
fn where_the_second_tier_is_full_tables_go_to_the_third() {
    for seed in [32, 36, 72, 116] {
        assert!(has_third_tier(seed));
        let shape = crash_shape(seed);
        let mut life = Life::new(seed, &shape, Arc::new(RwLock::new(Known::new(shape.keys))));
        life.run(&shape).unwrap();
        life.rest(shape.steps).unwrap();
        let levels = life.db().stats().levels;
        let bytes = levels.iter().map(|level| level.bytes_by_tier[2]).sum::<u64>();
        assert!(bytes > 0, "{levels:?}");
    }
}

/// A cursor is at the beginning of many records when they leave for tables.
fn cursor_over_departures() -> Result<(), Stop> {
    let mut life = life(12, (98, 95));
    put_each(&mut life, 0..SHAPE.keys, 1, 100)?;
    life.step(&Step::Flush)?;
    life.step(&Step::Cursor)?;
    life.step(&Step::Advance(2))?;
    life.step(&Step::Compact)?;
    life.step(&Step::Advance(SHAPE.keys as u32))
}

/// A slot is used again and the write of the new record is lost: the older one there is intact.
fn lost_write_of_a_used_slot() -> Result<(), Stop> {
    let before = |life: &mut Life| {
        for step in 1..3 {
            life.step(&put(1, step, 700))?;
            life.step(&Step::Flush)?;
        }
        life.step(&put(1, 3, 700))
    };
    let mut first = life(12, (98, 95));
    before(&mut first)?;
    first.machine.devices.record_made();
    let start = first.machine.devices.calls();
    first.step(&Step::Flush)?;
    let kinds = first.machine.devices.kinds();
    let writes = (0..kinds.len()).filter(|at| kinds[*at] == CallKind::Write);
    for at in writes {
        let mut life = life(12, (98, 95));
        before(&mut life)?;
        let fault = Fault { at: start + at as u64, sticky: false, kind: FaultKind::Lost };
        life.machine.devices.arm(Some(fault));
        life.step(&Step::Flush)?;
        let world = life.machine.devices.look(|world| world.after(Loss::None));
        let known = life.known.read().clone();
        life.kill();
        // It is refused, or all is there.
        if let Ok(db) = Machine::new(world, 1).open() {
            known.check_some_prefix(&db, known.acknowledged)?;
        }
    }
    Ok(())
}

/// Slabs of one size are nearly empty when another size wants their room: records move.
fn records_that_moved() -> Result<(), Stop> {
    records_that_move(Compression::None)
}

/// The same, of records that are packed.
fn packed_records_that_moved() -> Result<(), Stop> {
    records_that_move(Compression::Lz4)
}

fn records_that_move(record_compression: Compression) -> Result<(), Stop> {
    let mut life = planned_life(thermocline::ByteSize::kib(1280), 12, (98, 95));
    life.settings.hybrid.record_compression = record_compression;
    life.create()?;
    for key in (0..SHAPE.keys).map(key) {
        let value = match record_compression {
            Compression::None => value(&key, 1, 6_800, false),
            _ => value_in_part_compressible(&key, 1, 6_700),
        };
        life.step(&Step::Write(vec![(key, Some(value))], Durability::Buffered))?;
    }
    life.step(&Step::Flush)?;
    // Of each slab one record stays.
    put_each(&mut life, (0..SHAPE.keys).filter(|number| number % 8 != 3), 2, 40)?;
    life.step(&Step::Flush)?;
    for number in (0..SHAPE.keys).filter(|number| number % 8 != 3) {
        life.step(&put(number, 3, 3_000 + 40 * number as usize))?;
    }
    life.step(&Step::Flush)?;
    life.step(&Step::Settle)?;
    assert!(life.db().stats().fast_tier.unwrap().moved_records > 0);
    life.check_tidy()?;
    for step in 4..6 {
        life.step(&Step::Reopen)?;
        put_each(&mut life, 0..SHAPE.keys, step, 500)?;
        life.step(&Step::Compact)?;
    }
    life.step(&Step::Reopen)?;
    life.check_tidy()
}

/// A record was read from a table and offered; before it moves up it is replaced, and what replaced
/// it merged with it. In some order of background work the copy comes last.
fn replaced_while_offered(replace: fn(&mut Life) -> Result<(), Stop>) -> Result<(), Stop> {
    for seed in (4..200).step_by(4) {
        let mut life = life(seed, (98, 95));
        put_each(&mut life, 0..8, 1, 300)?;
        life.step(&Step::Compact)?;
        for number in (0..8).chain(0..8) {
            life.step(&Step::Get(key(number)))?;
        }
        replace(&mut life)?;
        life.step(&Step::Compact)?;
        life.step(&Step::Settle)?;
        life.check_all()?;
    }
    Ok(())
}

/// By tombstones, which the merge takes away.
fn deleted_while_offered() -> Result<(), Stop> {
    replaced_while_offered(|life| {
        let deletes = (0..8).map(|number| (key(number), None)).collect();
        life.step(&Step::Write(deletes, Durability::Buffered))
    })
}

/// By newer records.
fn overwritten_while_offered() -> Result<(), Stop> {
    replaced_while_offered(|life| put_each(life, 0..8, 2, 300))
}

/// A flush has a free slot for a newer version of a key, and none for an older one that a snapshot
/// sees, for it is longer: that one waits until records leave. The newer must not leave before it
/// has come.
fn versions_of_unlike_lengths() -> Result<(), Stop> {
    for seed in (4..44).step_by(4) {
        let mut life = life(seed, (98, 95));
        put_each(&mut life, 50..58, 1, 7_000)?;
        life.step(&Step::Flush)?;
        fill(&mut life);
        for number in 58..SHAPE.keys {
            let fast = life.db().stats().fast_tier.unwrap();
            if fast.slab_bytes + (16 << 10) <= fast.limit_bytes {
                life.step(&put(number, 1, 7_500))?;
                life.step(&Step::Flush)?;
            }
        }
        // Only the slots that these leave are free.
        put_each(&mut life, 50..58, 2, 30)?;
        life.step(&Step::Flush)?;
        life.step(&put(20, 3, 9_000))?;
        life.step(&Step::Snapshot)?;
        // A piece, of a 32nd of the slots' room, has three of these; a memtable has all of it.
        put_each(&mut life, 18..21, 4, 7_000)?;
        life.step(&Step::Flush)?;
        life.check_all()?;
    }
    Ok(())
}

/// Lengths change again and again on a full fast tier, so that slabs are emptied by moving their
/// records while some of these are on their way out.
fn records_that_move_while_they_leave() -> Result<(), Stop> {
    let mut moved = 0;
    for seed in (4..324).step_by(4) {
        let capacity = thermocline::ByteSize::kib(1376);
        let mut life = planned_life(capacity, seed, (98, 95));
        // One demotes while the other moves.
        life.settings.background_threads = 3;
        life.create()?;
        for (step, len) in [6_800, 3_000, 5_000, 700, 9_000, 40].repeat(2).into_iter().enumerate() {
            let numbers = (0..SHAPE.keys).map(|number| number * 7 % SHAPE.keys);
            // Of each slab one record stays.
            for number in numbers.filter(|number| (number + step as u64) % 8 != 3) {
                life.step(&put(number, step, len + 40 * number as usize))?;
                life.step(&Step::Get(key(number / 4)))?;
                life.step(&Step::Background(1))?;
            }
        }
        life.step(&Step::Settle)?;
        moved += life.db().stats().fast_tier.unwrap().moved_records;
        life.step(&Step::Reopen)?;
    }
    assert!(moved > 0);
    Ok(())
}

/// Copies of records are in memory only when a bulk load brings newer ones; then their range is
/// demoted.
fn bulk_load_over_copies() -> Result<(), Stop> {
    let mut life = planned_life(thermocline::ByteSize::mib(1), 12, (15, 8));
    life.experiments.promotion = Some(thermocline::Promotion::Read);
    life.create()?;
    put_each(&mut life, (0..64).step_by(2), 1, 300)?;
    life.step(&Step::Compact)?;
    for number in (0..32).chain(0..32) {
        life.step(&Step::Get(key(2 * number)))?;
    }
    life.step(&Step::Settle)?;
    assert!(life.db().stats().fast_tier.unwrap().memory_records > 0);
    let loaded = (0..32).map(|number| (key(2 * number), value(&key(2 * number), 2, 300, false)));
    life.step(&Step::Ingest(loaded.collect()))?;
    put_each(&mut life, (1..64).step_by(2), 3, 5_000)?;
    life.step(&Step::Settle)?;
    assert!(life.db().stats().fast_tier.unwrap().demoted_records > 0);
    life.check_all()
}

/// A life with copies of all tables' indexes, and records in tables.
fn life_with_index_copies() -> Result<Life, Stop> {
    let mut life = planned_life(thermocline::ByteSize::mib(1), 12, (98, 95));
    life.settings.hybrid.index_copies = thermocline::IndexCopies::Always;
    life.create()?;
    put_each(&mut life, 0..SHAPE.keys, 1, 300)?;
    life.step(&Step::Compact)?;
    Ok(life)
}

fn index_copies(life: &Life) -> u64 {
    life.db().stats().fast_tier.unwrap().index_copies
}

/// A bit of a copy of a table's index is flipped: a block does not match, and the table is read.
fn flipped_bit_of_an_index_copy() -> Result<(), Stop> {
    // Memory has nothing of the tables then, and the copies are not made yet.
    let before = || {
        let mut life = life_with_index_copies()?;
        life.step(&Step::Reopen)?;
        Ok::<_, Stop>(life)
    };
    let mut first = before()?;
    first.machine.devices.record_made();
    let start = first.machine.devices.calls();
    first.step(&Step::Settle)?;
    let kinds = first.machine.devices.kinds();
    let writes = (0..kinds.len()).filter(|at| kinds[*at] == CallKind::Write);
    assert!(index_copies(&first) > 0);
    // What else is written is a log that the store reads at the next opening only.
    let writes = writes.map(|at| start + at as u64);
    for (at, bit) in writes.flat_map(|at| (0..320).map(move |bit| (at, bit * 257))) {
        let mut life = before()?;
        let fault = Fault { at, sticky: false, kind: FaultKind::Flip(bit) };
        life.machine.devices.arm(Some(fault));
        life.step(&Step::Settle)?;
        life.machine.devices.arm(None);
        life.check_all()?;
    }
    Ok(())
}

/// Tables with copies of their indexes are merged into others.
fn copies_of_tables_that_go() -> Result<(), Stop> {
    let mut life = life_with_index_copies()?;
    for step in 2..5 {
        life.step(&Step::Settle)?;
        assert!(index_copies(&life) > 0);
        put_each(&mut life, 0..SHAPE.keys, step, 300)?;
        life.step(&Step::Compact)?;
    }
    life.check_all()?;
    life.check_tidy()
}

scripts! {
    a_record_that_is_deleted_while_it_waits_to_move_up_does_not_come_back:
        deleted_while_offered, StalePromotion;
    a_record_that_is_overwritten_while_it_waits_to_move_up_stays_overwritten:
        overwritten_while_offered, StalePromotion;
    an_older_version_does_not_come_after_the_newer_has_left:
        versions_of_unlike_lengths, PieceCutsVersions;
    a_record_that_moves_while_it_leaves_is_in_its_table_alone:
        records_that_move_while_they_leave, DemotionFreesOldSlot;
    a_bulk_load_is_found_when_copies_of_older_records_are_in_memory:
        bulk_load_over_copies, CopyStaysUnderIngest;
    a_cursor_sees_all_although_records_leave:
        cursor_over_departures, CursorMissesDepartures;
    a_lost_write_of_a_used_slot_is_noticed:
        lost_write_of_a_used_slot, SlotSumsNotCompared;
    records_that_moved_are_in_one_place:
        records_that_moved, MovedSlotNotFreed;
    packed_records_that_moved_are_still_packed:
        packed_records_that_moved, MovedSlotUnpacked;
    a_copy_of_an_index_with_a_flipped_bit_is_not_believed:
        flipped_bit_of_an_index_copy, IndexCopyNotChecked;
    a_copy_of_an_index_goes_with_its_table:
        copies_of_tables_that_go, IndexCopyOutlivesTable;
}
