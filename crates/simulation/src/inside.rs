//! A client's reads inside the steps of jobs: at each call of a job that changes something on a
//! device, keys are looked up and now and then all of them are, as by a thread that runs between a
//! job's work and its lock. Every answer is the model's.
//!
//! 1. The client reads and does nothing else: a write could wait for the very job that it
//!    interrupts, for ever. Reads wait for nothing.
//! 2. It is let in during steps of the history that write nothing, so what is right is certain.
//!
//! Threads: one. The client runs in the calls of the devices ([`Watcher`]).

use crate::devices::{CallKind, Devices, Watcher};
use crate::history::{Shape, Step, history, key};
use crate::life::{Life, name_of};
use crate::oracle::{Known, Violation, Wrong};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use thermocline::{Db, Stats};
use thermocline_foundation::random::{Random, mix};

/// The histories that are read from within.
const SHAPE: Shape =
    Shape { steps: 60, keys: 24, crashes: false, reopens: false, large_values: false };

/// Steps of background work after each step of the history.
const STEPS: u32 = 4;

/// One in so many times the client asks for everything.
const ALL_ONE_IN: u64 = 8;

/// See the module's header.
struct Client {
    db: Db,
    known: Arc<RwLock<Known>>,
    is_let_in: AtomicBool,
    /// It reads; its own calls let it in no further.
    is_busy: AtomicBool,
    state: Mutex<State>,
}

struct State {
    random: Random,
    reads: u64,
    /// The first wrong answer.
    wrong: Option<Violation>,
}

impl Client {
    fn read(&self) -> Result<(), Wrong> {
        let (number, is_all) = {
            let mut state = self.state.lock();
            state.reads += 1;
            (state.random.below(SHAPE.keys), state.random.below(ALL_ONE_IN) == 0)
        };
        let known = self.known.read_recursive();
        if is_all {
            return known.check_reads(&self.db, known.count());
        }
        let key = key(number);
        let right = known.model().get(&key).map(Vec::as_slice);
        let snapshot = self.db.snapshot();
        for (how, got) in [("get", self.db.get(&key)), ("snapshot", snapshot.get(&key))] {
            let got = got.map_err(|error| Wrong::Error(how, error))?;
            if got.as_deref() != right {
                let name = key.escape_ascii();
                return Err(Wrong::Answer(format!("{how} of {name} is not the newest")));
            }
        }
        Ok(())
    }
}

impl Watcher for Client {
    fn changed(&self, _: &Devices, _: u64, _: CallKind) {
        if !self.is_let_in.load(SeqCst) || self.is_busy.swap(true, SeqCst) {
            return;
        }
        if let Err(wrong) = self.read() {
            self.state.lock().wrong.get_or_insert(format!("{wrong:?}"));
        }
        self.is_busy.store(false, SeqCst);
    }
}

/// Carries out the history of `seed` with a client inside; says how often it read, and what the
/// store did meanwhile.
pub fn run(seed: u64) -> Result<(u64, Stats), Violation> {
    let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
    let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
    life.create().map_err(|stop| format!("step 0: {stop:?}"))?;
    let random = Random::new(mix(seed ^ 0x1451DE));
    let client = Arc::new(Client {
        db: life.db().clone(),
        known,
        is_let_in: AtomicBool::new(false),
        is_busy: AtomicBool::new(false),
        state: Mutex::new(State { random, reads: 0, wrong: None }),
    });
    life.watch(Arc::clone(&client) as Arc<dyn Watcher>);
    let end = [Step::Flush, Step::Compact, Step::Settle];
    for (index, step) in history(seed, &SHAPE).into_iter().chain(end).enumerate() {
        for step in [step, Step::Background(STEPS)] {
            let writes = matches!(step, Step::Write(..) | Step::Ingest(_) | Step::Checkpoint);
            client.is_let_in.store(!writes, SeqCst);
            life.step(&step).map_err(|stop| format!("step {index}: {stop:?}"))?;
            if let Some(why) = client.state.lock().wrong.take() {
                return Err(format!("step {index}, inside {}: {why}", name_of(&step)));
            }
        }
    }
    client.is_let_in.store(false, SeqCst);
    life.machine.devices.watch(None);
    life.check_all().map_err(|stop| format!("at the end: {stop:?}"))?;
    let (reads, stats) = (client.state.lock().reads, client.db.stats());
    drop(client);
    life.close().map_err(|stop| format!("closing: {stop:?}"))?;
    Ok((reads, stats))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reads_inside_the_jobs_of_both_presets() {
        let (mut merges, mut demoted) = (0, 0);
        for seed in 1..=8 {
            let (reads, stats) = run(seed).unwrap();
            assert!(reads > 100, "seed {seed}: {reads}");
            merges += stats.operations.compactions;
            demoted += stats.fast_tier.map_or(0, |fast| fast.demoted_records);
        }
        assert!(merges > 10 && demoted > 10, "{merges} merges, {demoted} records");
    }
}
