//! The step that tests the tests: bugs that are planted on purpose must be found
//! (foundation/src/planted.rs). What it runs is said here alone; `tidy` compares that with the
//! tests that there are (tidy/planted.rs).
//!
//! ```text
//!   whole      tests of the simulation in which bugs are planted: all of each target
//!   named      of other targets, and of unit tests: those with one of NAMES in their paths
//!   schedules  all of them, in a step of its own
//! ```
//! The three runs of cargo have the same features and a profile of their own, so that most is built
//! once.

use crate::cargo;

/// Targets of the simulation's tests.
pub const WHOLE: [&str; 10] = [
    "planted",
    "slots",
    "calls",
    "syncs",
    "transactions",
    "fast_cache",
    "dictionaries",
    "names",
    "region",
    "repair",
];

/// Packages and targets of their tests.
pub const NAMED: [(&str, &str); 2] =
    [("thermocline", "persistent_memory"), ("thermocline-slab", "slabs")];

/// Those with a planted test that is run by hand: whether processes that are killed meet the bug
/// goes by the machine's timing.
pub const BY_HAND: [(&str, &str); 1] = [("thermocline-torture", "rounds")];

/// Packages whose unit tests plant bugs.
pub const OF_LIBRARIES: [&str; 3] =
    ["thermocline-foundation", "thermocline-pmem", "thermocline-simulation"];

/// What is in the paths of tests that run by their names.
pub const NAMES: [&str; 2] = ["planted", "sync_site"];

/// Runs them.
pub fn run() -> bool {
    let mut build = vec!["test", "--profile", "simulation"];
    let packages = ["thermocline-simulation", "thermocline-pmem"];
    build.extend(packages.iter().flat_map(|package| ["--package", package]));
    build.extend([
        "--features",
        "thermocline-simulation/planted-bugs,thermocline-pmem/planted-bugs",
    ]);
    let mut libraries = build.clone();
    libraries.extend(OF_LIBRARIES.iter().flat_map(|package| ["--package", package]));
    libraries.extend(["--lib", "--"]);
    libraries.extend(NAMES);
    let mut named = build.clone();
    named.extend(NAMED.iter().flat_map(|(package, _)| ["--package", package]));
    named.extend(NAMED.iter().flat_map(|(_, target)| ["--test", target]));
    named.push("--");
    named.extend(NAMES);
    let mut whole = build;
    whole.extend(WHOLE.iter().flat_map(|target| ["--test", target]));
    cargo(&libraries, &[]) & cargo(&named, &[]) & cargo(&whole, &[])
}
