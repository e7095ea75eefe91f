//! Programs that link RocksDB or a relative of it: what tools do not call, and kills.

use super::super::rig::{Rig, limited, output_of};
use super::super::{Outcome, ROCKSDB, ROCKSDB_11, Row, build};
use super::no_tools;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Eight, by a file system and by an environment.
const ENV_TEST_CASES: usize = 16;

/// A program and the tiers that it works over.
pub struct Program<'a> {
    rig: &'a Rig,
    path: PathBuf,
    /// It is not linked with the plugin, which the shim brings.
    has_shim: bool,
}

impl<'a> Program<'a> {
    /// Built in C++ and linked with the plugin, in an empty folder.
    pub fn linked(rig: &'a Rig, row: &Row) -> Result<Self, String> {
        rig.begin()?;
        let path = rig.folder.join("host_test");
        build::host_program(row, "plugins/rocksdb/host_test.cc", Some(&rig.plugins), &path)?;
        Ok(Self { rig, path, has_shim: false })
    }

    /// Built in C, linked with the host alone.
    pub fn shimmed(rig: &'a Rig, row: &Row) -> Result<Self, String> {
        rig.begin()?;
        let path = rig.folder.join("from_c_test");
        build::c_program(row, "plugins/rocksdb/from_c_test.c", &path)?;
        Ok(Self { rig, path, has_shim: true })
    }

    /// It does `what` over the tiers of a URI.
    pub fn over(&self, uri: &str, what: &str) -> Command {
        let mut command = limited(&self.path);
        command.arg(what).arg(self.rig.db()).arg(uri);
        if self.has_shim {
            command.env("LD_PRELOAD", self.rig.shim());
        }
        command
    }

    /// As it is, without tiers.
    pub fn plain(&self, what: &str) -> Command {
        let mut command = limited(&self.path);
        command.arg(what).arg(self.rig.db());
        command
    }

    /// A writer, which is to be killed: it has no other process above it.
    fn writer(&self, uri: &str) -> Command {
        let mut writer = Command::new(&self.path);
        writer.arg("write").arg(self.rig.db()).arg(uri);
        if self.has_shim {
            writer.env("LD_PRELOAD", self.rig.shim());
        }
        writer
    }

    /// Runs `command`; the lines of its output that begin with the program's name.
    pub fn said(&self, command: Command) -> Result<String, String> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned() + ": ";
        let said = output_of(command)?;
        let lines: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix(&name)).collect();
        Ok(lines.join("; "))
    }
}

/// RocksDB 7.8.3 is tried by a program that is linked with the plugin.
fn with_rocksdb(
    rig: &Rig,
    attempt: impl FnOnce(&Program<'_>) -> Result<String, String>,
) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    attempt(&Program::linked(rig, &ROCKSDB)?).map(Outcome::Passed)
}

/// Checkpoint, backup, ingestion and destruction; nothing is left on the fast tier.
pub fn calls(rig: &Rig) -> Result<Outcome, String> {
    with_rocksdb(rig, linked_calls)
}

fn linked_calls(program: &Program<'_>) -> Result<String, String> {
    let from_c = program.said(program.over(&program.rig.uri(), "from-c"))?;
    Ok(format!("{from_c}; {}", calls_of(program)?))
}

pub fn calls_of(program: &Program<'_>) -> Result<String, String> {
    let rig = program.rig;
    let said = program.said(program.over(&rig.uri(), "calls"))?;
    let left = left_on_fast_tier(rig)?;
    if !left.is_empty() || rig.db().exists() {
        return Err(format!(
            "DestroyDB left {} and, on the fast tier, {left:?}",
            rig.db().display()
        ));
    }
    Ok(format!("{said}; nothing is left on the fast tier"))
}

/// Files move while they are open: reads follow them, and what they leave is closed.
pub fn moves(rig: &Rig) -> Result<Outcome, String> {
    with_rocksdb(rig, moves_of)
}

pub fn moves_of(program: &Program<'_>) -> Result<String, String> {
    program.said(program.over(&program.rig.uri(), "moves"))
}

/// Tables that are read much are read at their copies on the fast tier.
pub fn copies(rig: &Rig) -> Result<Outcome, String> {
    with_rocksdb(rig, copies_of)
}

fn copies_of(program: &Program<'_>) -> Result<String, String> {
    program.said(program.over(&read_from_fast(program.rig, "files"), "copies"))
}

/// Records that are read again come from parts of tables on the fast tier, also after a restart and
/// where several are read at once.
pub fn extents(rig: &Rig) -> Result<Outcome, String> {
    with_rocksdb(rig, extents_of)
}

pub fn extents_of(program: &Program<'_>) -> Result<String, String> {
    program.said(program.over(&read_from_fast(program.rig, "extents"), "extents"))
}

/// The URI of tiers whose fast one has logs, and what is kept of the tables that are read.
pub fn read_from_fast(rig: &Rig, cache: &str) -> String {
    format!("{}&placement=log_only&cache={cache}", rig.uri_with("512MiB"))
}

/// The same program with the newest RocksDB.
pub fn rocksdb_11(rig: &Rig) -> Result<Outcome, String> {
    if let Some(missing) = build::missing(&ROCKSDB_11) {
        return Ok(Outcome::Skipped(missing));
    }
    let program = Program::linked(rig, &ROCKSDB_11)?;
    let mut said = Vec::new();
    // The last one leaves its records, which the killed writers find.
    for part in [linked_calls, copies_of, extents_of, moves_of] {
        said.push(part(&program)?);
    }
    said.push(kills_of(&program, &rig.uri(), || Ok(()))?);
    Ok(Outcome::Passed(said.join("; ")))
}

/// RocksDB's own test of an environment over the tiers, by a file system and by an environment,
/// with files that lie at home and with files that lie on the fast tier.
pub fn env_tests(rig: &Rig) -> Result<Outcome, String> {
    let missing = build::missing(&ROCKSDB_11).or_else(crate::rivals::missing_for_programs);
    if let Some(missing) = missing {
        return Ok(Outcome::Skipped(missing));
    }
    let mut said = Vec::new();
    for program in crate::rivals::env_tests()? {
        rig.begin()?;
        let mut test = limited(&program);
        test.arg("--gtest_filter=CustomEnv/*");
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

/// The cases of that test for hosts that it does not come with, asked of the host's own environment
/// and of the one over the tiers.
pub fn env_cases(rig: &Rig, row: &Row) -> Result<Outcome, String> {
    if let Some(missing) = build::missing(row) {
        return Ok(Outcome::Skipped(missing));
    }
    rig.begin()?;
    let program = rig.folder.join("env_test");
    let source = format!("plugins/{}/env_test.cc", row.folder);
    build::host_program(row, &source, Some(&rig.plugins), &program)?;
    let cases = |uri: Option<String>| {
        let mut test = limited(&program);
        test.arg(rig.db()).args(uri);
        output_of(test)
    };
    cases(None).map_err(|error| format!("without tiers: {error}"))?;
    let said = cases(Some(rig.uri()))?;
    let left = left_on_fast_tier(rig)?;
    match left.is_empty() && !rig.db().exists() {
        true => Ok(Outcome::Passed(said.trim().trim_start_matches("env_test: ").to_owned())),
        false => Err(format!("it left {} and, on the fast tier, {left:?}", rig.db().display())),
    }
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
    with_rocksdb(rig, |program| {
        kills_of(program, &rig.uri(), || {
            output_of(rig.tiered("ldb", &["checkconsistency"])).map(drop)
        })
    })
}

/// With a check after each kill, before the program verifies.
pub fn kills_of(
    program: &Program<'_>,
    uri: &str,
    check: impl Fn() -> Result<(), String>,
) -> Result<String, String> {
    killed_again_and_again(
        program.rig,
        || program.writer(uri),
        |acknowledged| {
            check()?;
            let mut verify = program.over(uri, "verify");
            verify.arg(acknowledged.to_string());
            output_of(verify).map(drop)
        },
    )
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
