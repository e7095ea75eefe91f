//! Golden scripts of tables with dictionaries: damage of one copy costs nothing, damage of both is
//! reported, a power cut while they are made costs nothing, and each table's blocks meet its own.
//! They find the planted bug beside them.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use thermocline::{ByteSize, Compression, Db, Preset, Settings, Tier, WriteBatch};
use thermocline_foundation::random::{Random, mix};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::devices::{Loss, World};
use thermocline_simulation::history::TIERS;
use thermocline_simulation::machine::Machine;

const KEYS: u64 = 12_000;

fn settings() -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![Tier::new(TIERS[0], ByteSize::mib(256)).driver("memory")],
        memory: ByteSize::mib(256),
        table_size: ByteSize::kib(64),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::Zstd],
        dictionary_size: ByteSize(1024),
        // A flush is followed by a merge.
        level0_tables: 1,
        ..Settings::default()
    }
}

fn key(number: u64) -> String {
    format!("station/{number:08}")
}

/// Alike in shape; each tenth of the keys has names of its own for its fields.
fn value(number: u64) -> String {
    let (hash, kind) = (mix(number), number / (KEYS / 10));
    let word = mix(kind) % 100_000;
    format!(
        "{{\"depth{word}\":{},\"salt{word}\":{},\"by\":\"{:08x}\"}}",
        hash % 97,
        hash % 31,
        hash >> 32
    )
}

fn loaded() -> (Machine, Db) {
    loaded_by(1)
}

/// The order of background work follows from `seed`.
fn loaded_by(seed: u64) -> (Machine, Db) {
    let machine = Machine::new(World::new(seed), seed);
    let db = machine.create(&settings()).unwrap();
    // A bulk load closes its tables at `table_size`; a merge of so little makes one.
    let mut load = db.ingest();
    for number in 0..KEYS {
        load.add(key(number), value(number)).unwrap();
    }
    load.finish().unwrap();
    (machine, db)
}

/// Every record is right, and so many tables were found to have a dictionary.
fn read(db: &Db) -> u64 {
    for number in 0..KEYS {
        let found = db.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(value(number).as_bytes()), "record {number}");
    }
    let mut scan = db.scan().into_iter();
    for number in 0..KEYS {
        let (found, _) = scan.next().unwrap().unwrap();
        assert_eq!(found.as_ref(), key(number).as_bytes());
    }
    db.stats().levels.iter().map(|level| level.dictionaries).sum()
}

fn each_table_has_its_own() {
    let (machine, db) = loaded();
    let tables = read(&db);
    assert!(tables >= 3, "{tables} tables with a dictionary: {:?}", db.stats().levels);
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    // A copy has them, and so has what it is opened with again.
    let copy_home = Path::new("/copy");
    db.checkpoint(copy_home).unwrap();
    db.close().unwrap();
    let copy = machine.environment.open(copy_home).unwrap();
    assert_eq!(read(&copy), tables);
    copy.close().unwrap();
    assert_eq!(read(&machine.open().unwrap()), tables);
}

/// What a dictionary begins with, and so a table that has one.
const MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();

/// Writes wrong bytes over the first copy of each table's dictionary.
fn damage_first_copies(machine: &Machine) {
    machine.devices.meddle(|world| {
        let tier = Path::new(TIERS[0]);
        for (name, _) in world.list(tier) {
            if name.ends_with(".table") && world.bytes(tier, &name).starts_with(&MAGIC) {
                world.damage(tier, &name, 8, &[0x5a; 16]);
            }
        }
    });
}

fn one_damaged_copy_costs_no_record() {
    let (machine, db) = loaded();
    let tables = read(&db);
    db.close().unwrap();
    damage_first_copies(&machine);
    let db = machine.open().unwrap();
    assert_eq!(read(&db), tables);
    let problems = db.verify(&mut |_| {}).unwrap().problems;
    assert!(problems.len() as u64 >= tables, "verification does not tell: {problems:?}");
    // Rewriting the tables makes them whole.
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    read(&db);
}

/// A third of the records is written anew. The power goes before, while or after a merge writes
/// tables of them and of the others, and spares any of what is not durable yet.
fn a_power_cut_while_they_are_made_costs_no_record() {
    for seed in 1..9 {
        let (machine, db) = loaded_by(seed);
        let mut batch = WriteBatch::new();
        let is_new = |number: u64| number % 3 == seed % 3;
        // What another key of the same shape had.
        let newer = |number: u64| value((number + KEYS / 2) % KEYS);
        for number in (0..KEYS).filter(|number| is_new(*number)) {
            batch.put(key(number), newer(number));
        }
        db.write(batch).unwrap();
        let mut random = Random::new(seed);
        if seed > 1 {
            db.flush().unwrap();
        }
        for _ in 0..random.below(8) {
            machine.stepper.step();
        }
        let units = machine.devices.look(|world| world.units());
        let share = random.below(5);
        let kept: Vec<_> = units.iter().map(|_| random.below(4) < share).collect();
        let world = machine.devices.look(|world| world.after(Loss::Kept(&kept)));
        machine.kill(Some(db));

        let machine = Machine::new(world, seed);
        let db = machine.open().unwrap();
        db.settle().unwrap();
        for number in 0..KEYS {
            let right = if is_new(number) { newer(number) } else { value(number) };
            let found = db.get(key(number)).unwrap();
            assert_eq!(found.as_deref(), Some(right.as_bytes()), "seed {seed}, record {number}");
        }
        let report = db.verify(&mut |_| {}).unwrap();
        assert!(report.is_ok(), "seed {seed}: {:?}", report.problems);
        let tables: u64 = db.stats().levels.iter().map(|level| level.dictionaries).sum();
        assert!(tables >= 3, "seed {seed}: {tables} tables with a dictionary");
    }
}

#[test]
fn tables_have_dictionaries_of_their_own() {
    each_table_has_its_own();
}

#[test]
fn a_damaged_copy_of_each_dictionary_costs_no_record() {
    one_damaged_copy_costs_no_record();
}

#[test]
fn power_cuts_find_nothing() {
    a_power_cut_while_they_are_made_costs_no_record();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_scripts_find_what_is_planted() {
    let found =
        with(Planted::DictionaryOfOtherTable, || std::panic::catch_unwind(each_table_has_its_own));
    let panic = found.expect_err("a dictionary of another table is not found");
    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(text.contains("damaged"), "it is found by what was read: {text}");
}
