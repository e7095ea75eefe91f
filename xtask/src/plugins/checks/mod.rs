//! What is tried: the taps alone, then stock tools over two directories as tiers.

mod full;
mod java;
mod leveldb;
mod programs;
mod rows;
mod speedb;

use super::rig::{Records, Rig, Spread, output_of, scan};
use super::{LEVELDB, Outcome, ROCKSDB, build};

type Check = fn(&Rig) -> Result<Outcome, String>;

/// Which checks run, and how often the one kills that kills.
pub struct Choice {
    names: Vec<String>,
    pub kills: u32,
}

impl Choice {
    pub fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut choice = Self { names: Vec::new(), kills: 6 };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if *word == "--kills" {
                let number = words.next().and_then(|number| number.parse().ok());
                choice.kills = number.ok_or("--kills needs a number")?;
            } else if all().iter().any(|(name, _)| name == word) {
                choice.names.push((*word).to_owned());
            } else {
                let names: Vec<&str> = all().iter().map(|(name, _)| *name).collect();
                return Err(format!("there is no check '{word}'; there are {}", names.join(", ")));
            }
        }
        Ok(choice)
    }

    pub fn includes(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|chosen| chosen == name)
    }
}

pub fn all() -> Vec<(&'static str, Check)> {
    vec![
        ("taps", taps as Check),
        ("children", children),
        ("tools", tools),
        ("rows", rows::all),
        ("levels", levels),
        ("env", |rig| programs::env_cases(rig, &ROCKSDB)),
        ("calls", programs::calls),
        ("moves", programs::moves),
        ("copies", programs::copies),
        ("extents", programs::extents),
        ("kills", programs::kills),
        ("full", full::device),
        ("room", full::devices),
        ("export", export),
        ("rocksdb-11", programs::rocksdb_11),
        ("rocksdb-env", programs::env_tests),
        ("java", java::program),
        ("speedb", speedb::calls),
        ("speedb-moves", speedb::moves),
        ("speedb-extents", speedb::extents),
        ("speedb-kills", speedb::kills),
        ("speedb-full", speedb::full),
        ("speedb-room", speedb::room),
        ("speedb-java", speedb::java),
        ("leveldb", leveldb::calls),
        ("leveldb-env", |rig| programs::env_cases(rig, &LEVELDB)),
        ("leveldb-levels", leveldb::levels),
        ("leveldb-moves", leveldb::moves),
        ("leveldb-copies", leveldb::copies),
        ("leveldb-extents", leveldb::extents),
        ("leveldb-kills", leveldb::kills),
        ("leveldb-full", leveldb::full),
        ("leveldb-room", leveldb::room),
    ]
}

/// Small tables, so that a small database has three levels.
pub const SMALL: [&str; 6] = [
    "--value_size=400",
    "--write_buffer_size=1048576",
    "--target_file_size_base=1048576",
    "--max_bytes_for_level_base=4194304",
    "--max_bytes_for_level_multiplier=4",
    "--compression_type=none",
];

/// The pure parts, as C++ programs of their own.
fn taps(rig: &Rig) -> Result<Outcome, String> {
    rig.begin()?;
    let tests = ["taps_test.cc", "any_bytes_test.cc"];
    let taps = [&tests[..], &["leveldb_lines.cc", "log_lines.cc", "manifest.cc"]].concat();
    let taps: Vec<String> = taps.iter().map(|file| format!("plugins/taps/{file}")).collect();
    let taps: Vec<&str> = taps.iter().map(String::as_str).collect();
    let sanitized = build::sanitizers(&rig.folder);
    let rows = [
        ("taps", &taps[..]),
        ("current_file", &["plugins/tiers/current_file_test.cc"]),
        ("file_reads", &["plugins/tiers/file_reads_test.cc"]),
    ];
    let mut said = Vec::new();
    for (name, sources) in rows {
        let program = rig.folder.join(name);
        build::program(sources, &sanitized, &program)?;
        said.push(output_of(std::process::Command::new(&program))?.trim().to_owned());
    }
    let memory = if sanitized.is_empty() { "not checked" } else { "checked" };
    Ok(Outcome::Passed(format!("{}; memory is {memory} by the compiler", said.join("; "))))
}

/// Why a check that needs the host's tools cannot run here.
pub fn no_tools() -> Option<Outcome> {
    build::missing(&ROCKSDB).map(Outcome::Skipped)
}

/// The shim in a process without RocksDB.
fn children(rig: &Rig) -> Result<Outcome, String> {
    rig.begin()?;
    let shim = rig.folder.join("libthermocline_preload.so");
    build::preloaded(&shim)?;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ls / | wc -l"]).env("LD_PRELOAD", shim);
    let said = output_of(shell)?;
    // A shim that cannot be loaded is a line of the loader before the number.
    match said.trim().parse::<u32>() {
        Ok(_) => Ok(Outcome::Passed("programs without RocksDB run beside the shim".to_owned())),
        Err(_) => Err(format!("a shell beside the shim said: {said}")),
    }
}

/// Stock tools write, read and check over the tiers; then without the plugin.
fn tools(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    rig.begin()?;
    let write = ["--benchmarks=fillrandom,overwrite,readrandom,readseq", "--num=100000"];
    output_of(rig.tiered("db_bench", &[&SMALL[..], &write].concat()))?;
    let spread = rig.spread()?;
    let Spread { linked_tables, plain_tables, linked_logs, .. } = spread;
    if linked_tables == 0 || plain_tables == 0 || linked_logs == 0 || !spread.dangling.is_empty() {
        return Err(format!("files should lie on both tiers: {spread:?}"));
    }
    let records = same_records(rig, None)?;
    for is_tiered in [true, false] {
        whole_tables(rig, is_tiered)?;
    }
    let again = ["--use_existing_db=1", "--benchmarks=readrandom,readseq,compact,stats"];
    let again = [&SMALL[..], &again, &["--num=100000", "--seed=7"]].concat();
    let found = rows::found(&output_of(rig.tiered("db_bench", &again))?);
    same_records(rig, Some(&records))?;
    let plain = rows::found(&output_of(rig.plain("db_bench", &again))?);
    same_records(rig, Some(&records))?;
    if found.is_empty() || found != plain {
        return Err(format!("readrandom: {found:?} over the tiers, {plain:?} without the plugin"));
    }
    Ok(Outcome::Passed(format!(
        "tables: {linked_tables} on the fast tier, {plain_tables} at home, whole by sst_dump; {} \
         records, the same with the plugin and without, also after a compaction by each; {}",
        records.count,
        found.join(", ")
    )))
}

/// Every table is whole by `sst_dump`: its blocks, and its records one after another.
fn whole_tables(rig: &Rig, is_tiered: bool) -> Result<usize, String> {
    let spread = rig.spread()?;
    let tables = spread.linked_tables + spread.plain_tables;
    // An error is a line that begins with the table's path, and the tool goes on.
    let db = rig.db().display().to_string();
    for (command, whole) in [("verify", "The file is ok"), ("check", "Process ")] {
        let said = output_of(rig.sst_dump(is_tiered, command))?;
        let count = said.lines().filter(|line| line.starts_with(whole)).count();
        let wrong = said.lines().find(|line| line.starts_with(&db));
        if tables == 0 || count != tables || wrong.is_some() {
            return Err(format!(
                "sst_dump {command}, with the plugin: {is_tiered}: {count} of {tables} tables are \
                 whole; {wrong:?}"
            ));
        }
    }
    Ok(tables)
}

/// The level of each table is known when it is made, also in the threads of a compaction's parts.
fn levels(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    rig.begin()?;
    let write = ["--benchmarks=fillrandom,overwrite", "--num=100000", "--subcompactions=4"];
    output_of(rig.tiered("db_bench", &[&SMALL[..], &write].concat()))?;
    let (tables, unknown) = (rig.figure("tables")?, rig.figure("tables_of_unknown_level")?);
    let corrected = rig.figure("corrected_levels")?;
    if tables == 0 || unknown > 0 {
        return Err(format!("of {tables} tables the level of {unknown} was not known"));
    }
    Ok(Outcome::Passed(format!(
        "all of {tables} tables from the log's lines alone, with 4 subcompactions; {corrected} \
         moved to another level later"
    )))
}

/// The records, which must be the same with the plugin and without, and as they were.
pub fn same_records(rig: &Rig, expected: Option<&Records>) -> Result<Records, String> {
    consistent(rig.tiered("ldb", &["checkconsistency"]))?;
    consistent(rig.plain("ldb", &["checkconsistency"]))?;
    let tiered = scan(rig.tiered("ldb", &[]))?;
    let plain = scan(rig.plain("ldb", &[]))?;
    if tiered.count == 0 || tiered != plain || expected.is_some_and(|records| *records != plain) {
        return Err(format!(
            "records: {tiered:?} over the tiers, {plain:?} without the plugin, {expected:?} before"
        ));
    }
    Ok(tiered)
}

/// Everything is brought home, after which the database needs neither tiers nor the plugin.
fn export(rig: &Rig) -> Result<Outcome, String> {
    if let Some(skipped) = no_tools() {
        return Ok(skipped);
    }
    rig.begin()?;
    let write = ["--benchmarks=fillrandom,overwrite", "--num=50000"];
    output_of(rig.tiered("db_bench", &[&SMALL[..], &write].concat()))?;
    let before = same_records(rig, None)?;
    let read = ["--use_existing_db=1", "--num=50000", "--seed=7", rows::READS];
    let read = [&SMALL[..], &read].concat();
    let found_before = rows::found(&output_of(rig.tiered("db_bench", &read))?);
    brought_home(rig)?;
    consistent(rig.plain("ldb", &["checkconsistency"]))?;
    let after = scan(rig.plain("ldb", &[]))?;
    let tables = whole_tables(rig, false)?;
    let found_after = rows::found(&output_of(rig.plain("db_bench", &read))?);
    if before != after || found_before != found_after {
        return Err(format!(
            "{before:?} and {found_before:?} before, {after:?} and {found_after:?} after"
        ));
    }
    Ok(Outcome::Passed(format!(
        "{} records and {tables} whole tables without the fast tier; db_bench finds the same",
        after.count
    )))
}

/// What `ldb checkconsistency` says.
fn consistent(command: std::process::Command) -> Result<(), String> {
    let said = output_of(command)?;
    let is_so = said.lines().any(|line| line.trim() == "OK");
    is_so.then_some(()).ok_or_else(|| format!("ldb checkconsistency said: {said}"))
}

/// Exports the database, and removes the fast tier.
pub fn brought_home(rig: &Rig) -> Result<(), String> {
    let directory = rig.db().display().to_string();
    let export = ["run", "--quiet", "--package", "thermocline-cli", "--", "tiers", "export"];
    if !crate::cargo(&[&export[..], &[&directory]].concat(), &[]) {
        return Err("thermocline tiers export failed".to_owned());
    }
    let spread = rig.spread()?;
    if spread.linked_tables + spread.linked_logs > 0 {
        return Err(format!("links are left: {spread:?}"));
    }
    std::fs::remove_dir_all(rig.fast()).map_err(|error| format!("the fast tier: {error}"))
}
