//! Speedb: a program in C and one in Java that link it as it was fetched; the shim brings the
//! plugin.

use super::super::rig::{Rig, Spread, output_of};
use super::super::{Outcome, SPEEDB, build, speedb};
use super::{brought_home, java, programs};
use std::path::Path;
use std::process::Command;

/// Builds the program, in an empty folder, and tries it.
fn with_program(
    rig: &Rig,
    attempt: impl FnOnce(&Path) -> Result<String, String>,
) -> Result<Outcome, String> {
    if let Some(missing) = build::missing(&SPEEDB) {
        return Ok(Outcome::Skipped(missing));
    }
    rig.begin()?;
    let program = rig.folder.join("from_c_test");
    build::c_program(&SPEEDB, "plugins/rocksdb/from_c_test.c", &program)?;
    attempt(&program).map(Outcome::Passed)
}

/// The program as it is, on the database's directory.
fn plain(rig: &Rig, program: &Path, what: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300"]).arg(program).arg(what).arg(rig.db());
    command
}

/// The same under the shim, over tiers of which the fast one has room for some of the tables.
fn tiered(rig: &Rig, program: &Path, what: &str) -> Command {
    let mut command = plain(rig, program, what);
    command.arg(rig.uri_with("16MiB")).env("LD_PRELOAD", rig.shim());
    command
}

/// Records with the plugin, without it and after an export; tables whose level is known.
pub fn calls(rig: &Rig) -> Result<Outcome, String> {
    with_program(rig, |program| {
        output_of(tiered(rig, program, "fill"))?;
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
        output_of(plain(rig, program, "expect"))?;
        output_of(tiered(rig, program, "expect"))?;
        brought_home(rig)?;
        let records = output_of(plain(rig, program, "expect"))?;
        destroyed(rig, program)?;
        Ok(format!(
            "tables: {linked_tables} on the fast tier, {plain_tables} at home, the level of all \
             {tables} known; {}, with the plugin, without it, and without the fast tier after \
             export; destroyed, nothing is left on the fast tier",
            records.trim().trim_start_matches("from_c_test: ")
        ))
    })
}

/// A new database over new tiers is destroyed whole.
fn destroyed(rig: &Rig, program: &Path) -> Result<(), String> {
    rig.begin()?;
    build::c_program(&SPEEDB, "plugins/rocksdb/from_c_test.c", program)?;
    output_of(tiered(rig, program, "fill"))?;
    output_of(tiered(rig, program, "destroy"))?;
    let left = programs::left_on_fast_tier(rig)?;
    match left.is_empty() && !rig.db().exists() {
        true => Ok(()),
        false => Err(format!("it left {} and, on the fast tier, {left:?}", rig.db().display())),
    }
}

/// Kills a writer again and again: every number that it was told of is there, no link dangles.
pub fn kills(rig: &Rig) -> Result<Outcome, String> {
    with_program(rig, |program| {
        let write = || {
            let mut writer = Command::new(program);
            writer.arg("write").arg(rig.db()).arg(rig.uri_with("16MiB"));
            writer.env("LD_PRELOAD", rig.shim());
            writer
        };
        programs::killed_again_and_again(rig, write, |acknowledged| {
            let mut verify = tiered(rig, program, "verify");
            verify.arg(acknowledged.to_string());
            output_of(verify).map(drop)
        })
    })
}

/// The program in Java.
pub fn java(rig: &Rig) -> Result<Outcome, String> {
    if let Some(missing) = build::missing(&SPEEDB) {
        return Ok(Outcome::Skipped(missing));
    }
    let package = speedb::PACKAGE;
    java::written_and_read(rig, &package.jar(), &package.path(), "libspeedbjni.so")
}
