//! `simulate --without-sync`: what objects where the syncs of a place are missing, in a table.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use thermocline_foundation::threads;
use thermocline_simulation::campaign::{Failure, Task};
use thermocline_simulation::syncs::{Change, Guard, List, attempt, find, pairs};

/// Rounds of tasks that are tried before a change counts as one to which nothing objects; one where
/// that is what is expected.
const ROUNDS: u64 = 3;

/// Prints the places (`list`), what objects to each change of the list again (`kept`) or anew
/// (`all`, `open`), to the exchange of each two neighbours (`pairs`), or to changes that are named,
/// with `;` between them; fails where nothing objects and the list does not say so.
pub fn run(name: &str, threads: usize) -> ExitCode {
    let List(list) = List::kept();
    let lines = |wanted: &dyn Fn(&Guard) -> bool| -> Vec<_> {
        list.iter().filter(|(_, guard)| wanted(guard)).cloned().collect()
    };
    let lines = match name {
        "list" => {
            list.iter().for_each(|(change, guard)| println!("{}", List::line(change, guard)));
            return ExitCode::SUCCESS;
        }
        // Most pairs need no order, so that nothing objects is no failure.
        "pairs" => pairs().into_iter().map(|pair| (pair, Guard::Nothing)).collect(),
        "kept" => lines(&|guard| matches!(guard, Guard::Task(_))),
        "all" => lines(&|_| true),
        "open" => lines(&|guard| *guard == Guard::Open),
        _ => name.split(';').map(|one| (Change::parse(one), Guard::Open)).collect(),
    };
    let search = name != "kept";
    let found = each(lines.clone(), threads, move |change, guard| match guard {
        Guard::Task(task) if !search => {
            let (text, made) = attempt(change, *task);
            // It is the missing sync that it objects to.
            let found = text.filter(|_| task.attempt().is_ok());
            (found.map(|text| (*task, text)), made)
        }
        _ => find(change, if *guard == Guard::Nothing { 1 } else { ROUNDS }),
    });
    let mut all_right = true;
    for (change, guard) in &lines {
        let (found, made) = &found[change];
        match found {
            Some((task, text)) => {
                println!("{}", List::line(change, &Guard::Task(*task)));
                eprintln!("  {}", text.lines().collect::<Vec<_>>().join("\n  "));
                eprintln!("  {}", replay(task));
            }
            None if matches!(guard, Guard::Test(_) | Guard::Nothing) => {
                println!("{}", List::line(change, guard));
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
    let Task { suite, seed, one_in, only: item } = *task;
    Failure { suite, seed, item, one_in, text: String::new(), trace: None }.replay()
}

/// The task that objects and what it says, and how often the change was made.
type Found = (Option<(Task, String)>, u64);

/// Looks at each of `lines` on one of `count` threads.
fn each(
    lines: Vec<(Change, Guard)>,
    count: usize,
    look: impl Fn(&Change, &Guard) -> Found + Send + Sync + 'static,
) -> BTreeMap<Change, Found> {
    let shared = Arc::new((lines, AtomicUsize::new(0), Mutex::new(BTreeMap::new()), look));
    let workers = (0..count).map(|index| {
        let shared = Arc::clone(&shared);
        let work = move || {
            let (lines, next, found, look) = &*shared;
            while let Some((change, guard)) = lines.get(next.fetch_add(1, Relaxed)) {
                let result = look(change, guard);
                // As it is found, because a run over all places takes long.
                let what = result.0.as_ref().map_or(Guard::Open, |(task, _)| Guard::Task(*task));
                eprintln!("{}, made {} times", List::line(change, &what), result.1);
                found.lock().insert(change.clone(), result);
            }
        };
        threads::spawn(&format!("without-sync-{index}"), work).expect("the system gives threads")
    });
    let workers: Vec<_> = workers.collect();
    workers.into_iter().for_each(|worker| worker.join().expect("tasks catch their panics"));
    std::mem::take(&mut *shared.2.lock())
}
