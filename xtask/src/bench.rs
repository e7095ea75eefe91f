//! `cargo xtask bench` and `cargo xtask rig`: the benchmark's program, built as it must be.
//!
//! A benchmark built without optimisation says nothing, so these commands always build the release
//! profile. The program that has the rivals in it is used where they can be built
//! (`cargo xtask rivals fetch`); otherwise the one that has only this store, which names each
//! rival that is missing and why.
//!
//! ```text
//! bench keigo ...     ->  plugins first; the program finds them by THERMOCLINE_PLUGINS
//! bench SCENARIO ...  ->  rivals/: thermocline-bench-rivals SCENARIO ...   (RocksDB is there)
//!                     ->  thermocline-bench SCENARIO ...                   (it is not)
//! rig ...             ->  thermocline-bench rig ...
//! ```

use crate::rivals::Found;
use crate::root;
use std::path::PathBuf;
use std::process::Command;

/// What `cargo xtask bench` knows, each with what it is.
const SCENARIOS: [(&str, &str); 14] = [
    ("quick", "every engine that is there, no root, under 3 minutes"),
    ("tiers", "the comparison over two tiers on the rig, under 40 minutes; needs root"),
    ("single", "leveled against RocksDB on one fast device; needs root"),
    ("full", "everything, hours; needs root"),
    ("prismdb", "the figures of PrismDB's evaluation, minutes each; needs root: [--figure 6]"),
    ("spandb", "the figures of SpanDB's evaluation beside RocksDB; needs root: [--quick] [--help]"),
    ("keigo", "the figures of Keigo's evaluation: RocksDB over tiers; needs root: [--help]"),
    ("mynvm", "the figures of MyNVM's evaluation: memory and a cache; needs root: [--help]"),
    ("slmdb", "the figures of SLM-DB's evaluation beside LevelDB, emulated; needs root: [--help]"),
    ("memory", "the most memory that is resident, by what the store does: [--row leveled/scans]"),
    ("values", "bytes a second by the size of values, 4 KiB to 256 MiB"),
    ("commit", "slots at once against a log first, on one fast device; needs root"),
    ("generator", "what the harness itself costs, by an engine that does nothing"),
    ("agree", "RocksDB in the harness against RocksDB's own db_bench: agree --dir DIR"),
];

/// `cargo xtask bench ...`.
pub fn bench(arguments: &[String]) -> bool {
    let known = |name: &String| SCENARIOS.iter().any(|(scenario, _)| scenario == name);
    let Some((scenario, more)) = arguments.split_first().filter(|(name, _)| known(name)) else {
        let asked = arguments.first().map_or("nothing", String::as_str);
        eprintln!("xtask: '{asked}' is not a benchmark; say one of");
        for (name, what) in SCENARIOS {
            eprintln!("  cargo xtask bench {name:<9} {what}");
        }
        return false;
    };
    let found = Found::look();
    if !found.rocksdb {
        eprintln!("rivals are left out: RocksDB is not there (cargo xtask rivals fetch)");
    }
    let mut command = vec![scenario.as_str()];
    let db_bench;
    if scenario == "agree" {
        db_bench = match crate::rivals::db_bench() {
            Ok(path) => path.display().to_string(),
            Err(reason) => {
                eprintln!("xtask: cannot build db_bench: {reason}");
                return false;
            }
        };
        command.extend(["--db-bench", &db_bench]);
    }
    command.extend(more.iter().map(String::as_str));
    let asks = more.iter().any(|word| word == "--help" || word == "-h");
    let environment = match scenario.as_str() {
        // Where there is no plugin, each row says so.
        "keigo" if !asks => crate::plugins::for_programs(),
        _ => Vec::new(),
    };
    program(found).is_some_and(|program| started_with(&program, &command, &environment))
}

/// `cargo xtask rig ...`.
pub fn rig(arguments: &[String]) -> bool {
    let mut command = vec!["rig"];
    command.extend(arguments.iter().map(String::as_str));
    ours().is_some_and(|program| started(&program, &command))
}

/// Builds the program that has the rivals, where it can be built.
fn program(found: Found) -> Option<PathBuf> {
    if !found.rocksdb {
        return ours();
    }
    let features = found.features();
    built("rivals", "thermocline-bench-rivals", &["--features", &features])
}

fn ours() -> Option<PathBuf> {
    built("", "thermocline-bench", &["-p", "thermocline-bench"])
}

/// Builds `name` in the workspace at `folder` and says where it is.
fn built(folder: &str, name: &str, more: &[&str]) -> Option<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let workspace = root().join(folder);
    let mut arguments = vec!["build", "--release", "--bin", name];
    arguments.extend(more);
    let status = Command::new(cargo).args(arguments).current_dir(&workspace).status();
    match status {
        Ok(status) if status.success() => {
            Some(output_folder(&workspace).join("release").join(name))
        }
        Ok(_) => {
            eprintln!("xtask: cannot build {name} in {}: see above", workspace.display());
            None
        }
        Err(error) => {
            eprintln!("xtask: cannot start cargo: {error}; install it from https://rustup.rs");
            None
        }
    }
}

/// Where Cargo puts what it builds.
fn output_folder(workspace: &std::path::Path) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.map_or_else(|| workspace.join("target"), |folder| root().join(folder))
}

fn started(program: &std::path::Path, arguments: &[&str]) -> bool {
    started_with(program, arguments, &[])
}

fn started_with(
    program: &std::path::Path,
    arguments: &[&str],
    environment: &[(&str, PathBuf)],
) -> bool {
    match Command::new(program).args(arguments).envs(environment.iter().cloned()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("xtask: cannot start {}: {error}", program.display());
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_benchmark_is_refused_before_anything_is_built() {
        assert!(!bench(&["no-such-scenario".to_owned()]));
        assert!(!bench(&[]));
    }

    #[test]
    fn a_program_that_cannot_be_started_is_a_failure() {
        assert!(!started(std::path::Path::new("no/such/program"), &[]));
    }
}
