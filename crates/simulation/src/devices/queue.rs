//! Batches of requests: carried out one by one, when they are reaped, in an order of their own.
//!
//! Threads: a queue belongs to one thread; simulations have one.

use super::driver::{Devices, execute};
use crate::recorder::Operands;
use std::path::PathBuf;
use thermocline_device::{Completion, Queue, Request};
use thermocline_foundation::random::Random;

/// Carries requests out when they are reaped, in an order of its own.
#[derive(Debug)]
pub(super) struct SimulatedQueue {
    devices: Devices,
    path: PathBuf,
    waiting: Vec<Request>,
    reaped: u64,
}

impl SimulatedQueue {
    /// A queue of the directory `path`.
    pub fn new(devices: Devices, path: PathBuf) -> Self {
        Self { devices, path, waiting: Vec::new(), reaped: 0 }
    }

    fn record(&self, kind: &str, number: usize) {
        self.devices.record(kind, &self.path, "", Operands::Number(number as u64));
    }
}

impl Queue for SimulatedQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        self.record("Submit", requests.len());
        self.waiting.append(requests);
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        assert!(at_least <= self.waiting.len(), "reaping more than is in flight");
        self.record("Reap", at_least);
        self.reaped += 1;
        let mut random = Random::new(self.reaped);
        let spare = self.waiting.len() - at_least;
        let count = at_least + if spare > 0 { random.below(spare as u64 + 1) as usize } else { 0 };
        for _ in 0..count {
            let index = random.below(self.waiting.len() as u64) as usize;
            let request = self.waiting.swap_remove(index);
            let completion = execute(&request.file, request.operation);
            completions.push(Completion { tag: request.tag, ..completion });
        }
        count
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}
