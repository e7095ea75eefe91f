//! LevelDB: a program that knows nothing of tiers, put over them by the shim; one that attaches
//! the plugin itself.

use super::super::rig::{Rig, Spread, limited, output_of};
use super::super::{LEVELDB, Outcome, build};
use super::full::{Small, both_small, no_small, went_on};
use super::{brought_home, programs};
use std::path::Path;
use std::process::Command;

type Attempt = Result<Outcome, String>;

/// Builds the program that knows nothing of tiers, in an empty folder, and tries it.
fn with_program(rig: &Rig, attempt: impl FnOnce(&Path) -> Attempt) -> Attempt {
    if let Some(missing) = build::missing(&LEVELDB) {
        return Ok(Outcome::Skipped(missing));
    }
    rig.begin()?;
    let program = rig.folder.join("host_test");
    build::host_program(&LEVELDB, "plugins/leveldb/host_test.cc", None, &program)?;
    attempt(&program)
}

/// The program as it is, on the database's directory.
fn plain(rig: &Rig, program: &Path, what: &str) -> Command {
    let mut command = limited(program);
    command.arg(what).arg(rig.db());
    command
}

/// The same program under the shim.
fn tiered(rig: &Rig, program: &Path, what: &str) -> Command {
    over(rig, &rig.uri(), program, what)
}

fn over(rig: &Rig, uri: &str, program: &Path, what: &str) -> Command {
    let mut command = plain(rig, program, what);
    command.env("LD_PRELOAD", rig.shim()).env("THERMOCLINE_LEVELDB_URI", uri);
    command
}

fn said(command: Command) -> Result<String, String> {
    Ok(output_of(command)?.trim().trim_start_matches("host_test: ").to_owned())
}

/// Calls of the host, and records with the plugin, without it and after an export.
pub fn calls(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let called = said(tiered(rig, program, "calls"))?;
        let left = programs::left_on_fast_tier(rig)?;
        if !left.is_empty() || rig.db().exists() {
            return Err(format!("DestroyDB left {} and {left:?}", rig.db().display()));
        }
        let attached = attached(rig)?;
        output_of(tiered(rig, program, "fill"))?;
        let spread = rig.spread()?;
        let Spread { linked_tables, plain_tables, linked_logs, .. } = spread;
        if linked_tables == 0 || linked_logs == 0 || !spread.dangling.is_empty() {
            return Err(format!("tables and logs should lie on the fast tier: {spread:?}"));
        }
        output_of(tiered(rig, program, "expect"))?;
        output_of(plain(rig, program, "expect"))?;
        output_of(tiered(rig, program, "expect"))?;
        brought_home(rig)?;
        let records = said(plain(rig, program, "expect"))?;
        Ok(Outcome::Passed(format!(
            "{called}; {attached}; tables: {linked_tables} on the fast tier, {plain_tables} at \
             home; {records}, with the plugin, without it, and without the fast tier after export"
        )))
    })
}

/// A program that attaches the plugin, alone and under the shim; a URI that is refused.
fn attached(rig: &Rig) -> Result<String, String> {
    let program = rig.folder.join("attach_test");
    let source = "plugins/leveldb/attach_test.cc";
    build::host_program(&LEVELDB, source, Some(&rig.plugins), &program)?;
    let run = |name: &str| {
        let mut command = limited(&program);
        command.arg(rig.folder.join(name)).arg(rig.uri());
        command
    };
    let said = output_of(run("attached"))?;
    let mut both = run("attached-under-the-shim");
    both.env("LD_PRELOAD", rig.shim()).env("THERMOCLINE_LEVELDB_URI", rig.uri());
    output_of(both)?;
    Ok(said.trim().trim_start_matches("attach_test: ").to_owned())
}

/// The level of each table is known when it is made, or from the manifest soon after.
pub fn levels(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        refused(rig, program)?;
        output_of(tiered(rig, program, "fill"))?;
        let (tables, unknown) = (rig.figure("tables")?, rig.figure("tables_of_unknown_level")?);
        let corrected = rig.figure("corrected_levels")?;
        if tables == 0 || unknown > 0 {
            return Err(format!("of {tables} tables the level of {unknown} was not known"));
        }
        Ok(Outcome::Passed(format!(
            "all of {tables} tables from the log's lines; {corrected} moved to another level \
             later; a URI that is refused opens no database"
        )))
    })
}

/// A URI with a mistake keeps a database from being opened, and says why.
fn refused(rig: &Rig, program: &Path) -> Result<(), String> {
    let uri = rig.uri().replace("tier=home", "teir=home");
    match output_of(over(rig, &uri, program, "fill")) {
        Err(text) if text.contains("THERMOCLINE_LEVELDB_URI") && text.contains("teir") => Ok(()),
        Err(text) => Err(format!("a wrong URI was refused without its reason: {text}")),
        Ok(_) => Err("a wrong URI was taken".to_owned()),
    }
}

/// Tables move while they are open: reads follow them, and what they leave is closed.
pub fn moves(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        // Room for a part of level 2, so that tables go home.
        let uri = format!("{}&placement=room", rig.uri_with("12MiB"));
        let said = said(over(rig, &uri, program, "moves"))?;
        Ok(Outcome::Passed(format!("{said}; {} moves", rig.figure("moved_by_level")?)))
    })
}

/// Tables that are read much are read at their copies on the fast tier.
pub fn copies(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let uri = programs::read_from_fast(rig, "files");
        Ok(Outcome::Passed(said(over(rig, &uri, program, "copies"))?))
    })
}

/// Lives of a reader until the figures say what is expected.
const LIVES_MAX: u32 = 20;
/// Hits that no chance brings: a life of `again` reads 500 places many times.
const HITS: u64 = 1000;
/// Half of the places that a life of `once` reads; in it each is met for the first time.
const HITS_OF_EARLIER_LIVES: u64 = 250;

/// Records that are read again come from parts of tables on the fast tier; what one life kept the
/// next one begins with, and all records are as they were.
pub fn extents(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let uri = programs::read_from_fast(rig, "extents");
        output_of(over(rig, &uri, program, "fill"))?;
        let spread = rig.spread()?;
        if spread.linked_tables > 0 || spread.plain_tables == 0 {
            return Err(format!("all tables should lie at home: {spread:?}"));
        }
        let again = lives(rig, || over(rig, &uri, program, "again"), HITS)?;
        let admitted = rig.figure("admitted")?;
        let once = lives(rig, || over(rig, &uri, program, "once"), HITS_OF_EARLIER_LIVES)?;
        let (adopted, damaged) = (rig.figure("adopted")?, rig.figure("damaged")?);
        if admitted == 0 || adopted == 0 || damaged > 0 {
            return Err(format!("extents: {admitted} written, {adopted} kept, {damaged} damaged"));
        }
        output_of(over(rig, &uri, program, "expect"))?;
        let records = said(plain(rig, program, "expect"))?;
        Ok(Outcome::Passed(format!(
            "{again} hits of extents; {adopted} were there after a restart, which {once} first \
             reads hit; {records}, with the plugin and without it"
        )))
    })
}

/// Lets the reader live until one of its lives had so many hits; how many it had.
fn lives(rig: &Rig, life: impl Fn() -> Command, hits: u64) -> Result<u64, String> {
    let mut met = 0;
    for _ in 0..LIVES_MAX {
        output_of(life())?;
        met = rig.figure("hits")?;
        if met >= hits {
            return Ok(met);
        }
    }
    Err(format!("{met} hits of extents in the last of {LIVES_MAX} lives, not {hits}"))
}

/// Kills a writer again and again: every number that it was told of is there, no link dangles.
pub fn kills(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let write = || {
            let mut writer = Command::new(program);
            writer.arg("write").arg(rig.db()).env("LD_PRELOAD", rig.shim());
            writer.env("THERMOCLINE_LEVELDB_URI", rig.uri());
            writer
        };
        programs::killed_again_and_again(rig, write, |acknowledged| {
            let mut verify = tiered(rig, program, "verify");
            verify.arg(acknowledged.to_string());
            output_of(verify).map(drop)
        })
        .map(Outcome::Passed)
    })
}

/// A fast tier whose device is smaller than it was declared: the host hears nothing of it.
pub fn full(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let Some(_small) = Small::mount(rig) else { return Ok(no_small()) };
        let uri = rig.uri_with("1GiB");
        let overflowed = went_on(rig, "LevelDB", over(rig, &uri, program, "fill"))?;
        output_of(plain(rig, program, "expect"))?;
        let records = said(over(rig, &uri, program, "expect"))?;
        Ok(Outcome::Passed(format!(
            "12 MiB where 1 GiB was declared; {overflowed} files went on elsewhere; {records}"
        )))
    })
}

/// The devices of both tiers fill up: the host is told, and goes on once it is opened again.
pub fn room(rig: &Rig) -> Attempt {
    with_program(rig, |program| {
        let Some(_both) = both_small(rig)? else { return Ok(no_small()) };
        let mut room = over(rig, &rig.uri_with("1GiB"), program, "room");
        room.arg(rig.fast());
        Ok(Outcome::Passed(said(room)?))
    })
}
