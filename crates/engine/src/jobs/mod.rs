//! Background work: a planner says what is worth doing, workers do it step by step.
//!
//! A [`Job`] is resumable: it does a bounded piece of work a step and keeps its state in between.
//! In production worker threads run the steps; a simulation can run them one at a time on its own
//! thread. There is no queue of jobs: a worker that is free asks the [`Planner`], which knows the
//! state of the store, so nothing queued can go stale.
//!
//! [`Workers`] chooses what runs the steps: threads of the store, or, in a simulation, the caller,
//! one step at a time by a [`Stepper`]. A caller that has to wait for background work calls
//! [`Jobs::wait`], which then steps instead of sleeping.
//!
//! A worker that finds nothing to do sleeps until something wakes it. The last one that does looks
//! now and then whether the store has come to rest ([`Planner::look_for_rest`]), and ends that with
//! the rest: a store that is left alone wakes no thread.
//!
//! There are four lanes. Flushes have a worker of their own, and so has the upkeep of logs (syncs,
//! the next log): writers wait for both, so neither a compaction nor the other is in front of them.
//! So has an index in persistent memory, which tables enter while others are flushed.
//!
//! What a job takes (claims, memory, promises of the write budget, files that are not published)
//! it gives back when it is dropped, whether it is done, failed or panicked; but for what an edit
//! of unknown outcome may own, which waits for the next opening. `engine/at_rest.rs` lists what can
//! be forgotten. An error that a job returns stops all writing, unless it was refused, for want of
//! room or of a descriptor: then it has changed nothing, and the plan finds it again.
//!
//! A job that panics on a thread of the store stops all writing, as one that fails does, and the
//! worker lives on; callers that wait for the job get an error. Nothing catches a panic where the
//! caller steps.

pub(crate) mod shortage;

use crate::error::{Error, ErrorKind, Result};
use shortage::{Moment, Shortage};
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex, MutexGuard};
use thermocline_foundation::threads;
use thermocline_foundation::threads::JoinHandle;

/// Whether a job has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    More,
    Done,
}

/// Work in bounded steps. A job that is dropped before it is done leaves nothing behind.
pub(crate) trait Job: Send + Debug {
    /// What it does, for the log.
    fn name(&self) -> &'static str;

    /// Does the next piece.
    fn step(&mut self) -> Result<Step>;
}

/// Done and total bytes of long work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all, as far as known.
    pub total_bytes: u64,
}

/// Which worker a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Flush,
    Upkeep,
    /// Of the index in persistent memory.
    Index,
    Bulk,
}

/// Knows what is worth doing.
pub(crate) trait Planner: Send + Sync + Debug {
    /// The most useful job of the lane, claimed by this call; none if there is nothing to do.
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>>;

    /// A job that was begun then failed; writing must stop, unless the job has changed nothing.
    fn failed(&self, job: &'static str, begun: Moment, error: &Error);

    /// A job panicked and said `text`; writing must stop. What the job has claimed is given back
    /// only afterwards.
    fn panicked(&self, job: &'static str, text: &str);

    /// All workers are idle, and were at the last look, if there was one [`LOOK_EVERY`] ago.
    fn look_for_rest(&self) -> Look {
        Look::Ended
    }
}

/// What a look for rest comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The store may rest at the next look.
    Again,
    /// It rests since this look: there may be new work.
    Rests,
    /// There is nothing to look for.
    Ended,
}

/// Between two looks for rest.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Steps after which stepped work is taken for endless.
const STEPS_MAX: u64 = 1 << 22;

/// The name of what comes before a job.
const PLANNING: &str = "planning";

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    /// Goes up when there may be new work.
    generation: u64,
    /// Workers that found nothing to do in this generation.
    idle: usize,
    started: usize,
}

impl State {
    fn advance(&mut self) {
        self.generation += 1;
        self.idle = 0;
    }
}

/// What carries out the background work of a store.
#[derive(Clone, Debug, Default)]
pub enum Workers {
    /// Threads of its own.
    #[default]
    Threads,
    /// The caller of [`Stepper::step`], and callers that have to wait: for simulations.
    Stepped(Arc<Stepper>),
}

/// Background work of stores, one step at a time on the calling thread, in an order drawn from a
/// seed: the same calls give the same history.
#[derive(Debug)]
pub struct Stepper {
    random: Mutex<Random>,
    /// A step runs; it cannot be interrupted by another.
    stepping: AtomicBool,
    stores: Mutex<Vec<Arc<Lanes>>>,
    /// The job that was at work last.
    last: Mutex<&'static str>,
}

/// The stepped work of one store: a place for each worker that it would have.
#[derive(Debug)]
struct Lanes {
    planner: Weak<dyn Planner>,
    jobs: Arc<Jobs>,
    places: Mutex<Vec<Place>>,
}

/// A worker that is none: its lane, and the job it is at, with when that was begun.
#[derive(Debug)]
struct Place {
    lane: Lane,
    running: Option<(Box<dyn Job>, Moment)>,
}

impl Lanes {
    /// One step of the work at `place`, which is begun where there is none, and the job's name;
    /// none if nothing is worth doing there.
    fn step(&self, place: usize) -> Option<&'static str> {
        let (lane, running) = {
            let mut places = self.places.lock();
            (places[place].lane, places[place].running.take())
        };
        let planned = || {
            let begun = self.jobs.shortage.begin();
            self.planner.upgrade()?.plan(lane).map(|job| (job, begun))
        };
        let (mut job, begun) = running.or_else(planned)?;
        let name = job.name();
        if self.jobs.step(&self.planner, &mut *job, begun) == Step::More {
            self.places.lock()[place].running = Some((job, begun));
        }
        Some(name)
    }
}

impl Stepper {
    /// A stepper whose order follows from `seed`.
    pub fn new(seed: u64) -> Self {
        let random = Mutex::new(Random::new(seed));
        Self {
            random,
            stepping: AtomicBool::new(false),
            stores: Mutex::default(),
            last: Mutex::new(PLANNING),
        }
    }

    /// Does one step of some background work; false if there is none, or if the call comes from
    /// within a step.
    pub fn step(&self) -> bool {
        if self.stepping.swap(true, Ordering::AcqRel) {
            return false;
        }
        let stores = self.stores.lock().clone();
        let sizes = stores.iter().map(|lanes| lanes.places.lock().len());
        let mut choices: Vec<_> = std::iter::zip(&stores, sizes)
            .flat_map(|(lanes, size)| (0..size).map(move |place| (lanes, place)))
            .collect();
        let mut stepped = false;
        while !stepped && !choices.is_empty() {
            let choice = self.random.lock().below(choices.len() as u64) as usize;
            let (lanes, place) = choices.swap_remove(choice);
            if let Some(job) = lanes.step(place) {
                *self.last.lock() = job;
                stepped = true;
            }
        }
        self.stepping.store(false, Ordering::Release);
        stepped
    }

    fn add(&self, planner: &Arc<dyn Planner>, jobs: &Arc<Jobs>, lanes: Vec<Lane>) {
        let places = lanes.into_iter().map(|lane| Place { lane, running: None }).collect();
        let lanes = Lanes {
            planner: Arc::downgrade(planner),
            jobs: Arc::clone(jobs),
            places: Mutex::new(places),
        };
        self.stores.lock().push(Arc::new(lanes));
    }

    /// Ends the work of a store, in the middle of its jobs where need be.
    fn remove(&self, jobs: &Jobs) {
        let mut stores = self.stores.lock();
        let found = stores.iter().position(|lanes| std::ptr::eq(&*lanes.jobs, jobs));
        let removed = found.map(|index| stores.swap_remove(index));
        drop(stores);
        drop(removed);
    }
}

/// See [`LOOK_EVERY`].
#[derive(Debug)]
struct LookEvery(Duration);

impl Default for LookEvery {
    fn default() -> Self {
        Self(LOOK_EVERY)
    }
}

/// The workers and their signal.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
    workers: Mutex<Vec<JoinHandle<()>>>,
    look_every: LookEvery,
    stepper: Option<Arc<Stepper>>,
    pub shortage: Shortage,
}

impl Jobs {
    /// No work yet.
    pub fn new(workers: &Workers) -> Self {
        let stepper = match workers {
            Workers::Threads => None,
            Workers::Stepped(stepper) => Some(Arc::clone(stepper)),
        };
        Self { stepper, ..Self::default() }
    }

    /// Callers do the steps.
    pub fn are_stepped(&self) -> bool {
        self.stepper.is_some()
    }

    /// Starts a worker for each lane of `lanes`, and `bulk` others.
    pub fn start(
        self: &Arc<Self>,
        planner: &Arc<dyn Planner>,
        lanes: &[Lane],
        bulk: u32,
    ) -> Result<()> {
        let lanes: Vec<_> = lanes.iter().copied().chain((0..bulk).map(|_| Lane::Bulk)).collect();
        if let Some(stepper) = &self.stepper {
            stepper.add(planner, self, lanes);
            return Ok(());
        }
        let count = lanes.len();
        // Before any of them runs: the last one that finds nothing to do looks whether the store
        // rests.
        self.state.lock().started += count;
        for (index, lane) in lanes.into_iter().enumerate() {
            let (jobs, planner) = (Arc::clone(self), Arc::downgrade(planner));
            let worker = threads::spawn(&format!("thermocline-{index}"), move || {
                jobs.work(&planner, lane);
            })
            .map_err(|error| {
                self.state.lock().started -= count - index;
                Error::new(ErrorKind::Io, format!("cannot start a background thread: {error}"))
            })?;
            self.workers.lock().push(worker);
        }
        Ok(())
    }

    /// Says that there may be work.
    pub fn wake(&self) {
        self.state.lock().advance();
        self.changed.notify_all();
    }

    /// Ends the workers after the steps they are in.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
        if let Some(stepper) = &self.stepper {
            stepper.remove(self);
        }
        for worker in self.workers.lock().drain(..) {
            // Workers catch what panics in them, so this finds nothing to tell.
            drop(worker.join());
        }
    }

    /// Waits until every worker has found nothing to do, or nothing that it can do.
    pub fn wait_idle(&self) {
        let since = self.shortage.moment();
        if let Some(stepper) = &self.stepper {
            // A mistake that gives out work for ever must not make a simulation wait for ever.
            let gives_up = || self.shortage.is_lasting_since(since);
            let ended = (0..STEPS_MAX).any(|_| !stepper.step() || gives_up());
            let last = *stepper.last.lock();
            assert!(ended, "background work does not come to an end: the last job was {last}");
            if !gives_up() {
                self.shortage.forget(ErrorKind::TooManyOpenFiles);
            }
            return;
        }
        let mut state = self.state.lock();
        let gives_up = || self.shortage.is_lasting_since(since);
        while !state.stopping && state.idle < state.started && !gives_up() {
            self.changed.wait(&mut state);
        }
    }

    /// Waits for `changed`, which background work signals; `guard` is free meanwhile.
    pub fn wait<T>(&self, changed: &Condvar, guard: &mut MutexGuard<'_, T>) {
        match &self.stepper {
            None => changed.wait(guard),
            Some(stepper) => {
                let stepped = MutexGuard::unlocked(guard, || stepper.step());
                assert!(stepped, "a caller waits for background work, and there is none");
            }
        }
    }

    /// Waits a moment for what background work holds: a step of it where the caller steps, else
    /// `sleep`.
    pub fn let_work(&self, sleep: impl FnOnce()) {
        if !self.stepper.as_ref().is_some_and(|stepper| stepper.step()) {
            sleep();
        }
    }

    fn work(&self, planner: &Weak<dyn Planner>, lane: Lane) {
        loop {
            let generation = {
                let state = self.state.lock();
                if state.stopping {
                    return;
                }
                state.generation
            };
            let begun = self.shortage.begin();
            let plan = || planner.upgrade().and_then(|planner| planner.plan(lane));
            match caught(planner, PLANNING, plan).flatten() {
                Some(job) => {
                    self.run(planner, job, begun);
                    // What is done may make something else worth doing.
                    self.wake();
                }
                None => self.wait_for_work(planner, generation),
            }
        }
    }

    /// Waits until there may be more work than in `generation`.
    fn wait_for_work(&self, planner: &Weak<dyn Planner>, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.idle += 1;
            if state.idle == state.started {
                self.shortage.forget(ErrorKind::TooManyOpenFiles);
            }
            self.changed.notify_all();
        }
        let mut looks = state.generation == generation && state.idle == state.started;
        while !state.stopping && state.generation == generation {
            if !looks {
                self.changed.wait(&mut state);
            } else if self.changed.wait_for(&mut state, self.look_every.0).timed_out() {
                let look = || planner.upgrade().map(|planner| planner.look_for_rest());
                let look = MutexGuard::unlocked(&mut state, || caught(planner, PLANNING, look));
                looks = look.flatten() == Some(Look::Again);
                if look.flatten() == Some(Look::Rests) && state.generation == generation {
                    state.advance();
                    self.changed.notify_all();
                }
            }
        }
    }

    fn run(&self, planner: &Weak<dyn Planner>, mut job: Box<dyn Job>, begun: Moment) {
        let name = job.name();
        while caught(planner, name, || self.step(planner, &mut *job, begun)) == Some(Step::More) {
            if self.state.lock().stopping {
                break;
            }
        }
        caught(planner, name, || drop(job));
    }

    /// A step of a job that was begun then; one that fails is done.
    fn step(&self, planner: &Weak<dyn Planner>, job: &mut dyn Job, begun: Moment) -> Step {
        // What it reads and writes makes way for writes of the log.
        let stepped = {
            let _scope = thermocline_device::background();
            job.step()
        };
        match stepped {
            Ok(Step::More) => Step::More,
            Ok(Step::Done) => {
                self.shortage.end(job.name());
                Step::Done
            }
            Err(error) => {
                if let Some(planner) = planner.upgrade() {
                    planner.failed(job.name(), begun, &error);
                }
                Step::Done
            }
        }
    }
}

/// What `body`, a part of `job`, gives; none where it panics, and then the planner hears of the
/// panic.
fn caught<T>(
    planner: &Weak<dyn Planner>,
    job: &'static str,
    body: impl FnOnce() -> T,
) -> Option<T> {
    let told = |panic: threads::Panic| {
        if let Some(planner) = planner.upgrade() {
            planner.panicked(job, &panic.to_string());
        }
    };
    threads::catch_panic(body).map_err(told).ok()
}

#[cfg(test)]
mod tests;
