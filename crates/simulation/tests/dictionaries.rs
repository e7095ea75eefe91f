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

type Outcome = Result<(), String>;

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

fn text(error: thermocline::Error) -> String {
    error.to_string()
}

fn loaded() -> Result<(Machine, Db), String> {
    let machine = Machine::new(World::new(1), 1);
    let db = machine.create(&settings()).map_err(text)?;
    for number in 0..KEYS {
        db.put(key(number), value(number)).map_err(text)?;
    }
    db.compact_range(None, None, &mut |_| {}).map_err(text)?;
    db.settle().map_err(text)?;
    Ok((machine, db))
}

/// Every record is right, and so many tables were found to have a dictionary.
fn read(db: &Db) -> Result<u64, String> {
    for number in 0..KEYS {
        let found = db.get(key(number)).map_err(text)?;
        if found.as_deref() != Some(value(number).as_bytes()) {
            return Err(format!("record {number} is not what was written"));
        }
    }
    let mut scan = db.scan(..).map_err(text)?;
    for number in 0..KEYS {
        let Some(record) = scan.next() else { return Err("a scan ends early".to_owned()) };
        let (found, _) = record.map_err(text)?;
        if found.as_ref() != key(number).as_bytes() {
            return Err(format!("a scan misses record {number}"));
        }
    }
    Ok(db.stats().levels.iter().map(|level| level.dictionaries).sum())
}

fn each_table_has_its_own() -> Outcome {
    let (machine, db) = loaded()?;
    let tables = read(&db)?;
    assert!(tables >= 3, "{tables} tables with a dictionary: {:?}", db.stats().levels);
    assert!(db.verify(&mut |_| {}).map_err(text)?.is_ok());
    // A copy has them, and so has what it is opened with again.
    let copy_home = Path::new("/copy");
    db.checkpoint(copy_home).map_err(text)?;
    db.close().map_err(text)?;
    let copy = machine.environment.open(copy_home).map_err(text)?;
    assert_eq!(read(&copy)?, tables);
    copy.close().map_err(text)?;
    assert_eq!(read(&machine.open().map_err(text)?)?, tables);
    Ok(())
}

/// Writes wrong bytes over the first page of each table, where its dictionary begins.
fn damage_first_pages(machine: &Machine) {
    machine.devices.meddle(|world| {
        let tier = Path::new(TIERS[0]);
        let tables: Vec<_> = world.list(tier).into_iter().collect();
        for (name, _) in tables.iter().filter(|(name, _)| name.ends_with(".table")) {
            world.damage(tier, name, 8, &[0x5a; 16]);
        }
    });
}

fn one_damaged_copy_costs_no_record() -> Outcome {
    let (machine, db) = loaded()?;
    let tables = read(&db)?;
    db.close().map_err(text)?;
    damage_first_pages(&machine);
    let db = machine.open().map_err(text)?;
    assert_eq!(read(&db)?, tables);
    let problems = db.verify(&mut |_| {}).map_err(text)?.problems;
    assert!(problems.len() as u64 >= tables, "verification does not tell: {problems:?}");
    // Rewriting the tables makes them whole.
    db.compact_range(None, None, &mut |_| {}).map_err(text)?;
    db.settle().map_err(text)?;
    read(&db).map(drop)
}

#[test]
fn tables_have_dictionaries_of_their_own() {
    each_table_has_its_own().unwrap();
}

#[test]
fn a_damaged_copy_of_each_dictionary_costs_no_record() {
    one_damaged_copy_costs_no_record().unwrap();
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_scripts_find_what_is_planted() {
    let found =
        with(Planted::DictionaryOfOtherTable, || std::panic::catch_unwind(each_table_has_its_own));
    assert!(!matches!(found, Ok(Ok(()))), "a dictionary of another table is not found");
}
