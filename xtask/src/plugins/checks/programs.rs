//! A program of its own that links the plugin: what tools do not call, and kills.

use super::super::rig::{Rig, output_of};
use super::super::{Outcome, ROCKSDB, ROCKSDB_11, Row, build};
use super::no_tools;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Eight, by a file system and by an environment.
const ENV_TEST_CASES: usize = 16;

/// Builds the program, in an empty folder.
pub fn program(rig: &Rig, row: &Row) -> Result<PathBuf, String> {
    rig.begin()?;
    let program = rig.folder.join("host_test");
    build::host_program(row, "plugins/rocksdb/host_test.cc", Some(&rig.plugins), &program)?;
    Ok(program)
}

fn run(rig: &Rig, program: &Path, what: &str, more: &[String]) -> Command {
    over(rig, &rig.uri(), program, what, more)
}

pub fn over(rig: &Rig, uri: &str, program: &Path, what: &str, more: &[String]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "300"]).arg(program).arg(what).arg(rig.db()).arg(uri);
    command.args(more);
    command
}

/// Checkpoint, backup, ingestion and destruction; nothing is left on the fast tier.
pub fn calls(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    calls_of(rig, &program(rig, &ROCKSDB)?).map(Outcome::Passed)
}

fn calls_of(rig: &Rig, program: &Path) -> Result<String, String> {
    let said = output_of(run(rig, program, "calls", &[]))?;
    let said = said + &output_of(run(rig, program, "from-c", &[]))?;
    let left = left_on_fast_tier(rig)?;
    if !left.is_empty() || rig.db().exists() {
        return Err(format!(
            "DestroyDB left {} and, on the fast tier, {left:?}",
            rig.db().display()
        ));
    }
    let said: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("host_test: ")).collect();
    Ok(format!("{}; nothing is left on the fast tier", said.join("; ")))
}

/// Files move while they are open: reads follow them, and what they leave is closed.
pub fn moves(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    moves_of(rig, &program(rig, &ROCKSDB)?).map(Outcome::Passed)
}

fn moves_of(rig: &Rig, program: &Path) -> Result<String, String> {
    let said = output_of(run(rig, program, "moves", &[]))?;
    Ok(said.trim().trim_start_matches("host_test: ").to_owned())
}

/// Tables that are read much are read at their copies on the fast tier.
pub fn copies(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    copies_of(rig, &program(rig, &ROCKSDB)?).map(Outcome::Passed)
}

fn copies_of(rig: &Rig, program: &Path) -> Result<String, String> {
    let uri = format!("{}&placement=log_only&cache=files", rig.uri_with("512MiB"));
    let said = output_of(over(rig, &uri, program, "copies", &[]))?;
    Ok(said.trim().trim_start_matches("host_test: ").to_owned())
}

/// Records that are read again come from parts of tables on the fast tier, also after a restart and
/// where several are read at once.
pub fn extents(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    extents_of(rig, &program(rig, &ROCKSDB)?).map(Outcome::Passed)
}

fn extents_of(rig: &Rig, program: &Path) -> Result<String, String> {
    let uri = format!("{}&placement=log_only&cache=extents", rig.uri_with("512MiB"));
    let said = output_of(over(rig, &uri, program, "extents", &[]))?;
    let said: Vec<&str> =
        said.lines().filter_map(|line| line.strip_prefix("host_test: ")).collect();
    Ok(said.join("; "))
}

/// The same program with the newest RocksDB.
pub fn rocksdb_11(rig: &Rig) -> Result<Outcome, String> {
    if let Some(missing) = build::missing(&ROCKSDB_11) {
        return Ok(Outcome::Skipped(missing));
    }
    let program = program(rig, &ROCKSDB_11)?;
    let mut said = Vec::new();
    // The last one leaves its records, which the killed writers find.
    for part in [calls_of, copies_of, extents_of, moves_of] {
        said.push(part(rig, &program)?);
    }
    said.push(kills_of(rig, &program, || Ok(()))?);
    Ok(Outcome::Passed(said.join("; ")))
}

/// RocksDB's own test of an environment over the tiers, by a file system and by an environment,
/// with files that lie at home and with files that lie on the fast tier.
pub fn env_tests(rig: &Rig) -> Result<Outcome, String> {
    if let Some(missing) = build::missing(&ROCKSDB_11) {
        return Ok(Outcome::Skipped(missing));
    }
    let mut said = Vec::new();
    for program in crate::rivals::env_tests()? {
        rig.begin()?;
        let mut test = Command::new("timeout");
        test.args(["--signal=KILL", "300"]).arg(&program).arg("--gtest_filter=CustomEnv/*");
        test.env("LD_PRELOAD", rig.shim()).env("TEST_TMPDIR", &rig.folder);
        test.env("TEST_FS_URI", rig.uri()).env("TEST_ENV_URI", format!("id={{{}}}", rig.uri()));
        said.push(cases(&output_of(test)?, &program)?);
        let left = left_on_fast_tier(rig)?;
        if !left.is_empty() {
            return Err(format!("{} left {left:?} on the fast tier", program.display()));
        }
    }
    Ok(Outcome::Passed(said.join("; ")))
}

/// How many cases passed, out of what gtest printed; each is one of two URIs.
fn cases(printed: &str, program: &Path) -> Result<String, String> {
    let passed = printed.lines().filter(|line| line.starts_with("[       OK ]")).count();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    match passed {
        ENV_TEST_CASES => Ok(format!("{name}: {passed} cases")),
        _ => Err(format!("{name}: {passed} of {ENV_TEST_CASES} cases passed")),
    }
}

/// Files on the fast tier that are not its own.
pub fn left_on_fast_tier(rig: &Rig) -> Result<Vec<String>, String> {
    let own = ["TIER", "HOME", "PROFILE"];
    let files = files_below(&rig.fast())?;
    Ok(files.into_iter().filter(|name| !own.contains(&name.as_str())).collect())
}

fn files_below(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries.flatten() {
        match entry.path().is_dir() {
            true => files.extend(files_below(&entry.path())?),
            false => files.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    Ok(files)
}

/// Kills a writer again and again: every number that it was told of is there, no link dangles.
pub fn kills(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    kills_of(rig, &program(rig, &ROCKSDB)?, || {
        output_of(rig.tiered("ldb", &["checkconsistency"])).map(drop)
    })
    .map(Outcome::Passed)
}

fn kills_of(
    rig: &Rig,
    program: &Path,
    check: impl Fn() -> Result<(), String>,
) -> Result<String, String> {
    let write = || {
        let mut writer = Command::new(program);
        writer.arg("write").arg(rig.db()).arg(rig.uri());
        writer
    };
    killed_again_and_again(rig, write, |acknowledged| {
        check()?;
        output_of(run(rig, program, "verify", &[acknowledged.to_string()])).map(drop)
    })
}

/// Kills writers, and verifies after each what they were told of.
pub fn killed_again_and_again(
    rig: &Rig,
    write: impl Fn() -> Command,
    verify: impl Fn(u32) -> Result<(), String>,
) -> Result<String, String> {
    let mut acknowledged = 0;
    for kill in 0..rig.kills {
        // Times that differ, so that kills meet flushes, compactions and openings.
        let lives = Duration::from_millis(300 + u64::from(kill) * 137 % 900);
        acknowledged = acknowledged.max(killed(write(), lives)?);
        let spread = rig.spread()?;
        if !spread.dangling.is_empty() {
            return Err(format!("after kill {kill} links lead nowhere: {:?}", spread.dangling));
        }
        verify(acknowledged).map_err(|error| format!("after kill {kill}: {error}"))?;
    }
    let kills = rig.kills;
    if acknowledged == 0 {
        return Err(format!("no write was acknowledged in {kills} lives of the writer"));
    }
    Ok(format!("{kills} kills, {acknowledged} records in synced batches, all there"))
}

/// Lets a writer live that long; the writes that were acknowledged.
fn killed(mut writer: Command, lives: Duration) -> Result<u32, String> {
    let mut writer = writer
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the writer: {error}"))?;
    let printed = writer.stdout.take();
    let reader = std::thread::spawn(move || {
        let lines = printed.map(|printed| BufReader::new(printed).lines());
        lines.and_then(|lines| lines.map_while(Result::ok).last())
    });
    std::thread::sleep(lives);
    let ended = writer.try_wait().map_err(|error| error.to_string())?;
    writer.kill().and_then(|()| writer.wait()).map_err(|error| format!("kill: {error}"))?;
    if let Some(status) = ended {
        return Err(format!("the writer ended by itself with {status}"));
    }
    let last = reader.join().map_err(|_| "the reader of the writer's output failed")?;
    // Where the kill cut the last line, the one before counts: a shorter number claims less.
    Ok(last.and_then(|line| line.parse().ok()).unwrap_or(0))
}
