//! The project's own chores; `cargo xtask` alone lists them.
//!
//! What they are for: one command is exactly what continuous integration runs, so that no rule
//! shows on a server first. The chores start `cargo` as a person would, print its output as it is,
//! and end with one line that says how it went.
//!
//! Invariants:
//! 1. `ci` runs every step even after one failed, and names all that failed.
//! 2. The exit status is 0 only when every step passed; 2 for a command that does not exist.
//! 3. No dependencies: a fresh clone runs its first check after a second of compilation.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a chore of the workspace reads its sources and prints; nothing links it"
)]

mod bench;
mod install_c;
mod planted;
mod plugins;
mod rivals;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  ci      everything continuous integration runs: fmt, tidy, clippy, doc, package, test
  test    all tests of the workspace, `schedules`, the planted bugs, `simulate` in its quick
          form, and what of the plugins needs no host; with arguments only the tests of the
          workspace, by cargo test with them
  schedules
          the tests that choose the order of threads, in a build of their own; names after it
          choose among them; --times N runs N times as many schedules
  simulate
          the whole engine on simulated machines; --seeds N, --hours H, --seed S, --help for more;
          --calls: one hash of the device calls of fixed seeds, which a refactoring keeps;
          --without-sync list|kept|open|all|SITE: what objects where the syncs of a place are
          left out; `kept` tries the whole list again
  tidy    the house rules as checks (see STYLE.md); `tidy rooms` prints what each room of the
          engine imports, too
  doc     the documentation of all crates, of public and of private items, without a warning
  package packs all released crates together, as a release does, and uploads nothing
  wrap    wraps comments at 100 columns, in place
  golden  writes the golden files anew from the present formats; review the difference
  install-c
          builds the library for C and installs it below --prefix DIR (docs/c.md); --help
  torture kills and power cuts on the real kernel: torture kill|power|plugin|clean, --help for
          more; `plugin` is RocksDB's own stress test over tiers
  bench   quick|tiers|single|full|keigo|...: the benchmark's scenarios (docs/benchmarks.md)
  rig     up|run|down: two block devices and a memory limit for benchmarks (docs/rig.md)
  rivals  fetch: what the engines to compare with need (docs/rivals.md)
  plugins [build]: RocksDB, Speedb and LevelDB over tiers, built to target/plugins (docs/hosts);
          fetch: gets RocksDB 11.8.1 and Speedb; test: tries them with stock tools; --kills N;
          names of checks choose among them";

/// The root of the workspace: the folder above this crate.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Runs cargo with `arguments` in the workspace's root; true where it succeeds.
fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .status();
    match status {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("xtask: cannot start cargo: {error}; install it from https://rustup.rs");
            false
        }
    }
}

/// The tests of the whole workspace; those of schedules too, unless the arguments choose others.
fn test(more: &[String]) -> bool {
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast"];
    arguments.extend(more.iter().map(String::as_str));
    // Tests of the library for C ask for one that is built as what is tested.
    let passed = cargo(&arguments, &[("THERMOCLINE_TESTS_OF_WORKSPACE", "1")]);
    if !more.is_empty() {
        return passed;
    }
    let failed = run_steps(&[
        ("test: schedules", &|| schedules(&[])),
        ("test: planted bugs", &planted::run),
        ("test: simulate", &|| simulated(&[], true)),
        ("test: plugins without hosts", &plugins::tested_without_hosts),
    ]);
    passed && failed.is_empty()
}

/// The simulation in its quick form, or as its own arguments say.
fn simulate(more: &[String]) -> bool {
    // What leaves out syncs is in no other build.
    simulated(more, more.iter().any(|argument| argument.starts_with("--without-sync")))
}

/// The simulation, where asked in the build in which bugs can be planted, and none is.
fn simulated(more: &[String], plants: bool) -> bool {
    let package = ["--profile", "simulation", "--package", "thermocline-simulation"];
    let mut arguments = vec!["run", "--quiet"];
    arguments.extend(package);
    if plants {
        arguments.extend(["--features", "planted-bugs"]);
    }
    arguments.push("--");
    arguments.extend(more.iter().map(String::as_str));
    cargo(&arguments, &[])
}

/// Crates whose locks, signals and atomics come from `foundation::sync`.
const SCHEDULED: [&str; 7] = [
    "thermocline",
    "thermocline-log",
    "thermocline-pmem",
    "thermocline-table",
    "thermocline-slab",
    "thermocline-index",
    "thermocline-device",
];

/// The tests of schedules: under the scheduler of shuttle, and what is atomic only under loom. Each
/// is a build of its own, told apart by a compiler flag (docs/decisions/0024-schedules.md).
fn schedules(names: &[String]) -> bool {
    let mut chosen: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut times = std::env::var("THERMOCLINE_SCHEDULES").unwrap_or_else(|_| "1".to_owned());
    if let Some(at) = chosen.iter().position(|name| *name == "--times") {
        let Some(Ok(count)) = chosen.get(at + 1).map(|count| count.parse::<u32>()) else {
            eprintln!("xtask: --times needs a number: cargo xtask schedules --times 10");
            return false;
        };
        times = count.to_string();
        chosen.drain(at..at + 2);
    }
    let chosen = if chosen.is_empty() { vec!["schedules::"] } else { chosen };
    let packages = SCHEDULED.iter().flat_map(|package| ["--package", package]);
    let shuttle = flagged("shuttle", packages.collect(), &chosen, &times);
    flagged("loom", vec!["--package", "thermocline-foundation"], &chosen, &times) && shuttle
}

/// Runs the chosen library tests of `packages` compiled with `--cfg flag`.
fn flagged(flag: &str, packages: Vec<&str>, chosen: &[&str], times: &str) -> bool {
    let variable = |name: &str| std::env::var(name).ok();
    let flags = format!("{} --cfg {flag}", variable("RUSTFLAGS").unwrap_or_default());
    // Beside the ordinary build, or each would throw the other away.
    let target = variable("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let target = target.join(flag).display().to_string();
    let mut arguments = vec!["test", "--profile", "schedules", "--lib"];
    arguments.extend(packages);
    if flag == "shuttle" {
        // Bugs that only schedules show are planted in this build, and off but for the test of
        // each.
        arguments.extend(["--features", "thermocline/planted-bugs,thermocline-pmem/planted-bugs"]);
    }
    arguments.push("--");
    arguments.extend(chosen);
    let environment = [
        ("RUSTFLAGS", flags.trim()),
        ("CARGO_TARGET_DIR", &target),
        ("THERMOCLINE_SCHEDULES", times),
    ];
    cargo(&arguments, &environment)
}

/// Runs the tidy checks and prints what they found.
fn run_tidy(more: &[String]) -> bool {
    if more.first().is_some_and(|what| what == "rooms") {
        match tidy::rooms(&root()) {
            Ok(table) => print!("{table}"),
            Err(error) => {
                eprintln!("xtask: cannot read the sources: {error}");
                return false;
            }
        }
    }
    match tidy::check(&root()) {
        Ok(report) => {
            for finding in &report.findings {
                println!("{finding}");
            }
            println!("tidy: {} files, {} findings", report.files, report.findings.len());
            report.findings.is_empty()
        }
        Err(error) => {
            eprintln!("xtask: cannot read the sources: {error}");
            false
        }
    }
}

/// The program that kills and cuts, with its own arguments.
fn torture(more: &[String]) -> bool {
    let mut arguments = vec!["run", "--quiet", "--package", "thermocline-torture", "--"];
    arguments.extend(more.iter().map(String::as_str));
    let is_plugin = more.first().is_some_and(|mode| mode == "plugin");
    let asks = more.iter().any(|word| word == "--help" || word == "-h");
    let programs = if is_plugin && !asks { plugins::stress_programs() } else { Ok(Vec::new()) };
    let programs = match programs {
        Ok(programs) => programs,
        Err(error) => {
            eprintln!("xtask: {error}");
            return false;
        }
    };
    arguments.extend(programs.iter().map(String::as_str));
    cargo(&arguments, &[])
}

/// A step of `ci`: its name and what runs it.
type Step<'a> = (&'static str, &'a dyn Fn() -> bool);

/// Runs `steps` in order, all of them, says how long each took, and returns the names of those that
/// failed.
fn run_steps(steps: &[Step<'_>]) -> Vec<&'static str> {
    let mut failed = Vec::new();
    for (index, (name, step)) in steps.iter().enumerate() {
        println!("== {}/{} {name}", index + 1, steps.len());
        let start = Instant::now();
        let passed = step();
        let seconds = start.elapsed().as_secs();
        println!("== {name} {} after {seconds} s", if passed { "passed" } else { "failed" });
        if !passed {
            failed.push(*name);
        }
    }
    failed
}

/// The documentation, as users read it and as the source has it: a link that leads nowhere, or from
/// a public page to a private item, is an error.
fn doc() -> bool {
    let public = ["doc", "--workspace", "--no-deps", "--keep-going"];
    let private = [&public[..], &["--document-private-items"]].concat();
    let warnings = [("RUSTDOCFLAGS", "-D warnings")];
    // The public pages come last, for they replace the others.
    cargo(&private, &warnings) & cargo(&public, &warnings)
}

/// Packs all released crates in one command, with each other as their dependencies: a crate that
/// needs one that is not released, or a file that a package does not hold, fails. Nothing is built:
/// the other steps have built the same sources.
fn package() -> bool {
    let names = match tidy::published(&root()) {
        Ok(names) => names,
        Err(error) => {
            eprintln!("xtask: cannot read the manifests: {error}");
            return false;
        }
    };
    let mut arguments = vec!["package", "--quiet", "--no-verify", "--allow-dirty"];
    arguments.extend(names.iter().flat_map(|name| ["--package", name]));
    cargo(&arguments, &[])
}

fn ci() -> bool {
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let failed = run_steps(&[
        ("fmt", &|| cargo(&["fmt", "--all", "--check"], &[])),
        ("tidy", &|| run_tidy(&[])),
        ("clippy", &|| cargo(&clippy, &[])),
        ("doc", &doc),
        ("package", &package),
        ("test", &|| test(&[])),
    ]);
    if !failed.is_empty() {
        println!("ci: failed: {}", failed.join(", "));
    }
    failed.is_empty()
}

/// Wraps comments and says in which files.
fn wrap() -> bool {
    match tidy::wrap_comments(&root()) {
        Ok(changed) => {
            changed.iter().for_each(|path| println!("wrapped {}", path.display()));
            true
        }
        Err(error) => {
            eprintln!("xtask: cannot wrap the comments: {error}");
            false
        }
    }
}

fn golden() -> bool {
    cargo(&["test", "--workspace", "golden"], &[("THERMOCLINE_BLESS", "1")])
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, more)) = arguments.split_first() else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    let passed = match command.as_str() {
        "ci" => ci(),
        "test" => test(more),
        "schedules" => schedules(more),
        "simulate" => simulate(more),
        "tidy" => run_tidy(more),
        "doc" => doc(),
        "package" => package(),
        "wrap" => wrap(),
        "golden" => golden(),
        "install-c" => install_c::run(more),
        "torture" => torture(more),
        "bench" => bench::bench(more),
        "rig" => bench::rig(more),
        "rivals" => rivals::run(more),
        "plugins" => plugins::run(more),
        "help" | "--help" | "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("xtask: there is no command '{other}'\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    println!("xtask {command}: {}", if passed { "passed" } else { "FAILED" });
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_runs_and_every_failure_is_named() {
        let failed = run_steps(&[("one", &|| false), ("two", &|| true), ("three", &|| false)]);
        assert_eq!(failed, ["one", "three"]);
    }

    #[test]
    fn a_cargo_command_that_fails_is_a_failure() {
        assert!(cargo(&["--version"], &[]));
        assert!(!cargo(&["no-such-command-of-cargo"], &[]));
    }
}
