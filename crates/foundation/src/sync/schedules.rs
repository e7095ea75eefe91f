//! Runs a test under many schedules, each of which follows from a seed.
//!
//! Half of the schedules are random at each choice; half follow PCT (Burckhardt et al., ASPLOS
//! 2010): threads have random priorities, which change at a few random places, and that reaches
//! orders in which one thread stands still for long.
//!
//! A failure prints the kind of schedule, its number and the seed. The same seed finds it again:
//!
//! ```text
//! THERMOCLINE_SEED=7 cargo xtask schedules writers_are_acknowledged
//! ```
//! `THERMOCLINE_SCHEDULES` multiplies the number of schedules.
//!
//! Compiled with `--cfg shuttle` only, for tests.

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use shuttle::thread::yield_now;

/// A word that is no point of scheduling, for memory of which there is much: what is read and
/// written of it between two such points happens at once.
pub use std::sync::atomic::AtomicU64 as UnscheduledU64;

/// Priorities change at this many places of a PCT schedule: bugs need few.
const PCT_DEPTH: usize = 3;
/// Memory of a thread's stack; pages that are not touched cost nothing.
const STACK_BYTES: usize = 1 << 20;
/// Choices after which a schedule counts as one that never ends.
const STEPS_MAX: usize = 2_000_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Says which schedule failed, when dropped in a panic.
struct Report {
    kind: &'static str,
    seed: u64,
    done: Arc<AtomicUsize>,
}

impl Drop for Report {
    #[allow(clippy::disallowed_macros, reason = "a failing test says how it is repeated")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (kind, seed, done) = (self.kind, self.seed, self.done.load(Relaxed));
            eprintln!("{kind} schedule {done} failed; THERMOCLINE_SEED={seed} finds it again");
        }
    }
}

/// Runs `body` under `schedules` schedules (times `THERMOCLINE_SCHEDULES`). A panic in any thread,
/// a
/// deadlock, and a schedule without end are failures.
///
/// # Panics
/// When a schedule fails.
pub fn check(schedules: usize, body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let count = schedules * number("THERMOCLINE_SCHEDULES", 1) as usize;
    let seed = number("THERMOCLINE_SEED", 1);
    let half = count.div_ceil(2);
    run("random", seed, RandomScheduler::new_from_seed(seed, half), &body);
    run("pct", seed, PctScheduler::new_from_seed(seed, PCT_DEPTH, half), &body);
}

fn run(
    kind: &'static str,
    seed: u64,
    scheduler: impl Scheduler + 'static,
    body: &Arc<impl Fn() + Send + Sync + 'static>,
) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    // A schedule of a whole database has some ten thousand choices; the seed says it shorter.
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let done = Arc::new(AtomicUsize::new(0));
    let _report = Report { kind, seed, done: Arc::clone(&done) };
    let body = Arc::clone(body);
    Runner::new(scheduler, config).run(move || {
        done.fetch_add(1, Relaxed);
        body();
    });
}
