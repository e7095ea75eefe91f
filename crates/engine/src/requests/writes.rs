//! Writes in line: those that may be written, and those that must have locks first.
//!
//! ```text
//!   arrived ──────────────────────────────────> taken as a group
//!      └─ a pessimistic transaction is open ─> set aside ─> a thread takes its locks ─> locked ─┘
//! ```
//! Invariants:
//! 1. Writes that have no conditions are taken in order of arrival: one that is set aside is older
//!    than any that arrives, and one that has got its locks is older than those that are set aside.
//!    So while one is set aside, those without locks that come after it are too.
//! 2. A transaction that came with its locks is never behind a write that waits for locks, which
//!    may be waiting for this one.
//! 3. Locks are taken for one write at a time: what is set aside keeps its order.
//! 4. A write waits for its locks from when it was set aside, behind others too: so however many
//!    are set aside, each gets its turn after the longest timeout of those before it, and waits
//!    then for what is left of its own.

use super::held::Share;
use super::ticket::Promise;
use crate::front::Submission;
use crate::transaction::{Attempts, HeldLocks};
use std::any::Any;
use std::collections::VecDeque;
use thermocline_foundation::{Duration, Sequence};

/// What a transaction holds until it is written or refused: locks, snapshots.
pub(crate) type Kept = Box<dyn Any + Send>;

/// A transaction on its way.
#[derive(Debug)]
pub(super) struct Committing {
    pub attempts: Attempts,
    pub lock_timeout: Duration,
    pub kept: Kept,
    pub promise: Promise<Sequence>,
}

/// What is answered once a write is done.
#[derive(Debug)]
pub(super) enum Answer {
    Written(Promise<()>),
    Committed(Box<Committing>),
}

/// A write in line.
#[derive(Debug)]
pub(super) struct Write {
    pub submission: Submission,
    /// What it counts for in the queue.
    pub share: Share,
    pub answer: Answer,
    /// When it was set aside, to wait for locks.
    pub aside_since_ns: Option<u64>,
    /// Locks that were taken for it.
    pub locks: Option<HeldLocks>,
}

impl Write {
    /// A write in line, without locks that were taken for it.
    pub fn new(submission: Submission, share: Share, answer: Answer) -> Self {
        Self { submission, share, answer, aside_since_ns: None, locks: None }
    }

    /// It has the locks of its keys.
    pub fn has_locks(&self) -> bool {
        self.submission.check.as_ref().is_some_and(|check| check.has_locks)
    }

    /// How long it may wait for a lock, where a transaction says so.
    pub fn lock_timeout(&self) -> Option<Duration> {
        match &self.answer {
            Answer::Written(_) => None,
            Answer::Committed(committing) => Some(committing.lock_timeout),
        }
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct WriteLines {
    arrived: VecDeque<Write>,
    set_aside: VecDeque<Write>,
    /// Locks are being taken for a write that was set aside.
    is_locking: bool,
    locked: VecDeque<Write>,
}

impl WriteLines {
    pub fn len(&self) -> usize {
        self.arrived.len() + self.set_aside.len() + self.locked.len()
    }

    /// Writes that wait for locks, with the one for which they are being taken.
    pub fn waiting_for_locks(&self) -> usize {
        self.set_aside.len() + usize::from(self.is_locking)
    }

    /// There may be writes that can be taken.
    pub fn may_be_taken(&self) -> bool {
        !self.arrived.is_empty() || !self.locked.is_empty()
    }

    /// There is a write for which locks may be taken.
    pub fn wants_locks(&self) -> bool {
        !self.is_locking && !self.set_aside.is_empty()
    }

    pub fn push(&mut self, write: Write) {
        self.arrived.push_back(write);
    }

    /// Sets those that came without locks aside, as of `now_ns`, if they need some; says whether it
    /// has set any.
    pub fn set_aside(&mut self, need_locks: bool, now_ns: impl FnOnce() -> u64) -> bool {
        if !need_locks && self.set_aside.is_empty() && !self.is_locking {
            return false;
        }
        let (before, now_ns) = (self.set_aside.len(), now_ns());
        for mut write in std::mem::take(&mut self.arrived) {
            if write.has_locks() {
                self.arrived.push_back(write);
            } else {
                write.aside_since_ns = Some(now_ns);
                self.set_aside.push_back(write);
            }
        }
        self.set_aside.len() > before
    }

    /// Takes the first of those that were set aside, to take locks for it;
    /// [`WriteLines::end_locking`] comes after it.
    pub fn begin_locking(&mut self) -> Option<Write> {
        let write = if self.is_locking { None } else { self.set_aside.pop_front() };
        self.is_locking |= write.is_some();
        write
    }

    /// The write has its locks, or none: then it is given back.
    pub fn end_locking(&mut self, locked: Result<Write, Write>) -> Option<Write> {
        self.is_locking = false;
        locked.map(|write| self.locked.push_back(write)).err()
    }

    /// Takes those that can be written, up to `bytes_max` or the first of them.
    pub fn take(&mut self, bytes_max: u64) -> Vec<Write> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        loop {
            let line = if self.locked.is_empty() { &mut self.arrived } else { &mut self.locked };
            let Some(next) = line.front() else { return taken };
            bytes += next.submission.encoded.len() as u64;
            if bytes > bytes_max && !taken.is_empty() {
                return taken;
            }
            taken.extend(line.pop_front());
        }
    }
}
