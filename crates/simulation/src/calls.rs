//! The device calls of fixed seeds: one hash, which a refactoring keeps.
//!
//! ```text
//!   seed ── lives     the history of the crash suite and one of more steps, tables that move
//!        ── caches    long histories with both sizes of caches       steady.rs
//!        ── behind    full memtables, no background work             steady.rs
//!        ── paced     writers that are slowed down                   steady.rs
//!        ── drills    wrong, full, slow and vanishing tiers          drills.rs
//!        ── errors, lies    some faults of each                      errors.rs lies.rs
//!             └── every call ── recorder.rs ── hash of the seed ── hash of all seeds
//! ```
//! 1. Everything runs on one thread, in the order of the seeds. The engine has the simulated clock
//!    and the simulated devices' randomness, so only the engine and the suites decide the hash.
//! 2. Each answer is checked as in the suites; a seed with a violation has no hash.
//! 3. How often the engine looks at its clock does not count: a look takes no time here. A sleep
//!    does, and a stall.
//! 4. A change of the suites or of a preset's defaults changes the hash. Compare runs of the same
//!    suites.

use crate::drills::{DRILLS, PHASES};
use crate::history::Shape;
use crate::life::Life;
use crate::oracle::{Known, Violation};
use crate::recorder::{self, Recording};
use crate::{campaign, drills, errors, lies, steady};
use parking_lot::RwLock;
use std::ops::RangeInclusive;
use std::sync::Arc;
use thermocline::Stats;
use thermocline_foundation::random::mix;
use thermocline_foundation::threads::catch_panic;
use xxhash_rust::xxh3::Xxh3;

/// The seeds of the whole hash. All presets and one to three tiers are among them.
pub const SEEDS: RangeInclusive<u64> = 1..=64;

/// Calls of each seed that fail, and transfers that are falsified.
const FAULTS: u64 = 24;

/// Steps of the longer life, in histories of the crash suite.
const LONGER: usize = 4;

/// What a life's tables and records went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Tables that went to another tier.
    pub migrations: u64,
    /// Records that went up to slots.
    pub promotions: u64,
    /// Records that went down from slots.
    pub demotions: u64,
    /// Bytes of bulk loads.
    pub ingested_bytes: u64,
}

impl std::fmt::Display for Passed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { compactions, migrations, promotions, demotions, ingested_bytes } = self;
        write!(f, "{compactions} compactions, {migrations} migrations, {promotions} promotions, ")?;
        write!(f, "{demotions} demotions, {ingested_bytes} bytes of bulk loads")
    }
}

impl Passed {
    fn of(stats: &Stats) -> Self {
        let fast = stats.fast_tier.as_ref();
        Self {
            compactions: stats.operations.compactions,
            migrations: stats.operations.migrations,
            promotions: fast.map_or(0, |fast| fast.promoted_records),
            demotions: fast.map_or(0, |fast| fast.demoted_records),
            ingested_bytes: stats.operations.ingested_bytes,
        }
    }

    fn add(&mut self, other: &Self) {
        self.compactions += other.compactions;
        self.migrations += other.migrations;
        self.promotions += other.promotions;
        self.demotions += other.demotions;
        self.ingested_bytes += other.ingested_bytes;
    }
}

/// The calls of one seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedCalls {
    /// The seed.
    pub seed: u64,
    /// Its calls.
    pub recording: Recording,
    /// What its life went through.
    pub passed: Passed,
}

/// The calls of several seeds.
#[derive(Clone, Default)]
pub struct AllCalls {
    /// Seeds.
    pub seeds: u64,
    /// Calls of all of them.
    pub calls: u64,
    /// What their lives went through.
    pub passed: Passed,
    hasher: Xxh3,
}

impl std::fmt::Debug for AllCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} calls of {} seeds", self.calls, self.seeds)
    }
}

impl AllCalls {
    /// Adds the calls of a seed; the order counts.
    pub fn add(&mut self, of: &SeedCalls) {
        self.seeds += 1;
        self.calls += of.recording.calls;
        self.passed.add(&of.passed);
        for number in [of.seed, of.recording.calls, of.recording.hash] {
            self.hasher.update(&number.to_le_bytes());
        }
    }

    /// The hash of all calls.
    pub fn hash(&self) -> u64 {
        self.hasher.digest()
    }
}

/// Runs `seed` and records its calls; keeps their lines if `keeps_text`.
pub fn of_seed(seed: u64, keeps_text: bool) -> Result<SeedCalls, Violation> {
    recorder::start(keeps_text);
    let run = catch_panic(|| run(seed));
    let recording = recorder::finish().expect("it was started");
    let passed = run.unwrap_or_else(|said| Err(format!("it panics: {said}")))?;
    Ok(SeedCalls { seed, recording, passed })
}

/// The hash is the expected one; otherwise the difference in a line.
pub fn compare(expected: u64, found: u64) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("the device calls differ: expected hash {expected:016x}, found {found:016x}"))
}

fn run(seed: u64) -> Result<Passed, Violation> {
    let shape = campaign::crash_shape(seed);
    let mut passed = life(seed, &shape)?;
    passed.add(&life(seed, &Shape { steps: LONGER * shape.steps, ..shape })?);
    // Without calls at which something could happen: the caches, the backlog and paced writers.
    for item in steady::items(seed, &[]) {
        recorder::note(|| format!("{item:?}"));
        steady::run(seed, &item).map_err(|why| format!("{item:?}: {why}"))?;
    }
    for (drill, phase) in DRILLS.into_iter().flat_map(|drill| PHASES.map(|phase| (drill, phase))) {
        let what = format!("{drill:?} while {phase:?}");
        recorder::note(|| what.clone());
        drills::run(seed, drill, phase).map_err(|why| format!("{what}: {why}"))?;
    }
    faults(seed)?;
    Ok(passed)
}

/// A history of the shape that the crash suite has, without images.
fn life(seed: u64, shape: &Shape) -> Result<Passed, Violation> {
    recorder::note(|| format!("a life of {} steps", shape.steps));
    let known = Arc::new(RwLock::new(Known::new(shape.keys)));
    let mut life = Life::new(seed, shape, known);
    let said = |(step, stop)| format!("step {step}: {stop:?}");
    life.run(shape).map_err(said)?;
    life.rest(shape.steps).map_err(said)?;
    let passed = Passed::of(&life.db().stats());
    life.close().map_err(|stop| format!("closing: {stop:?}"))?;
    Ok(passed)
}

/// A few failing calls and falsified transfers, spread over a history.
fn faults(seed: u64) -> Result<(), Violation> {
    let kinds = errors::kinds_of(seed, &errors::SHAPE)?;
    let all = errors::faults(&kinds);
    for number in 0..FAULTS {
        let fault = &all[mix(number ^ mix(seed ^ 0xE)) as usize % all.len()];
        recorder::note(|| format!("{fault:?}"));
        errors::run_with_fault(seed, fault).map_err(|why| format!("{fault:?}: {why}"))?;
    }
    let kinds = lies::kinds_of(seed)?;
    let all = lies::faults(seed, &kinds);
    for number in 0..FAULTS {
        let lie = &all[mix(number ^ mix(seed ^ 0x11E)) as usize % all.len()];
        recorder::note(|| format!("{lie:?}"));
        lies::run_with_lie(seed, lie).map_err(|why| format!("{lie:?}: {why}"))?;
    }
    Ok(())
}
