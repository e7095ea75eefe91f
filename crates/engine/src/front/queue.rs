//! The line of writers.
//!
//! Writers line up; the first leads. The leader takes every batch in line, and they are written as
//! one group. Then the next in line leads. So acknowledgements come in sequence order, one device
//! flush serves all that wait, and a writer that is alone pays for no hand-over.

use crate::error::Result;
use crate::settings::Durability;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use thermocline_foundation::sync::{Condvar, Mutex};

/// Bytes of batches that one leader takes; more would make its own caller wait for the others.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// A batch to write.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    pub encoded: Bytes,
    pub count: u32,
    pub durability: Durability,
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
    Done(Result<()>),
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
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// A writer leads.
    led: bool,
    waiting: VecDeque<Arc<Waiter>>,
}

impl WriteQueue {
    /// Lines up with a batch.
    pub fn enter(&self, submission: Submission) -> Entered {
        let mut line = self.line.lock();
        if !line.led {
            line.led = true;
            return Entered::Leads(submission);
        }
        let (turn, changed) = (Mutex::new(None), Condvar::new());
        let waiter = Arc::new(Waiter { submission, turn, changed });
        line.waiting.push_back(Arc::clone(&waiter));
        Entered::Waits(waiter)
    }

    /// Writers behind the one that leads.
    pub fn waiting(&self) -> u64 {
        self.line.lock().waiting.len() as u64
    }

    /// Takes a group off the line; the caller is the first of it.
    pub fn take_group(&self) -> Vec<Arc<Waiter>> {
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut line = self.line.lock();
        while let Some(next) = line.waiting.front() {
            bytes += next.submission.encoded.len();
            if bytes > GROUP_BYTES_MAX && !group.is_empty() {
                break;
            }
            group.extend(line.waiting.pop_front());
        }
        group
    }

    /// The leader is done: the next in line leads.
    pub fn hand_over(&self) {
        let mut line = self.line.lock();
        match line.waiting.front() {
            Some(next) => next.set(Turn::Lead),
            None => line.led = false,
        }
    }
}
