//! Group commit, the same for both ways: writers line up, the first takes all writers in line
//! along.
//!
//! ```text
//!   put -> no leader: lead alone              -> hand over to the next in line
//!       -> a leader: wait -> done, or lead with all that line up by then
//! ```
//! It is the engine's write path (crates/engine, `front/queue.rs`) without batches: one sync serves
//! all writers that wait, and a writer that is alone pays for no hand-over.
//!
//! Invariants:
//! 1. One thread leads at a time.
//! 2. After the first failure, or a panic of a leader, no thread leads any more: every writer gets
//!    the failure.
//!
//! Threads: any.

use crate::Outcome;
use std::collections::VecDeque;
use std::sync::Arc;
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads::catch_panic;

/// Bytes of records that one leader takes, as in the engine.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// A record to write: key and value in one piece of memory.
#[derive(Debug)]
pub(super) struct Put {
    bytes: Vec<u8>,
    key_len: usize,
}

impl Put {
    pub fn new(key: &[u8], value: &[u8]) -> Self {
        Self { bytes: [key, value].concat(), key_len: key.len() }
    }

    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_len..]
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// What a leader's work came to; a text, because many get it.
type Done = Result<(), String>;

#[derive(Debug)]
enum Turn {
    Lead,
    Done(Done),
}

#[derive(Debug)]
struct Follower {
    put: Put,
    turn: Mutex<Option<Turn>>,
    changed: Condvar,
}

impl Follower {
    fn wait(&self) -> Turn {
        let mut turn = self.turn.lock();
        loop {
            match turn.take() {
                Some(turn) => return turn,
                None => self.changed.wait(&mut turn),
            }
        }
    }

    fn set(&self, to: Turn) {
        *self.turn.lock() = Some(to);
        self.changed.notify_one();
    }
}

#[derive(Debug, Default)]
struct State {
    led: bool,
    waiting: VecDeque<Arc<Follower>>,
    failed: Option<String>,
}

/// The line of writers.
#[derive(Debug, Default)]
pub(super) struct Line {
    state: Mutex<State>,
}

impl Line {
    /// Returns when a leader, maybe the caller, has had `lead` do what `put` asks for.
    pub fn put(&self, put: Put, lead: impl Fn(&[&Put]) -> Outcome<()>) -> Outcome<()> {
        let follower = {
            let mut state = self.state.lock();
            if state.led {
                let (turn, changed) = (Mutex::new(None), Condvar::new());
                let follower = Arc::new(Follower { put, turn, changed });
                state.waiting.push_back(Arc::clone(&follower));
                follower
            } else {
                state.led = true;
                drop(state);
                return Ok(self.lead(&[&put], lead)?);
            }
        };
        match follower.wait() {
            Turn::Done(done) => Ok(done?),
            Turn::Lead => {
                let followers = self.followers();
                let group: Vec<_> = followers.iter().map(|follower| &follower.put).collect();
                let done = self.lead(&group, lead);
                for follower in &followers[1..] {
                    follower.set(Turn::Done(done.clone()));
                }
                Ok(done?)
            }
        }
    }

    /// The writers in line, up to the most that one leader takes.
    fn followers(&self) -> Vec<Arc<Follower>> {
        let mut state = self.state.lock();
        let mut followers = Vec::new();
        let mut bytes = 0;
        while let Some(next) = state.waiting.front() {
            bytes += next.put.len();
            if bytes > GROUP_BYTES_MAX && !followers.is_empty() {
                break;
            }
            followers.extend(state.waiting.pop_front());
        }
        followers
    }

    /// Leads and hands over.
    fn lead(&self, group: &[&Put], lead: impl Fn(&[&Put]) -> Outcome<()>) -> Done {
        let failed = self.state.lock().failed.clone();
        let done = match failed {
            Some(text) => Err(text),
            None => match catch_panic(|| lead(group)) {
                Ok(outcome) => outcome.map_err(|failure| failure.to_string()),
                Err(panic) => Err(format!("a writer panicked: {panic}")),
            },
        };
        let mut state = self.state.lock();
        if let Err(text) = &done {
            state.failed.get_or_insert_with(|| text.clone());
        }
        match state.waiting.front() {
            Some(next) => next.set(Turn::Lead),
            None => state.led = false,
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use thermocline_foundation::threads;

    #[test]
    fn each_that_waits_is_served_once_and_groups_form() {
        let line = Arc::new(Line::default());
        let (records, groups) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let put = move |line: &Line, records: &AtomicU64, groups: &AtomicU64| {
            let lead = |group: &[&Put]| {
                assert!(group.iter().all(|put| put.key() == b"key" && put.value() == b"value"));
                records.fetch_add(group.len() as u64, Relaxed);
                groups.fetch_add(1, Relaxed);
                // So that others line up meanwhile.
                std::thread::yield_now();
                Ok(())
            };
            line.put(Put::new(b"key", b"value"), lead).unwrap();
        };
        let handles = (0..4).map(|thread| {
            let (line, records) = (Arc::clone(&line), Arc::clone(&records));
            let groups = Arc::clone(&groups);
            threads::spawn(&format!("writer-{thread}"), move || {
                (0..500).for_each(|_| put(&line, &records, &groups));
            })
        });
        let handles: Vec<_> = handles.map(Result::unwrap).collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(records.load(Relaxed), 2000);
        assert!(groups.load(Relaxed) <= 2000);
        assert!(!line.state.lock().led);
    }

    #[test]
    fn none_writes_after_a_failure_or_a_panic() {
        for panics in [false, true] {
            let line = Line::default();
            let fail = |_: &[&Put]| {
                assert!(!panics, "broken");
                Err("full".into())
            };
            let first = line.put(Put::new(b"k", b"v"), fail).unwrap_err().to_string();
            assert!(first.contains(if panics { "broken" } else { "full" }), "{first}");
            let later = line.put(Put::new(b"k", b"v"), |_| Ok(())).unwrap_err().to_string();
            assert_eq!(later, first);
        }
    }
}
