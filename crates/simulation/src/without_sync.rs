//! `simulate --without-sync`: what objects where the syncs of a place are missing, in a table.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use thermocline_foundation::threads;
use thermocline_simulation::campaign::{Failure, Task};
use thermocline_simulation::syncs::{Change, List, find};

/// Rounds of tasks that are tried before a change counts as one to which nothing objects.
const ROUNDS: u64 = 3;

/// Prints the places (`list`), or what objects to each change of the list (`all`) or to one; fails
/// where nothing objects and the list does not say so.
pub fn run(name: &str, threads: usize) -> ExitCode {
    let List(list) = List::kept();
    if name == "list" {
        list.iter().for_each(|(change, task)| println!("{}", List::line(change, *task)));
        return ExitCode::SUCCESS;
    }
    let changes: Vec<_> = match name {
        "all" => list.iter().map(|(change, _)| change.clone()).collect(),
        _ => vec![Change::parse(name)],
    };
    let unopposed: BTreeSet<_> =
        list.into_iter().filter(|(_, task)| task.is_none()).map(|(change, _)| change).collect();
    let found = find_all(changes.clone(), threads);
    let mut all_right = true;
    for change in &changes {
        let (found, made) = &found[change];
        match found {
            Some((task, text)) => {
                println!("{}", List::line(change, Some(*task)));
                eprintln!("  {}", text.lines().collect::<Vec<_>>().join("\n  "));
                eprintln!("  {}", replay(task));
            }
            None if name == "all" && unopposed.contains(change) => {
                println!("{}", List::line(change, None));
            }
            None => {
                all_right = false;
                println!("{change}: nothing objects; it was made {made} times");
            }
        }
    }
    if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(task: &Task) -> String {
    let (suite, seed, item, text, trace) = (task.suite, task.seed, task.only, String::new(), None);
    Failure { suite, seed, item, text, trace }.replay()
}

type Found = BTreeMap<Change, (Option<(Task, String)>, u64)>;

fn find_all(changes: Vec<Change>, count: usize) -> Found {
    let next = AtomicUsize::new(0);
    let shared = Arc::new((changes, next, Mutex::new(Found::new())));
    let workers = (0..count).map(|index| {
        let shared = Arc::clone(&shared);
        let work = move || {
            let (changes, next, found) = &*shared;
            while let Some(change) = changes.get(next.fetch_add(1, Relaxed)) {
                let result = find(change, ROUNDS);
                // As it is found, because a run over all places takes long.
                let task = result.0.as_ref().map(|(task, _)| *task);
                eprintln!("{}", List::line(change, task));
                found.lock().insert(change.clone(), result);
            }
        };
        threads::spawn(&format!("without-sync-{index}"), work).expect("the system gives threads")
    });
    let workers: Vec<_> = workers.collect();
    workers.into_iter().for_each(|worker| worker.join().expect("tasks catch their panics"));
    std::mem::take(&mut *shared.2.lock())
}
