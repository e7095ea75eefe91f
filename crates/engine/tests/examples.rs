//! The programs in `examples/`, each run as a test. What they assert is checked here as well.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(dead_code, reason = "the `main` of an example makes the folder that a test makes here")]

#[path = "../examples/a_first_store.rs"]
mod a_first_store;
#[path = "../examples/a_small_service.rs"]
mod a_small_service;
#[path = "../examples/asynchronous_use.rs"]
mod asynchronous_use;
#[path = "../examples/batches_and_snapshots.rs"]
mod batches_and_snapshots;
#[path = "../examples/bulk_load.rs"]
mod bulk_load;
#[path = "../examples/checkpoint_and_reopen.rs"]
mod checkpoint_and_reopen;
#[path = "../examples/transactions.rs"]
mod transactions;

use std::fmt::Debug;
use std::path::Path;

/// Runs an example with a store in a folder of its own.
fn show<E: Debug>(run: fn(&Path) -> Result<(), E>) {
    let folder = tempfile::tempdir().unwrap();
    run(&folder.path().join("store")).unwrap();
}

#[test]
fn a_first_store_is_written_read_and_opened_again() {
    show(a_first_store::run);
}

#[test]
fn batches_take_effect_whole_and_a_snapshot_keeps_its_moment() {
    show(batches_and_snapshots::run);
}

#[test]
fn many_requests_are_in_flight_with_an_executor_and_without() {
    show(asynchronous_use::run);
}

#[test]
fn a_bulk_load_appears_at_once_and_reports_progress() {
    show(bulk_load::run);
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    show(checkpoint_and_reopen::run);
}

#[test]
fn transactions_of_several_threads_lose_nothing() {
    show(transactions::run);
}

#[test]
fn a_service_of_several_threads_shuts_down_without_loss() {
    show(a_small_service::run);
}

/// An example that is added is to be run here and to be found by a reader of the README.
#[test]
fn every_example_is_run_here_and_linked_from_the_readme() {
    let here = include_str!("examples.rs");
    let readme = include_str!("../../../README.md");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut examples = 0;
    #[allow(clippy::disallowed_methods, reason = "sources, not files of the store")]
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let stem = name.strip_suffix(".rs").unwrap();
        assert!(here.contains(&format!("show({stem}::run)")), "no test runs {name}");
        let link = format!("(crates/engine/examples/{name})");
        assert!(readme.contains(&link), "README.md has no link to {name}");
        examples += 1;
    }
    assert_eq!(examples, 7, "examples in {folder}");
}
