//! Golden scripts of tables with dictionaries: damage of one copy costs nothing, damage of both is
//! reported, and each table's blocks meet its own. They find the planted bug beside them.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use thermocline::{ByteSize, Compression, Db, Preset, Settings, Tier};
use thermocline_foundation::random::mix;
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::devices::World;
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
    let machine = Machine::new(World::new(1), 1);
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

#[test]
fn tables_have_dictionaries_of_their_own() {
    each_table_has_its_own();
}

#[test]
fn a_damaged_copy_of_each_dictionary_costs_no_record() {
    one_damaged_copy_costs_no_record();
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
