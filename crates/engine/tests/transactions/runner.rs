//! Runs a script and compares what comes of it.

use crate::patience::PatientClock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Durability, Duration, Environment, Error, ErrorKind, Isolation, Locking, Preset,
    Savepoint, Settings, Stepper, Tier, Transaction, TransactionOptions, Workers,
};
use thermocline_device::MemoryDevices;

pub const PRESETS: [Preset; 2] = [Preset::Leveled, Preset::Hybrid];

/// The levels, and what the head of a script calls them.
const LEVELS: [(Isolation, &str); 3] = [
    (Isolation::ReadCommitted, "committed"),
    (Isolation::Snapshot, "snapshot"),
    (Isolation::Serializable, "serializable"),
];

/// Where records lie when the next step comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    /// Everything is flushed after each step.
    Flushed,
}

/// Settings of a store on two small tiers.
pub fn settings(preset: Preset) -> Settings {
    let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
    Settings {
        preset: Some(preset),
        tiers: vec![tier("/fast", 16), tier("/slow", 64)],
        memory: ByteSize::mib(4),
        durability: Durability::Buffered,
        ..Settings::default()
    }
}

/// A store whose background work waits to be stepped.
pub fn stepped(preset: Preset) -> Db {
    let environment = Environment {
        devices: Arc::new(MemoryDevices::default()),
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        clock: Arc::new(PatientClock::default()),
        ..Environment::default()
    };
    environment.create(Path::new("/home"), &settings(preset)).unwrap()
}

/// A script under way.
struct Run {
    db: Db,
    options: TransactionOptions,
    place: Place,
    open: BTreeMap<String, Transaction>,
    savepoints: BTreeMap<String, Savepoint>,
}

fn value(value: Option<impl AsRef<[u8]>>) -> String {
    value.map_or("none".to_owned(), |value| value.as_ref().escape_ascii().to_string())
}

fn kind(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Conflict => "conflict".to_owned(),
        ErrorKind::LockTimeout => "locked".to_owned(),
        other => panic!("{other:?}: {error}"),
    }
}

/// `x=1 y=2`, or `nothing`.
fn listed(scan: thermocline::Scan) -> String {
    let text = |(key, value): (bytes::Bytes, bytes::Bytes)| {
        format!("{}={}", key.escape_ascii(), value.escape_ascii())
    };
    let found: Vec<_> = scan.into_iter().map(|record| text(record.unwrap())).collect();
    if found.is_empty() { "nothing".to_owned() } else { found.join(" ") }
}

impl Run {
    /// Does a step, and says what came of it.
    fn step(&mut self, step: &str) -> String {
        let words: Vec<_> = step.split_whitespace().collect();
        let told = match words[..] {
            ["get", key] => value(self.db.get(key).unwrap()),
            ["scan"] => listed(self.db.scan()),
            ["put", key, value] => self.db.put(key, value).map_or_else(|e| kind(&e), ok),
            [name, "begin"] => {
                let begun = self.db.transaction(self.options.clone());
                self.open.insert(name.to_owned(), begun);
                "ok".to_owned()
            }
            [name, ref action @ ..] => match self.open.remove(name) {
                Some(transaction) => self.act(name, transaction, action),
                None => "-".to_owned(),
            },
            [] => panic!("a step is missing"),
        };
        if self.place == Place::Flushed {
            self.db.flush().unwrap();
        }
        told
    }

    /// A step of a transaction, which stays open unless that ends it.
    fn act(&mut self, name: &str, mut of: Transaction, action: &[&str]) -> String {
        let told = match *action {
            ["commit"] => return of.commit().map_or_else(|error| kind(&error), |_| ok(())),
            ["drop"] => return "ok".to_owned(),
            ["get", key] => of.get(key).map(value),
            ["read", key, "for", "update"] => of.get_for_update(key).map(value),
            ["scan", prefix] => Ok(listed(of.scan().prefix(prefix))),
            ["put", key, value] => of.put(key, value).map(ok),
            ["delete", key] => of.delete(key).map(ok),
            ["savepoint", place] => {
                self.savepoints.insert(place.to_owned(), of.savepoint());
                Ok("ok".to_owned())
            }
            ["back", "to", place] => of.rollback_to(self.savepoints[place]).map(ok),
            _ => panic!("no such step: {action:?}"),
        };
        match told {
            Ok(told) => {
                self.open.insert(name.to_owned(), of);
                told
            }
            Err(error) => kind(&error),
        }
    }
}

fn ok((): ()) -> String {
    "ok".to_owned()
}

/// What a script says: its comment, its records, and its steps with the cells behind them.
struct Script {
    head: Vec<String>,
    records: Vec<(String, String)>,
    steps: Vec<String>,
}

fn parse(text: &str) -> Script {
    let mut script = Script { head: Vec::new(), records: Vec::new(), steps: Vec::new() };
    let mut in_head = true;
    for line in text.lines() {
        if in_head {
            let record = line.split_once(" = ").filter(|_| !line.starts_with('#'));
            if let Some((key, value)) = record {
                script.records.push((key.to_owned(), value.to_owned()));
            }
            // The rule under the names of the columns.
            if line.starts_with("---") {
                in_head = false;
            } else if !line.contains('|') {
                script.head.push(line.to_owned());
            }
        } else if let Some(step) = line.split('|').next().map(str::trim) {
            script.steps.push(step.to_owned());
        }
    }
    script
}

/// The columns of a script: what they are called, and how transactions are run.
fn columns() -> Vec<(String, TransactionOptions)> {
    let mut columns = Vec::new();
    for (locking, letter) in [(Locking::Optimistic, "o"), (Locking::Pessimistic, "p")] {
        for (isolation, level) in LEVELS {
            let lock_timeout = Duration::ms(0);
            let options = TransactionOptions { locking, isolation, lock_timeout, ..options() };
            columns.push((format!("{letter}: {level}"), options));
        }
    }
    columns
}

fn options() -> TransactionOptions {
    TransactionOptions::default()
}

/// What comes of each step.
fn run(script: &Script, options: &TransactionOptions, preset: Preset, place: Place) -> Vec<String> {
    let db = stepped(preset);
    for (key, value) in &script.records {
        db.put(key, value).unwrap();
    }
    let (open, savepoints) = (BTreeMap::new(), BTreeMap::new());
    let mut run = Run { db, options: options.clone(), place, open, savepoints };
    script.steps.iter().map(|step| run.step(step)).collect()
}

/// The script with what came of it.
fn rendered(script: &Script, names: &[String], told: &[Vec<String>]) -> String {
    let cells = |step: usize| -> Vec<&str> {
        let cells: Vec<_> = told.iter().map(|column| column[step].as_str()).collect();
        if cells.iter().all(|cell| *cell == cells[0]) { vec![cells[0]] } else { cells }
    };
    let width = |column: usize| {
        let of_steps = (0..script.steps.len()).map(cells).filter(|cells| cells.len() > 1);
        let widths = of_steps.map(|cells| cells[column].len());
        widths.chain([names[column].len()]).max().unwrap()
    };
    let widths: Vec<_> = (0..names.len()).map(width).collect();
    let first = script.steps.iter().map(String::len).max().unwrap();
    let line = |step: &str, cells: &[&str]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = format!("{step:first$} | {}", padded.collect::<Vec<_>>().join(" | "));
        line.trim_end().to_owned()
    };
    let mut lines = script.head.clone();
    let head = line("", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let rule = "-".repeat(head.len());
    lines.extend([head, rule]);
    lines.extend(script.steps.iter().enumerate().map(|(at, step)| line(step, &cells(at))));
    lines.join("\n") + "\n"
}

/// Runs the script `name` in all ways; what comes of it is what it says.
pub fn check(name: &str) {
    let folder = [env!("CARGO_MANIFEST_DIR"), "tests", "scripts", "transactions"];
    let path = folder.iter().collect::<PathBuf>().join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap();
    let script = parse(&text);
    let (names, options): (Vec<_>, Vec<_>) = columns().into_iter().unzip();
    for preset in PRESETS {
        for place in [Place::Memory, Place::Flushed] {
            let told = options.iter().map(|options| run(&script, options, preset, place));
            let rendered = rendered(&script, &names, &told.collect::<Vec<_>>());
            if std::env::var_os("THERMOCLINE_BLESS").is_some() {
                std::fs::write(&path, &rendered).unwrap();
            } else {
                assert_eq!(rendered, text, "{name}, {preset:?}, {place:?}:\n{rendered}");
            }
        }
    }
}
