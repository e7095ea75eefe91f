//! Builds the plugins: the C interface by cargo, C++ and C by the system's compilers.

use super::{Outcome, Row, root};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WARNINGS: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];
/// Hosts are built without run-time types, and no exception may cross into one.
const CXX: [&str; 5] = ["-std=c++17", "-O2", "-fPIC", "-fno-rtti", "-fno-exceptions"];

/// The folder that cargo builds to.
pub fn target() -> PathBuf {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root().join("target"), PathBuf::from)
}

/// Runs a compiler or the like; what it said where it fails.
pub fn compile(program: &str, arguments: &[String]) -> Result<(), String> {
    let run = Command::new(program).args(arguments).current_dir(root()).output();
    let output = run.map_err(|error| {
        format!("cannot start {program}: {error}; apt install g++ brings the compilers")
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{program} said:\n{}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What is the same for all hosts.
pub fn shared(folder: &Path) -> Result<Outcome, String> {
    // Without the engine, of which a plugin needs nothing.
    let library = ["build", "--release", "--package", "thermocline-capi"];
    let features = ["--no-default-features", "--features", "device"];
    if !crate::cargo(&[&library[..], &features].concat(), &[]) {
        return Err("the C interface does not build".to_owned());
    }
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let from = target().join("release/libthermocline.so");
    let to = folder.join("libthermocline.so.1");
    // Removed first: a process that has it loaded keeps its own.
    let _ = fs::remove_file(&to);
    fs::copy(&from, &to).map_err(|error| format!("cannot copy {}: {error}", from.display()))?;
    let shim = folder.join("libthermocline_preload.so").display().to_string();
    let mut arguments = words(&["-std=c11", "-O2", "-fPIC", "-shared"]);
    arguments.extend(words(&WARNINGS));
    arguments.extend(words(&["plugins/preload/preload.c", "-o", &shim]));
    compile("gcc", &arguments)?;
    Ok(Outcome::Passed(format!("built to {}", folder.display())))
}

/// The plugin of one host.
pub fn row(row: &Row, folder: &Path) -> Result<Outcome, String> {
    if let Some(missing) = missing(row) {
        return Ok(Outcome::Skipped(missing));
    }
    let plugin = folder.join(format!("librocksdb_plugin-{}.so", row.version));
    let plugin = plugin.display().to_string();
    let mut arguments = words(&CXX);
    arguments.extend(words(&WARNINGS));
    arguments.extend(words(&[
        "-shared",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--no-undefined",
        "-o",
        &plugin,
    ]));
    arguments.push("-Icrates/capi/include".to_owned());
    arguments.extend(sources("plugins/taps")?);
    arguments.extend(sources("plugins/rocksdb")?);
    arguments.push("-lrocksdb".to_owned());
    arguments.push(folder.join("libthermocline.so.1").display().to_string());
    compile("g++", &arguments)?;
    Ok(Outcome::Passed(format!("built {plugin}")))
}

/// Why the row cannot be built or tried here.
pub fn missing(row: &Row) -> Option<String> {
    let headers = fs::read_to_string(row.headers).unwrap_or_default();
    let number = |name: &str| {
        let line = headers.lines().find(|line| line.starts_with(&format!("#define {name} ")))?;
        line.split_whitespace().nth(2)
    };
    let numbers = ["ROCKSDB_MAJOR", "ROCKSDB_MINOR", "ROCKSDB_PATCH"].map(number);
    match numbers {
        [Some(major), Some(minor), Some(patch)] => {
            let found = format!("{major}.{minor}.{patch}");
            let text = || format!("{} is version {found}; {}", row.headers, row.packages);
            (found != row.version).then(text)
        }
        _ => Some(format!("{} is not there; {}", row.headers, row.packages)),
    }
}

/// The sources of a folder, without tests.
fn sources(folder: &str) -> Result<Vec<String>, String> {
    let entries =
        fs::read_dir(root().join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_source = |name: &String| name.ends_with(".cc") && !name.ends_with("_test.cc");
    let mut sources: Vec<String> =
        names.filter(is_source).map(|name| format!("{folder}/{name}")).collect();
    sources.sort();
    Ok(sources)
}

/// Builds a test program from `sources` to `program`.
pub fn program(sources: &[&str], libraries: &[String], program: &Path) -> Result<(), String> {
    let mut arguments = words(&["-std=c++17", "-O1", "-g", "-pthread"]);
    arguments.extend(words(&WARNINGS));
    arguments.extend(words(&["-Icrates/capi/include", "-o", &program.display().to_string()]));
    arguments.extend(words(sources));
    arguments.extend(libraries.iter().cloned());
    compile("g++", &arguments)
}
