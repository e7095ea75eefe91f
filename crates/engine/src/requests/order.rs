//! Writes are acknowledged in the order in which they were taken, whichever logger ends first.
//!
//! A logger hands in the group that it has written. The one that hands in the group that is next
//! answers its tickets, and those of all groups behind it that are in by then.
//!
//! Invariants:
//! 1. Groups are answered by number, without a gap, one at a time.
//! 2. Tickets are answered without the lock: what they wake may hand in a group.
//!
//! Threads: loggers, and a closing caller.

use super::ticket::Promise;
use crate::error::Result;
use std::collections::BTreeMap;
use thermocline_foundation::sync::{Mutex, MutexGuard};

/// A group that was written, or was not.
#[derive(Debug)]
struct Ended {
    promises: Vec<Promise<()>>,
    results: Vec<Result<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the group that is answered next.
    next: u64,
    /// Groups that are in and wait for an earlier one.
    ended: BTreeMap<u64, Ended>,
    /// A thread is at it.
    is_answering: bool,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Order {
    state: Mutex<State>,
}

impl Order {
    /// The group `number` has ended, each of its writes with its result.
    pub fn hand_in(&self, number: u64, promises: Vec<Promise<()>>, results: Vec<Result<()>>) {
        debug_assert_eq!(promises.len(), results.len(), "a result for each ticket");
        let mut state = self.state.lock();
        state.ended.insert(number, Ended { promises, results });
        if std::mem::replace(&mut state.is_answering, true) {
            return;
        }
        loop {
            let next = state.next;
            let Some(Ended { promises, results }) = state.ended.remove(&next) else { break };
            state.next += 1;
            MutexGuard::unlocked(&mut state, || {
                let answers = promises.into_iter().zip(results);
                answers.for_each(|(promise, result)| promise.answer(result));
            });
        }
        state.is_answering = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::ticket::{Ticket, pair};
    use super::*;
    use thermocline_device::OwnerProcess;

    #[test]
    fn a_group_is_answered_after_those_before_it() {
        let order = Order::default();
        let (mut tickets, promises): (Vec<Ticket<()>>, Vec<_>) =
            (0..4).map(|_| pair(OwnerProcess::current(), None)).unzip();
        let mut groups = promises.into_iter().map(|promise| vec![promise]);
        let mut answered = || -> Vec<bool> {
            tickets.iter_mut().map(|ticket| ticket.poll_now().is_some()).collect()
        };
        let late = groups.next().unwrap();
        order.hand_in(1, groups.next().unwrap(), vec![Ok(())]);
        order.hand_in(3, groups.next().unwrap(), vec![Ok(())]);
        assert_eq!(answered(), [false; 4]);
        order.hand_in(0, late, vec![Ok(())]);
        assert_eq!(answered(), [true, true, false, false], "the last waits for group 2");
        order.hand_in(2, groups.next().unwrap(), vec![Ok(())]);
        assert_eq!(answered(), [false, false, true, true]);
    }
}
