//! Background work: a planner says what is worth doing, workers do it step by step.
//!
//! A [`Job`] is resumable: it does a bounded piece of work a step and keeps its state in between.
//! In production worker threads run the steps; a simulation can run them one at a time on its own
//! thread. Nobody queues jobs: a worker that is free asks the [`Planner`], which knows the state of
//! the store, so no queue can go stale.
//!
//! There are three lanes. Flushes have a worker of their own, and so has the upkeep of logs (syncs,
//! the next log): writers wait for both, so neither a compaction nor the other is in front of them.

use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use thermocline_foundation::threads;

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

/// Which worker a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Flush,
    Upkeep,
    Bulk,
}

/// Knows what is worth doing.
pub(crate) trait Planner: Send + Sync + Debug {
    /// The most useful job of the lane, claimed by this call; none if there is nothing to do.
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>>;

    /// A job failed; writing must stop.
    fn failed(&self, job: &'static str, error: &Error);
}

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

/// The workers and their signal.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    state: Mutex<State>,
    changed: Condvar,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl Jobs {
    /// Starts a worker for each lane that writers wait for, and `bulk` others.
    pub fn start(self: &Arc<Self>, planner: &Arc<dyn Planner>, bulk: u32) -> Result<()> {
        let lanes = [Lane::Flush, Lane::Upkeep].into_iter().chain((0..bulk).map(|_| Lane::Bulk));
        for (index, lane) in lanes.enumerate() {
            let (jobs, planner) = (Arc::clone(self), Arc::downgrade(planner));
            let worker = threads::spawn(&format!("thermocline-{index}"), move || {
                jobs.work(&planner, lane);
            })
            .map_err(|error| {
                Error::new(
                    crate::ErrorKind::Io,
                    format!("cannot start a background thread: {error}"),
                )
            })?;
            self.workers.lock().push(worker);
            self.state.lock().started += 1;
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
        for worker in self.workers.lock().drain(..) {
            // A worker that panicked has already printed why.
            drop(worker.join());
        }
    }

    /// Waits until every worker has found nothing to do.
    pub fn wait_idle(&self) {
        let mut state = self.state.lock();
        while !state.stopping && state.idle < state.started {
            self.changed.wait(&mut state);
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
            match planner.upgrade().and_then(|planner| planner.plan(lane)) {
                Some(job) => {
                    self.run(planner, job);
                    // What is done may make something else worth doing.
                    self.wake();
                }
                None => self.wait_for_work(generation),
            }
        }
    }

    /// Waits until there may be more work than in `generation`.
    fn wait_for_work(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.idle += 1;
            self.changed.notify_all();
        }
        while !state.stopping && state.generation == generation {
            self.changed.wait(&mut state);
        }
    }

    fn run(&self, planner: &Weak<dyn Planner>, mut job: Box<dyn Job>) {
        loop {
            match job.step() {
                Ok(Step::More) if self.state.lock().stopping => return,
                Ok(Step::More) => {}
                Ok(Step::Done) => return,
                Err(error) => {
                    if let Some(planner) = planner.upgrade() {
                        planner.failed(job.name(), &error);
                    }
                    return;
                }
            }
        }
    }
}
