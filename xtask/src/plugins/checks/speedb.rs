//! Speedb: a program in C and one in Java that link it as it was fetched; the shim brings the
//! plugin. The checks are those of RocksDB.

use super::super::rig::{Rig, Spread, output_of};
use super::super::{Outcome, SPEEDB, build, speedb};
use super::full::{self, Small, no_small, went_on};
use super::programs::{self, Program};
use super::{brought_home, java};

type Attempt = Result<Outcome, String>;

/// Builds the program, in an empty folder, and tries it.
fn with_program(rig: &Rig, attempt: impl FnOnce(&Program<'_>) -> Attempt) -> Attempt {
    match build::missing(&SPEEDB) {
        Some(missing) => Ok(Outcome::Skipped(missing)),
        None => attempt(&Program::shimmed(rig, &SPEEDB)?),
    }
}

/// Tiers of which the fast one has room for some of the tables.
fn uri(rig: &Rig) -> String {
    rig.uri_with("16MiB")
}

/// Records with the plugin, without it and after an export; tables whose level is known; what the
/// host calls besides.
pub fn calls(rig: &Rig) -> Attempt {
    let records = with_program(rig, |program| {
        output_of(program.over(&uri(rig), "fill"))?;
        let spread = rig.spread()?;
        let Spread { linked_tables, plain_tables, linked_logs, .. } = spread;
        let on_both = linked_tables > 0 && plain_tables > 0 && linked_logs > 0;
        if !on_both || !spread.dangling.is_empty() {
            return Err(format!("files should lie on both tiers: {spread:?}"));
        }
        let (tables, unknown) = (rig.figure("tables")?, rig.figure("tables_of_unknown_level")?);
        if tables == 0 || unknown > 0 {
            return Err(format!("of {tables} tables the level of {unknown} was not known"));
        }
        output_of(program.plain("expect"))?;
        output_of(program.over(&uri(rig), "expect"))?;
        brought_home(rig)?;
        let records = program.said(program.plain("expect"))?;
        Ok(Outcome::Passed(format!(
            "tables: {linked_tables} on the fast tier, {plain_tables} at home, the level of all \
             {tables} known; {records}, with the plugin, without it, and without the fast tier \
             after export"
        )))
    })?;
    let Outcome::Passed(records) = records else { return Ok(records) };
    // Over new tiers.
    with_program(rig, |program| {
        let called = programs::calls_of(program)?;
        Ok(Outcome::Passed(format!("{records}; {called}")))
    })
}

/// Files move while they are open: reads follow them, and what they leave is closed.
pub fn moves(rig: &Rig) -> Attempt {
    with_program(rig, |program| programs::moves_of(program).map(Outcome::Passed))
}

/// Records that are read again come from parts of tables on the fast tier.
pub fn extents(rig: &Rig) -> Attempt {
    with_program(rig, |program| programs::extents_of(program).map(Outcome::Passed))
}

/// A fast tier whose device is smaller than it was declared: the host hears nothing of it.
pub fn full(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let Some(_small) = Small::mount(rig) else { return Ok(no_small()) };
        let uri = rig.uri_with("1GiB");
        let overflowed = went_on(rig, "Speedb", program.over(&uri, "fill"))?;
        output_of(program.plain("expect"))?;
        let records = program.said(program.over(&uri, "expect"))?;
        Ok(Outcome::Passed(format!(
            "12 MiB where 1 GiB was declared; {overflowed} files went on elsewhere; {records}"
        )))
    })
}

/// The devices of both tiers fill up.
pub fn room(rig: &Rig) -> Attempt {
    with_program(rig, |program| full::room_of(rig, program))
}

/// Kills a writer again and again: every number that it was told of is there, no link dangles.
pub fn kills(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        programs::kills_of(program, &uri(rig), || Ok(())).map(Outcome::Passed)
    })
}

/// The program in Java.
pub fn java(rig: &Rig) -> Attempt {
    if let Some(missing) = build::missing(&SPEEDB) {
        return Ok(Outcome::Skipped(missing));
    }
    let package = speedb::PACKAGE;
    java::written_and_read(rig, &package.jar(), &package.path(), "libspeedbjni.so")
}
