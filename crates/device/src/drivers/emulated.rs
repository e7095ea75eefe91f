//! Any driver, slowed down to the figures of another device.
//!
//! The wrapped driver does the work; a request completes at the later of its own completion and
//! the time the model (`model.rs`) gives. Time comes from a [`Clock`], so that a simulation runs
//! as fast as it can compute and a test can name the nanosecond.
//!
//! ```text
//!   submit --> model says when --> inner queue --> held until then --> reap
//! ```
//!
//! Invariants:
//! 1. Nothing completes before its modelled time; nothing is slowed down further than the kernel's
//!    timer makes unavoidable, and lateness never adds up, since times are booked at submission.
//! 2. Data is where the wrapped driver keeps it: handles, names and locks are its own.
//! 3. Syncs of the directory take the model's sync time; other directory operations take none.
//!
//! Threads: as the contract says; the device is one, however many queues there are.

use super::model::{Access, DeviceModel, Position, Schedule};
use crate::driver::{
    Completion, DirectoryLock, Driver, Entry, Handle, Operation, Queue, Request, Space,
};
use crate::error::Result;
use std::cell::Cell;
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::Clock;

/// The driver.
#[derive(Debug)]
pub struct EmulatedDriver {
    inner: Arc<dyn Driver>,
    device: Arc<Device>,
    text: String,
}

/// The modelled device and the clock it lives by.
#[derive(Debug)]
struct Device {
    schedule: Schedule,
    clock: Arc<dyn Clock>,
}

impl EmulatedDriver {
    /// `inner`, as slow as `model`; `device` names it in messages.
    pub fn new(
        inner: Arc<dyn Driver>,
        device: &str,
        model: DeviceModel,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let text = format!("{} as {device}", inner.describe());
        let device = Arc::new(Device {
            schedule: Schedule::new(model),
            clock,
        });
        Self {
            inner,
            device,
            text,
        }
    }
}

impl Device {
    /// Books `operation` and says when it is done.
    fn book(&self, file: &Handle, operation: &Operation) -> u64 {
        // Handles are told apart by address: one that is reused only misjudges one disk seek.
        let position = |offset| Position {
            file: Arc::as_ptr(file).addr(),
            offset,
        };
        let access = match operation {
            Operation::Read { offset, buffer } => Access::Read {
                position: position(*offset),
                len: buffer.len(),
            },
            Operation::Write { offset, buffer } => Access::Write {
                position: position(*offset),
                len: buffer.len(),
            },
            Operation::Sync => Access::Sync,
        };
        self.schedule.schedule(self.clock.now_ns(), access)
    }

    fn wait_until(&self, due_ns: u64) {
        loop {
            let now = self.clock.now_ns();
            if now >= due_ns {
                return;
            }
            sharpen_timer();
            self.clock.sleep(Duration::from_nanos(due_ns - now));
        }
    }
}

/// The kernel lets sleeps end up to 50 us late to save power, eight times the latency of the
/// fastest profile. Each thread that waits asks for 1 us once; where that is refused it stays slow.
fn sharpen_timer() {
    const SLACK_NS: Option<NonZeroU64> = NonZeroU64::new(1_000);
    thread_local!(static SHARP: Cell<bool> = const { Cell::new(false) });
    SHARP.with(|sharp| {
        if !sharp.replace(true)
            && let Err(error) = rustix::thread::set_current_timer_slack(SLACK_NS)
        {
            tracing::debug!(%error, "timers of this thread stay coarse");
        }
    });
}

/// A finished or running request of a queue.
#[derive(Debug)]
struct Due {
    tag: u64,
    due_ns: u64,
    /// Present once the wrapped queue has finished it.
    done: Option<Completion>,
}

/// Requests under their own numbers, since callers may use a tag twice.
#[derive(Debug)]
struct EmulatedQueue {
    inner: Box<dyn Queue>,
    device: Arc<Device>,
    due: HashMap<u64, Due>,
    next: u64,
    batch: Vec<Request>,
    fetched: Vec<Completion>,
}

impl EmulatedQueue {
    /// Takes what the wrapped queue has finished, waiting for at least `at_least`.
    fn fetch(&mut self, at_least: usize) {
        self.inner.reap(at_least, &mut self.fetched);
        for completion in self.fetched.drain(..) {
            if let Some(due) = self.due.get_mut(&completion.tag) {
                due.done = Some(completion);
            }
        }
    }

    /// Appends what is finished and due, the earliest first.
    fn release(&mut self, completions: &mut Vec<Completion>) -> usize {
        let now = self.device.clock.now_ns();
        let ready = |due: &Due| due.due_ns <= now && due.done.is_some();
        let mut numbers: Vec<(u64, u64)> = self
            .due
            .iter()
            .filter(|(_, due)| ready(due))
            .map(|(number, due)| (due.due_ns, *number))
            .collect();
        numbers.sort_unstable();
        let before = completions.len();
        for (_, number) in numbers {
            if let Some(Due {
                tag,
                done: Some(done),
                ..
            }) = self.due.remove(&number)
            {
                completions.push(Completion { tag, ..done });
            }
        }
        completions.len() - before
    }
}

impl Queue for EmulatedQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            let Request {
                tag,
                file,
                operation,
            } = request;
            let number = self.next;
            self.next += 1;
            let due_ns = self.device.book(&file, &operation);
            self.due.insert(
                number,
                Due {
                    tag,
                    due_ns,
                    done: None,
                },
            );
            self.batch.push(Request {
                tag: number,
                file,
                operation,
            });
        }
        self.inner.submit(&mut self.batch);
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        assert!(
            at_least <= self.in_flight(),
            "reaping more than is in flight"
        );
        self.fetch(0);
        let mut count = self.release(completions);
        while count < at_least {
            // Whichever is due first decides what to wait for: the clock or the device below.
            match self
                .due
                .values()
                .min_by_key(|due| (due.due_ns, due.done.is_none()))
            {
                Some(Due {
                    due_ns,
                    done: Some(_),
                    ..
                }) => self.device.wait_until(*due_ns),
                _ => self.fetch(1),
            }
            count += self.release(completions);
        }
        count
    }

    fn in_flight(&self) -> usize {
        self.due.len()
    }
}

impl Driver for EmulatedDriver {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn describe(&self) -> String {
        self.text.clone()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.inner.create(name)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.inner.open(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        let due = self
            .device
            .schedule
            .schedule(self.device.clock.now_ns(), Access::Sync);
        let result = self.inner.sync_directory();
        self.device.wait_until(due);
        result
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(name)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(EmulatedQueue {
            inner: self.inner.queue(depth)?,
            device: Arc::clone(&self.device),
            due: HashMap::new(),
            next: 0,
            batch: Vec::new(),
            fetched: Vec::new(),
        }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        let due = self.device.book(file, &operation);
        let completion = self.inner.execute(file, operation);
        self.device.wait_until(due);
        completion
    }

    fn host_directory(&self) -> Option<&Path> {
        self.inner.host_directory()
    }

    fn try_link(&self, name: &str, into: &dyn Driver) -> Result<bool> {
        self.inner.try_link(name, into)
    }
}
