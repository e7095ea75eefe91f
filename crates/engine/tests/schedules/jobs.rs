//! Workers and their signal: work that was announced is done, and everything ends.

use super::support::*;
use crate::error::{Error, Result};
use crate::jobs::shortage::Moment;
use crate::jobs::{Job, Jobs, Lane, Planner, Step};
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;

/// Work that is counted: pieces to do and pieces done in each lane.
#[derive(Debug, Default)]
struct Ledger {
    waiting: Mutex<[u32; 4]>,
    done: Mutex<u32>,
    running: Mutex<[u32; 4]>,
}

#[derive(Debug)]
struct Plan(Arc<Ledger>);

#[derive(Debug)]
struct Piece {
    ledger: Arc<Ledger>,
    lane: Lane,
    steps: u32,
}

impl Planner for Plan {
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>> {
        let mut waiting = self.0.waiting.lock();
        let left = waiting[lane as usize].checked_sub(1)?;
        waiting[lane as usize] = left;
        drop(waiting);
        let mut running = self.0.running.lock();
        running[lane as usize] += 1;
        let most = if lane == Lane::Bulk { 2 } else { 1 };
        assert!(running[lane as usize] <= most, "a lane has the workers it has");
        Some(Box::new(Piece { ledger: Arc::clone(&self.0), lane, steps: 2 }))
    }

    fn failed(&self, job: &'static str, _begun: Moment, error: &Error) {
        panic!("{job}: {error}");
    }

    fn panicked(&self, job: &'static str, text: &str) {
        panic!("{job}: {text}");
    }
}

impl Job for Piece {
    fn name(&self) -> &'static str {
        "piece"
    }

    fn step(&mut self) -> Result<Step> {
        self.steps -= 1;
        if self.steps > 0 {
            return Ok(Step::More);
        }
        *self.ledger.done.lock() += 1;
        Ok(Step::Done)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.ledger.running.lock()[self.lane as usize] -= 1;
    }
}

fn start() -> (Arc<Ledger>, Arc<Jobs>, Arc<dyn Planner>) {
    let ledger = Arc::new(Ledger::default());
    let planner: Arc<dyn Planner> = Arc::new(Plan(Arc::clone(&ledger)));
    let jobs = Arc::new(Jobs::default());
    jobs.start(&planner, &[Lane::Flush, Lane::Upkeep], 2).unwrap();
    (ledger, jobs, planner)
}

fn announce(ledger: &Ledger, jobs: &Jobs, lane: Lane) {
    ledger.waiting.lock()[lane as usize] += 1;
    jobs.wake();
}

#[test]
fn announced_work_is_done_before_the_workers_are_idle() {
    check(5000, || {
        let (ledger, jobs, planner) = start();
        let announcers = [Lane::Flush, Lane::Bulk].map(|lane| {
            let (ledger, jobs) = (Arc::clone(&ledger), Arc::clone(&jobs));
            spawn(move || {
                announce(&ledger, &jobs, lane);
                announce(&ledger, &jobs, Lane::Upkeep);
            })
        });
        join(announcers);
        jobs.wait_idle();
        assert_eq!(*ledger.done.lock(), 4);
        jobs.stop();
        assert_eq!(*ledger.running.lock(), [0; 4], "no job outlives its worker");
        drop(planner);
    });
}

#[test]
fn stopping_joins_every_worker_whatever_it_is_at() {
    check(5000, || {
        let (ledger, jobs, planner) = start();
        let announcer = {
            let (ledger, jobs) = (Arc::clone(&ledger), Arc::clone(&jobs));
            spawn(move || {
                for lane in [Lane::Bulk, Lane::Bulk, Lane::Bulk, Lane::Flush] {
                    announce(&ledger, &jobs, lane);
                }
            })
        };
        let waiter = {
            let jobs = Arc::clone(&jobs);
            spawn(move || jobs.wait_idle())
        };
        jobs.stop();
        assert_eq!(*ledger.running.lock(), [0; 4], "no job outlives its worker");
        join([announcer, waiter]);
        drop(planner);
    });
}
