//! The line of writers.
//!
//! Writers line up; the first leads. The leader takes every batch in line, and they are written as
//! one group. Then the next in line leads. So one device flush serves all that wait, and a writer
//! that is alone pays for no hand-over. Where the log is written by many at once, several lead.

use crate::settings::Durability;
use crate::transaction::{Check, Refused};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex};

/// A batch to write.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    pub encoded: Bytes,
    pub count: u32,
    pub durability: Durability,
    /// What must hold when it is written.
    pub check: Option<Arc<Check>>,
}

/// A writer that waits in line.
#[derive(Debug)]
pub(super) struct Waiter {
    pub submission: Submission,
    turn: Mutex<Option<Turn>>,
    changed: Condvar,
}

/// What a writer that waited is to do.
#[derive(Debug)]
pub(super) enum Turn {
    Lead,
    Done(Result<Sequence, Refused>),
}

impl Waiter {
    pub fn wait(&self) -> Turn {
        let mut turn = self.turn.lock();
        loop {
            match turn.take() {
                Some(turn) => return turn,
                None => self.changed.wait(&mut turn),
            }
        }
    }

    pub fn set(&self, to: Turn) {
        *self.turn.lock() = Some(to);
        self.changed.notify_one();
    }
}

/// How a writer enters the line.
#[derive(Debug)]
pub(super) enum Entered {
    /// No other is there: it leads, with its own batch alone.
    Leads(Submission),
    /// Another leads.
    Waits(Arc<Waiter>),
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct WriteQueue {
    /// Writers that may lead at once.
    leaders_max: usize,
    /// Bytes of batches that one leader takes.
    group_bytes_max: u64,
    /// One leads at a time for now: groups side by side would leave too much of the log empty.
    gathers: AtomicBool,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Writers that lead, or have been told to.
    leaders: usize,
    waiting: VecDeque<Arc<Waiter>>,
}

impl WriteQueue {
    /// At most `leaders_max` writers lead at once.
    /// Groups of several batches have `group_bytes_max` at most.
    pub fn new(leaders_max: usize, group_bytes_max: u64) -> Self {
        let gathers = AtomicBool::new(false);
        Self { leaders_max, group_bytes_max, gathers, line: Mutex::default() }
    }

    /// Has writers gather into larger groups, or lead side by side again.
    pub fn set_gathers(&self, gathers: bool) {
        self.gathers.store(gathers, Ordering::Relaxed);
    }

    fn has_room(&self, line: &Line) -> bool {
        let gathers = self.gathers.load(Ordering::Relaxed);
        line.leaders < if gathers { 1 } else { self.leaders_max }
    }

    /// Lines up with a batch.
    pub fn enter(&self, submission: Submission) -> Entered {
        let mut line = self.line.lock();
        let leads = self.has_room(&line);
        line.leaders += usize::from(leads);
        if leads && line.waiting.is_empty() {
            return Entered::Leads(submission);
        }
        let (turn, changed) = (Mutex::new(None), Condvar::new());
        let waiter = Arc::new(Waiter { submission, turn, changed });
        line.waiting.push_back(Arc::clone(&waiter));
        if let Some(first) = leads.then(|| line.waiting.pop_front()).flatten() {
            first.set(Turn::Lead);
        }
        Entered::Waits(waiter)
    }

    /// Writers behind those that lead.
    pub fn waiting(&self) -> u64 {
        self.line.lock().waiting.len() as u64
    }

    /// Takes writers off the line, for the group of `first`, which was told to lead.
    pub fn take_behind(&self, first: &Waiter) -> Vec<Arc<Waiter>> {
        let mut others = Vec::new();
        let mut bytes = first.submission.encoded.len() as u64;
        let mut line = self.line.lock();
        while let Some(next) = line.waiting.front() {
            bytes += next.submission.encoded.len() as u64;
            if bytes > self.group_bytes_max {
                break;
            }
            others.extend(line.waiting.pop_front());
        }
        others
    }

    /// A leader is done: the next in line leads.
    pub fn hand_over(&self) {
        let mut line = self.line.lock();
        line.leaders -= 1;
        if self.has_room(&line)
            && let Some(next) = line.waiting.pop_front()
        {
            line.leaders += 1;
            next.set(Turn::Lead);
        }
    }
}
