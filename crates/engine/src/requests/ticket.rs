//! What a caller holds of an asynchronous request: the answer to come.
//!
//! ```text
//!   caller   Ticket ───────> Cell <─────── Promise   worker
//!            polls, waits    answer,       answers once, also where it is dropped
//!                            waiter
//! ```
//! A ticket is a standard future and needs no runtime: it keeps the waker of the task that polled
//! it last, or the thread that waits, and wakes it once.
//!
//! Invariants:
//! 1. A promise answers exactly once. One that is dropped answers with an error, so that no caller
//!    waits for a request that is gone.
//! 2. A waiter is stored under the lock that the answer is stored under: either the ticket finds
//!    the answer, or the promise finds the waiter.
//! 3. Wakers are called, cloned and dropped without a lock, for they may run any code; a panic in
//!    one that is called ends there.
//! 4. In a forked child a ticket has an error: the child has no worker that could answer.
//!
//! Threads: a ticket belongs to one caller at a time, and may move; a promise to one worker.

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use thermocline_device::OwnerProcess;
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads::catch_panic;

/// Carries requests out on the calling thread, where a store has no threads of its own.
pub(crate) trait Carrier: Send + Sync {
    /// Carries out what is next in line; false if nothing is.
    fn carry_out_next(&self) -> bool;
}

/// Wakes a task. What its executor does wrong must not end a worker.
pub(super) fn wake(waker: Waker) {
    if let Err(panic) = catch_panic(|| waker.wake()) {
        tracing::warn!(%panic, "the waker of a task panicked");
    }
}

/// What waits for an answer.
#[derive(Debug)]
enum Waiter {
    Nothing,
    Task(Waker),
    Thread,
}

#[derive(Debug)]
struct State<T> {
    answer: Option<Result<T>>,
    waiter: Waiter,
}

/// What a ticket and its promise share.
#[derive(Debug)]
struct Cell<T> {
    state: Mutex<State<T>>,
    answered: Condvar,
}

impl<T> Cell<T> {
    fn is_answered(&self) -> bool {
        self.state.lock().answer.is_some()
    }

    /// The answer; where there is none yet, `waker` is kept and woken once there is one.
    fn take_or_keep(&self, waker: Option<&Waker>) -> Option<Result<T>> {
        // Cloned and dropped without the lock: a waker may run any code then.
        let mut waiter = waker.map(|waker| Waiter::Task(waker.clone()));
        let mut state = self.state.lock();
        let answer = state.answer.take();
        if let (None, Some(waiter)) = (&answer, &mut waiter) {
            std::mem::swap(&mut state.waiter, waiter);
        }
        drop(state);
        drop(waiter);
        answer
    }

    fn wait(&self) -> Result<T> {
        let kept = std::mem::replace(&mut self.state.lock().waiter, Waiter::Thread);
        // Of a task that polled before; dropped without the lock.
        drop(kept);
        let mut state = self.state.lock();
        loop {
            if let Some(answer) = state.answer.take() {
                return answer;
            }
            self.answered.wait(&mut state);
        }
    }

    fn answer(&self, answer: Result<T>) {
        let waiter = {
            let mut state = self.state.lock();
            debug_assert!(state.answer.is_none(), "a request is answered once");
            state.answer = Some(answer);
            std::mem::replace(&mut state.waiter, Waiter::Nothing)
        };
        match waiter {
            Waiter::Nothing => {}
            Waiter::Task(waker) => wake(waker),
            Waiter::Thread => self.answered.notify_one(),
        }
    }
}

/// The duty to answer a ticket.
#[derive(Debug)]
pub(super) struct Promise<T> {
    /// None once it has answered.
    cell: Option<Arc<Cell<T>>>,
}

impl<T> Promise<T> {
    /// Answers, and wakes what waits for it.
    pub fn answer(mut self, answer: Result<T>) {
        if let Some(cell) = self.cell.take() {
            cell.answer(answer);
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            let text = "an asynchronous request was dropped before it was carried out; whether a \
                        write of it is kept, the next opening says";
            cell.answer(Err(Error::new(ErrorKind::ReadOnly, text)));
        }
    }
}

/// An answer to come.
struct Awaited<T> {
    cell: Arc<Cell<T>>,
    owner: OwnerProcess,
    /// Where the store has no threads of its own.
    carrier: Option<Weak<dyn Carrier>>,
}

impl<T> Awaited<T> {
    /// Looks for the answer; where there is none yet, `waker` is woken once there is one.
    fn look(&self, waker: Option<&Waker>) -> Option<Result<T>> {
        if let Err(error) = self.owner.require("the database of this ticket") {
            return Some(Err(error.into()));
        }
        self.carry_out();
        self.cell.take_or_keep(waker)
    }

    fn wait(&self) -> Result<T> {
        self.owner.require("the database of this ticket")?;
        self.carry_out();
        self.cell.wait()
    }

    /// Carries requests out up to this one, where no thread does.
    fn carry_out(&self) {
        if let Some(carrier) = self.carrier.as_ref().and_then(Weak::upgrade) {
            while !self.cell.is_answered() && carrier.carry_out_next() {}
        }
    }
}

enum Stage<T> {
    Given(Result<T>),
    Awaited(Awaited<T>),
    Taken,
}

/// The answer to come of an asynchronous request: of [`Db::put_async`](crate::Db::put_async) and
/// the calls like it.
///
/// It is a future for any executor; [`Ticket::poll_now`] and [`Ticket::wait`] are for callers
/// without one. The request is carried out whether or not the ticket is looked at, and dropping it
/// cancels nothing. In a child that `fork` made of the process it has an error of kind `Locked`.
#[must_use = "only the ticket says whether the request went well"]
pub struct Ticket<T> {
    stage: Stage<T>,
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Given(_) => "answered",
            Stage::Awaited(_) => "awaited",
            Stage::Taken => "taken",
        };
        f.debug_tuple("Ticket").field(&stage).finish()
    }
}

const TAKEN: &str = "a ticket gives its answer once";

impl<T> Ticket<T> {
    /// A ticket that has its answer.
    pub(crate) fn given(answer: Result<T>) -> Self {
        Self { stage: Stage::Given(answer) }
    }

    fn look(&mut self, waker: Option<&Waker>) -> Option<Result<T>> {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Given(answer) => Some(answer),
            Stage::Taken => None,
            Stage::Awaited(awaited) => {
                let answer = awaited.look(waker);
                if answer.is_none() {
                    self.stage = Stage::Awaited(awaited);
                }
                answer
            }
        }
    }

    /// The answer if there is one by now; never waits. None also after it was taken.
    pub fn poll_now(&mut self) -> Option<Result<T>> {
        self.look(None)
    }

    /// Waits for the answer, on the calling thread.
    ///
    /// # Panics
    /// If the answer was taken before.
    pub fn wait(self) -> Result<T> {
        match self.stage {
            Stage::Given(answer) => answer,
            Stage::Awaited(awaited) => awaited.wait(),
            Stage::Taken => panic!("{TAKEN}"),
        }
    }
}

// Nothing in a ticket is pinned: a cell has an address of its own.
impl<T> Unpin for Ticket<T> {}

impl<T> Future for Ticket<T> {
    type Output = Result<T>;

    /// # Panics
    /// If the answer was taken before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        assert!(!matches!(self.stage, Stage::Taken), "{TAKEN}");
        self.look(Some(context.waker())).map_or(Poll::Pending, Poll::Ready)
    }
}

/// A ticket and its promise, in the process of `owner`.
pub(super) fn pair<T>(
    owner: OwnerProcess,
    carrier: Option<Weak<dyn Carrier>>,
) -> (Ticket<T>, Promise<T>) {
    let state = Mutex::new(State { answer: None, waiter: Waiter::Nothing });
    let cell = Arc::new(Cell { state, answered: Condvar::new() });
    let awaited = Awaited { cell: Arc::clone(&cell), owner, carrier };
    (Ticket { stage: Stage::Awaited(awaited) }, Promise { cell: Some(cell) })
}

#[cfg(all(test, shuttle))]
pub(crate) mod schedules {
    use super::*;

    /// A ticket, and what answers it.
    pub(crate) fn ticket_and_answer<T>() -> (Ticket<T>, impl FnOnce(T)) {
        let (ticket, promise) = pair(OwnerProcess::current(), None);
        (ticket, move |answer| promise.answer(Ok(answer)))
    }
}
