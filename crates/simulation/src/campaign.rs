//! The suites, how much of each is tried, and what came of it.
//!
//! ```text
//!   crash    crash points of a seeded history                        crash.rs
//!   errors   every call fails, with six errors, once and for good    errors.rs
//!   lies     every transfer is lost, torn, flipped, misdirected ...  lies.rs
//!   drills   wrong, full, slow and vanishing tiers                   drills.rs
//!   rot      every byte of every kind of file                        rot.rs
//!   repair   the same, repaired                                      repair.rs
//!   steady   stalls, clocks that jump, caches: nothing changes       steady.rs
//!   transactions   several open at a time, against an exact model    transactions.rs
//!   names    files of another program over links, and their faults   names/
//! ```
//! A task is a suite and a seed; it runs on one thread and depends on nothing else, so tasks run on
//! as many threads as there are and a failing one is repeated alone.

use crate::crash::{CrashPoints, Effort, Tally as CrashTally};
use crate::devices::{Fault, FaultKind};
use crate::drills::{DRILLS, PHASES};
use crate::history::{Shape, has_long_slabs, has_third_tier, is_hybrid};
use crate::life::{Life, Stop};
use crate::oracle::{Known, Violation};
use crate::rot::{Damage, Fixture, Outcome, Place};
use crate::steady::Item;
use crate::{drills, errors, lies, names, repair, steady, trace, transactions};
use parking_lot::RwLock;
use serde::Serialize;
use std::sync::Arc;
use thermocline_foundation::random::mix;
use thermocline_foundation::threads::catch_panic;

/// A way of trying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "see the module's header")]
pub enum Suite {
    Crash,
    Errors,
    Lies,
    Drills,
    Rot,
    Repair,
    Steady,
    Transactions,
    Names,
}

/// All suites.
pub const SUITES: [Suite; 9] = [
    Suite::Crash,
    Suite::Errors,
    Suite::Lies,
    Suite::Drills,
    Suite::Rot,
    Suite::Repair,
    Suite::Steady,
    Suite::Transactions,
    Suite::Names,
];

/// Histories of transactions of a seed, and their steps.
const TRANSACTION_HISTORIES: u64 = 5;
const TRANSACTION_STEPS: u64 = 400;

impl Suite {
    /// The suite's name.
    pub fn name(self) -> &'static str {
        let names = [
            "crash",
            "errors",
            "lies",
            "drills",
            "rot",
            "repair",
            "steady",
            "transactions",
            "names",
        ];
        names[self as usize]
    }
}

/// One suite on one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The suite.
    pub suite: Suite,
    /// The seed.
    pub seed: u64,
    /// Of the faults, lies and damages of a seed, one in so many; of crash points always all, with
    /// the fewer images the larger it is (1, 2, 3).
    pub one_in: u64,
    /// Only the crash point, fault, lie, drill or damage of this number.
    pub only: Option<u64>,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Calls after which the store could have crashed.
    pub crash_points: u64,
    /// Images of devices that were opened, by how many recoveries they were cut in.
    pub crash_images: [u64; 4],
    /// Calls that were made to fail.
    pub errors: u64,
    /// Transfers that were falsified.
    pub lies: u64,
    /// Tiers that were exchanged or disturbed.
    pub drills: u64,
    /// Calls that stalled.
    pub stalls: u64,
    /// Jumps of the clock, and settings of the wall clock.
    pub clock_jumps: u64,
    /// Histories with the smallest cache and with one for everything, and histories with a cache of
    /// blocks on the fast tier and without.
    pub cache_pairs: u64,
    /// Histories whose background work lagged behind.
    pub backlogs: u64,
    /// Histories whose snapshots were read before now was.
    pub moments: u64,
    /// Histories with a client inside the steps of jobs.
    pub inside: u64,
    /// Histories of transactions.
    pub transactions: u64,
    /// Histories of names and calls of them that were made to fail.
    pub names: u64,
    /// Images of crashes that were opened in histories of names.
    pub names_images: u64,
    /// Damages to files that the store reported.
    pub damages_reported: u64,
    /// Damages that make no difference.
    pub damages_harmless: u64,
    /// Damages that were planned to be repaired, and were, or were refused with a reason.
    pub repairs: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.crash_points += other.crash_points;
        for (sum, images) in self.crash_images.iter_mut().zip(other.crash_images) {
            *sum += images;
        }
        self.errors += other.errors;
        self.lies += other.lies;
        self.drills += other.drills;
        self.stalls += other.stalls;
        self.clock_jumps += other.clock_jumps;
        self.cache_pairs += other.cache_pairs;
        self.backlogs += other.backlogs;
        self.moments += other.moments;
        self.inside += other.inside;
        self.transactions += other.transactions;
        self.names += other.names;
        self.names_images += other.names_images;
        self.damages_reported += other.damages_reported;
        self.damages_harmless += other.damages_harmless;
        self.repairs += other.repairs;
    }

    /// Images at all depths.
    pub fn all_images(&self) -> u64 {
        self.crash_images.iter().sum()
    }

    /// Errors, lies, drills, stalls, jumps, damages, repairs and faults of names.
    pub fn all_faults(&self) -> u64 {
        let damages = self.damages_reported + self.damages_harmless;
        let calls = self.errors + self.lies + self.stalls + self.clock_jumps;
        calls + self.drills + damages + self.repairs + self.names
    }
}

/// A broken promise and how to see it again.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The suite.
    pub suite: Suite,
    /// The seed.
    pub seed: u64,
    /// The number of the crash point, fault, lie, drill or damage.
    pub item: Option<u64>,
    /// How much of the seed was tried ([`Task::one_in`]).
    pub one_in: u64,
    /// What was done, and what is wrong.
    pub text: String,
    /// Steps, calls and faults.
    pub trace: Option<String>,
}

impl Failure {
    /// The command that shows it again.
    pub fn replay(&self) -> String {
        let item = self.item.map_or(String::new(), |item| format!(" --item {item}"));
        // The images of a crash point depend on it.
        let one_in = match (self.suite, self.one_in) {
            (Suite::Crash, 2..) => format!(" --one-in {}", self.one_in),
            _ => String::new(),
        };
        let (suite, seed) = (self.suite.name(), self.seed);
        format!("cargo xtask simulate --suite {suite} --seed {seed}{one_in}{item}")
    }
}

/// The shape of a seed's history for the crash suite.
pub fn crash_shape(seed: u64) -> Shape {
    // A fast tier fills up later than level 0, but where much is written each time.
    let is_large = has_long_slabs(seed) || has_third_tier(seed);
    let more = if is_hybrid(seed) && !is_large { 30 } else { 0 };
    let keys = if seed.is_multiple_of(3) { 12 } else { 40 };
    Shape {
        steps: 30 + more + (mix(seed) % 30) as usize,
        // Slabs are longer where a size has many records, and the second of three tiers fills up.
        keys: if is_large { 128 } else { keys },
        crashes: !seed.is_multiple_of(8),
        reopens: true,
        large_values: seed % 4 == 1 || seed % 16 == 12,
    }
}

impl Task {
    /// Runs the task; a failing one is run again for its trace.
    pub fn run(&self) -> Result<Tally, Box<Failure>> {
        self.attempt().map_err(|(item, _)| {
            trace::start();
            let again = Self { only: item, ..*self }.attempt();
            let trace = trace::finish();
            let text = match again {
                Err((_, text)) => text,
                Ok(_) => "it fails only sometimes: something depends on more than the seed".into(),
            };
            Box::new(Failure {
                suite: self.suite,
                seed: self.seed,
                item,
                one_in: self.one_in,
                text,
                trace,
            })
        })
    }

    /// Runs the task; gives the number of the item that failed, and what is wrong.
    pub fn attempt(&self) -> Result<Tally, (Option<u64>, Violation)> {
        let mut tally = Tally::default();
        match self.suite {
            Suite::Crash => {
                let mut point = None;
                let run = guarded(|| self.crash(&mut tally, &mut point));
                run.map_err(|text| (point, text))?;
            }
            Suite::Errors => {
                let kinds = self.prepare(|| errors::kinds_of(self.seed, &errors::SHAPE))?;
                let faults = errors::faults(&kinds);
                tally.errors = self.each(&faults, |fault| {
                    errors::run_with_fault(self.seed, fault)
                        .map_err(|why| format!("{fault:?}: {why}"))
                })?;
            }
            Suite::Lies => {
                let kinds = self.prepare(|| lies::kinds_of(self.seed))?;
                let faults = lies::faults(self.seed, &kinds);
                tally.lies = self.each(&faults, |lie| {
                    lies::run_with_lie(self.seed, lie).map_err(|why| format!("{lie:?}: {why}"))
                })?;
            }
            Suite::Drills => {
                let all: Vec<_> = DRILLS
                    .into_iter()
                    .flat_map(|drill| PHASES.map(|phase| (drill, phase)))
                    .collect();
                tally.drills = self.each(&all, |(drill, phase)| {
                    drills::run(self.seed, *drill, *phase)
                        .map_err(|why| format!("{drill:?} while {phase:?}: {why}"))
                })?;
            }
            Suite::Rot => self.rot(&mut tally)?,
            Suite::Repair => {
                let fixture = self.prepare(|| Fixture::new(self.seed))?;
                self.each(&fixture.damages(), |(place, damage)| {
                    let outcome = repair::run(&fixture, &place.0, &place.1, damage);
                    let outcome = outcome.map_err(|why| damaged(place, damage, &why))?;
                    tally.repairs += u64::from(outcome == Outcome::Reported);
                    Ok(())
                })?;
            }
            Suite::Steady => self.steady(&mut tally)?,
            Suite::Transactions => {
                let first = self.seed * TRANSACTION_HISTORIES;
                let seeds: Vec<_> = (first..first + TRANSACTION_HISTORIES).collect();
                tally.transactions = self
                    .each(&seeds, |seed| transactions::run(*seed, TRANSACTION_STEPS).map(drop))?;
            }
            Suite::Names => {
                let trials = self.prepare(|| names::trials(self.seed))?;
                let mut images = 0;
                tally.names = self.each(&trials, |trial| {
                    let tried = trial.run(self.seed);
                    images += tried.map_err(|why| format!("{trial:?}: {why}"))?;
                    Ok(())
                })?;
                tally.names_images = images;
            }
        }
        Ok(tally)
    }

    fn prepare<T>(
        &self,
        body: impl FnOnce() -> Result<T, Violation>,
    ) -> Result<T, (Option<u64>, Violation)> {
        guarded(body).map_err(|text| (None, text))
    }

    /// Tries those of `items` that the task is for; says how many.
    fn each<T>(
        &self,
        items: &[T],
        mut run: impl FnMut(&T) -> Result<(), Violation>,
    ) -> Result<u64, (Option<u64>, Violation)> {
        let mut count = 0;
        for (number, item) in items.iter().enumerate() {
            let number = number as u64;
            let wanted = match self.only {
                Some(only) => number == only,
                None => mix(number ^ mix(self.seed)).is_multiple_of(self.one_in),
            };
            if wanted {
                trace::line(|| format!("item {number}"));
                guarded(|| run(item)).map_err(|text| (Some(number), text))?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// The crash points of the history; `point` becomes the number of the one that fails.
    fn crash(&self, tally: &mut Tally, point: &mut Option<u64>) -> Result<(), Violation> {
        let shape = crash_shape(self.seed);
        let effort = match self.one_in {
            1 => Effort::FULL,
            2 => Effort::SAMPLED,
            _ => Effort::LIGHT,
        };
        let known = Arc::new(RwLock::new(Known::new(shape.keys)));
        let mut life = Life::new(self.seed, &shape, Arc::clone(&known));
        let points = Arc::new(CrashPoints::new(self.seed, known, effort, self.only));
        life.watch(Arc::clone(&points) as Arc<_>);
        let result = life.run(&shape).and_then(|()| {
            life.watch(Arc::new(points.sampled()));
            life.rest(shape.steps)
        });
        let violation = points.violation();
        *point = points.violated_at();
        life.kill();
        let CrashTally { points, images } = points.tally();
        (tally.crash_points, tally.crash_images) = (points, images);
        match (violation, result) {
            (Some(violation), _) => Err(violation),
            (None, Ok(())) => Ok(()),
            (None, Err((step, Stop::Violated(why)))) => Err(format!("step {step}: {why}")),
            (None, Err((step, Stop::Failed(error)))) => {
                Err(format!("step {step} fails although nothing was done to it: {error}"))
            }
        }
    }

    fn steady(&self, tally: &mut Tally) -> Result<(), (Option<u64>, Violation)> {
        let kinds = self.prepare(|| steady::kinds_of(self.seed))?;
        self.each(&steady::items(self.seed, &kinds), |item| {
            match item {
                Item::At(Fault { kind: FaultKind::Stall(_), .. })
                | Item::Paced(FaultKind::Stall(_)) => tally.stalls += 1,
                Item::At(_) | Item::Paced(_) => tally.clock_jumps += 1,
                Item::Caches | Item::FastCache => tally.cache_pairs += 1,
                Item::Behind => tally.backlogs += 1,
                Item::Moments => tally.moments += 1,
                Item::Inside => tally.inside += 1,
            }
            steady::run(self.seed, item).map_err(|why| format!("{item:?}: {why}"))
        })?;
        Ok(())
    }

    fn rot(&self, tally: &mut Tally) -> Result<(), (Option<u64>, Violation)> {
        let fixture = self.prepare(|| Fixture::new(self.seed))?;
        let mut damages = fixture.damages();
        damages.extend(fixture.exchanges());
        let alike = self.prepare(|| Fixture::alike(self.seed))?;
        let swaps = self.prepare(|| alike.swaps_of_blocks())?;
        let damages = damages.into_iter().map(|(place, damage)| (&fixture, place, damage));
        let swaps = swaps.into_iter().map(|(place, damage)| (&alike, place, damage));
        let cached = self.prepare(|| Fixture::cached(self.seed))?;
        let flips = cached.flips_of_cache().into_iter();
        let flips = flips.map(|(place, damage)| (&cached, place, damage));
        let damages: Vec<_> = damages.chain(swaps).chain(flips).collect();
        let mut reported = 0;
        let count = self.each(&damages, |(fixture, place, damage)| {
            let outcome = fixture
                .try_damage(&place.0, &place.1, damage)
                .map_err(|why| damaged(place, damage, &why))?;
            reported += u64::from(outcome == Outcome::Reported);
            Ok(())
        })?;
        tally.damages_reported = reported;
        tally.damages_harmless = count - reported;
        Ok(())
    }
}

fn damaged(place: &Place, damage: &Damage, why: &str) -> Violation {
    format!("{damage:?} of {}/{}: {why}", place.0.display(), place.1)
}

/// A panic is a broken promise too.
fn guarded<T>(body: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    catch_panic(body).unwrap_or_else(|said| Err(format!("it panics: {said}")))
}

/// The tasks of a run over `seeds` seeds from `first` on: the dear ones on few of them, and of many
/// seeds less each.
pub fn plan(first: u64, seeds: u64) -> Vec<Task> {
    let is_long = seeds > 200;
    let mut tasks = Vec::new();
    for seed in first..first + seeds {
        let nth = seed - first;
        let mut add = |suite, every: u64, one_in| {
            if nth.is_multiple_of(every) {
                tasks.push(Task { suite, seed, one_in, only: None });
            }
        };
        if is_long {
            add(
                Suite::Crash,
                1,
                if nth % 200 == 7 {
                    1
                } else if nth.is_multiple_of(20) {
                    2
                } else {
                    3
                },
            );
            add(Suite::Errors, 100, 1);
            add(Suite::Lies, 100, 1);
            add(Suite::Drills, 10, 1);
            add(Suite::Steady, 100, 1);
            add(Suite::Rot, 1_000, 1);
            add(Suite::Repair, 1_000, 16);
            add(Suite::Transactions, 1, 1);
            add(Suite::Names, 100, 1);
        } else {
            // Histories of the preset `hybrid` are longer, so less is taken of each. All subsets of
            // what is in flight take a history ten minutes and more: the long form has them.
            let crash = if nth.is_multiple_of(8) && !is_hybrid(seed) { 2 } else { 3 };
            add(Suite::Crash, 1, crash);
            add(Suite::Drills, 5, 2);
            add(Suite::Transactions, 2, 1);
            add(Suite::Names, 5, 32);
            if is_hybrid(seed) {
                add(Suite::Errors, 1, 64);
                add(Suite::Lies, 1, 32);
                add(Suite::Steady, 1, 64);
                add(Suite::Rot, 1, 4096);
                add(Suite::Repair, 8, 2048);
            } else {
                add(Suite::Errors, 10, 8);
                add(Suite::Lies, 10, 4);
                add(Suite::Steady, 10, 4);
                add(Suite::Rot, 40, 8);
                add(Suite::Repair, 20, 256);
            }
        }
    }
    tasks
}
