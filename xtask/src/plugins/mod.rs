//! `cargo xtask plugins`: what puts unmodified storage engines over tiers, built and tried.
//!
//! ```text
//! crates/capi          --cargo--> target/plugins/libthermocline.so.1
//! plugins/HOST,tiers,taps --g++-> target/plugins/libHOST_plugin-VERSION.so      one for each row
//! plugins/rocksdb,...     --g++-> target/plugins/libspeedb_plugin-2.8.0.so
//! plugins/preload      --gcc----> target/plugins/libthermocline_preload.so
//! ```
//!
//! Invariants:
//! 1. A row whose packages are not installed is skipped by name, with what to install: it is not a
//!    failure, and not a pass that says nothing.
//! 2. The tests use the host's stock tools as they are installed, with and without the plugin, on
//!    directories of their own below `target/plugins/test`.
//! 3. No check waits for ever: programs run under a limit of time.

mod build;
mod checks;
mod rig;
mod speedb;

use crate::root;
use std::path::{Path, PathBuf};

/// A host that plugins are built for.
pub struct Row {
    pub name: &'static str,
    /// The host, which the plugin's file name has.
    pub host: &'static str,
    /// The folder of the plugin's sources.
    pub folder: &'static str,
    /// Its version, which the plugin's file name has.
    pub version: &'static str,
    /// The header that says a version, the names of its numbers there, and what they should be.
    pub header: &'static str,
    pub numbers: &'static [&'static str],
    pub header_version: &'static str,
    /// The standard of C++ that its headers are written in, and what else they want.
    pub flags: &'static [&'static str],
    pub source: Source,
    /// How to get it.
    pub packages: &'static str,
}

/// Where headers and library come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The system; the linker calls the library by this name.
    System(&'static str),
    /// `cargo xtask plugins fetch`: the library of RocksDB's Java package, which the rivals have,
    /// too. Its plugin is linked to none, since a program brings the library under a name of its
    /// own.
    Rivals,
    /// The same of Speedb's.
    Speedb,
}

const ROCKSDB: Row = Row {
    name: "RocksDB 7.8.3",
    host: "rocksdb",
    folder: "rocksdb",
    version: "7.8.3",
    header: "rocksdb/version.h",
    numbers: &["ROCKSDB_MAJOR", "ROCKSDB_MINOR", "ROCKSDB_PATCH"],
    header_version: "7.8.3",
    flags: &["-std=c++17"],
    source: Source::System("-lrocksdb"),
    packages: "apt install librocksdb-dev=7.8.3-2 rocksdb-tools=7.8.3-2 g++",
};

const ROCKSDB_11: Row = Row {
    name: "RocksDB 11.8.1",
    version: "11.8.1",
    header_version: "11.8.1",
    flags: &["-std=c++20"],
    source: Source::Rivals,
    packages: "cargo xtask plugins fetch",
    ..ROCKSDB
};

/// Its library has the ABI of strings before C++11, and its headers do not describe its options.
const SPEEDB: Row = Row {
    name: "Speedb 2.8.0",
    host: "speedb",
    version: "2.8.0",
    header_version: "8.10.0",
    flags: &["-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-DTHERMOCLINE_WITHOUT_OPTIONS"],
    source: Source::Speedb,
    packages: "cargo xtask plugins fetch",
    ..ROCKSDB
};

const LEVELDB: Row = Row {
    name: "LevelDB 1.23",
    host: "leveldb",
    folder: "leveldb",
    version: "1.23",
    header: "leveldb/db.h",
    numbers: &["kMajorVersion", "kMinorVersion"],
    header_version: "1.23",
    flags: &["-std=c++17"],
    source: Source::System("-lleveldb"),
    packages: "apt install libleveldb-dev=1.23-4 g++",
};

const ROWS: [Row; 4] = [ROCKSDB, ROCKSDB_11, SPEEDB, LEVELDB];

impl Row {
    /// Its plugin.
    pub fn plugin(&self, folder: &Path) -> String {
        folder.join(format!("lib{}_plugin-{}.so", self.host, self.version)).display().to_string()
    }
}

const USAGE: &str = "\
xtask: say `cargo xtask plugins [build]` (builds all to target/plugins), `cargo xtask plugins
fetch` (gets RocksDB 11.8.1 and Speedb), `cargo xtask plugins without-hosts` (what `ci` tries)
or `cargo xtask plugins test [--kills N] [CHECK...]` (builds them, then tries them with stock
tools)";

/// What a check found.
pub enum Outcome {
    /// With what was seen.
    Passed(String),
    /// With what is missing.
    Skipped(String),
}

/// `cargo xtask plugins ...`: true where everything asked for passed or was skipped by name.
pub fn run(arguments: &[String]) -> bool {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["build"] => built(),
        ["without-hosts"] => tested_without_hosts(),
        ["fetch"] => fetched(),
        ["test", more @ ..] => checks::Choice::parse(more).map_or_else(
            |error| {
                eprintln!("xtask: {error}\n{USAGE}");
                false
            },
            |choice| built() && tested(&choice),
        ),
        _ => {
            eprintln!("{USAGE}");
            false
        }
    }
}

/// Gets the hosts that are in Java packages.
fn fetched() -> bool {
    let rocksdb = crate::rivals::fetch(&crate::rivals::ROCKSDB);
    let rocksdb = report(ROCKSDB_11.name, rocksdb.map(Outcome::Passed));
    report(SPEEDB.name, speedb::fetch().map(Outcome::Passed)) && rocksdb
}

/// Where everything is built to.
fn folder() -> PathBuf {
    build::target().join("plugins")
}

/// Builds those of the hosts that the benchmark has; what programs that load plugins themselves
/// have to find in their environment: the folder, and the shim, without which threads of a
/// compaction do not know its level.
pub fn for_programs() -> Vec<(&'static str, PathBuf)> {
    let folder = folder();
    if !rows_built(&[ROCKSDB_11, SPEEDB, LEVELDB]) {
        return Vec::new();
    }
    let shim = build::shim(&folder);
    vec![("THERMOCLINE_PLUGINS", folder), ("LD_PRELOAD", shim)]
}

fn built() -> bool {
    rows_built(&ROWS)
}

fn rows_built(rows: &[Row]) -> bool {
    let shared = report("libthermocline and the shim", build::shared(&folder()));
    let rows = rows.iter().map(|row| report(row.name, build::row(row, &folder())));
    rows.fold(shared, |all, passed| passed && all)
}

fn tested(choice: &checks::Choice) -> bool {
    let checks = checks::all().into_iter().filter(|(name, _)| choice.includes(name));
    checks.fold(true, |all, (name, check)| {
        report(name, check(&rig::Rig::new(&folder(), name, choice.kills))) && all
    })
}

/// What needs no host's packages: the taps, and the shim in a program without a host. Part of `ci`.
pub fn tested_without_hosts() -> bool {
    let rig = rig::Rig::new(&folder(), "without-hosts", 0);
    ["taps", "children"].iter().fold(true, |all, name| {
        let check = checks::all().into_iter().find(|(found, _)| found == name);
        let outcome = check.map_or_else(|| Err("it is gone".to_owned()), |(_, check)| check(&rig));
        report(name, outcome) && all
    })
}

/// What `torture plugin` runs, as its arguments: RocksDB's stress test, and the shim that puts it
/// over tiers. Built where they are not.
pub fn stress_programs() -> Result<Vec<String>, String> {
    let folder = folder();
    build::shared(&folder)?;
    if let Outcome::Skipped(missing) = build::row(&ROCKSDB_11, &folder)? {
        return Err(format!("{}: {missing}", ROCKSDB_11.name));
    }
    let program = crate::rivals::db_stress()?.display().to_string();
    let shim = build::shim(&folder).display().to_string();
    Ok(["--db-stress".to_owned(), program, "--shim".to_owned(), shim].to_vec())
}

fn report(name: &str, outcome: Result<Outcome, String>) -> bool {
    match outcome {
        Ok(Outcome::Passed(text)) => println!("plugins: {name}: passed: {text}"),
        Ok(Outcome::Skipped(text)) => println!("plugins: {name}: skipped: {text}"),
        Err(text) => {
            eprintln!("plugins: {name}: FAILED: {text}");
            return false;
        }
    }
    true
}
