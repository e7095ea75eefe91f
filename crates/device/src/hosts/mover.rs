//! The thread that moves and copies files of host directories, and tells placements how time goes
//! (Keigo, sections 4.2 and 4.3).
//!
//! 1. It sleeps until a file is made or a level becomes known; while a directory is being changed
//!    it looks once a second. A look goes through all files, so that it is one for all that are
//!    made within a moment.
//! 2. Moves of one directory are made by as many threads as its devices can use beside their
//!    writers, or as many as the settings say; by fewer where the process may have no more.
//! 3. A round ends early where a directory is to be released, renamed or removed: that waits for
//!    the moves being made, and for no more.
//! 4. A move or copy that failed is tried again in the next second. The file stays where it is.
//! 5. Copies are made after moves, by as many threads as the devices can use then, one each in a
//!    window of a second, or of what the settings say: its hit ratio says what the next copy is
//!    for.
//! 6. What readers filled into extents is written when it wakes the thread.
//!
//! Threads: one of its own, and those of a round of moves, which end with it.

use super::{HostCache, Shared};
use crate::error::{Error, Result};
use crate::names::Names;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::Ordering::{Acquire, Release};
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads::{self, JoinHandle};

const PERIOD: Duration = Duration::from_secs(1);
/// What a file that is made may wait until its tier's room is looked at.
const SOON: Duration = Duration::from_millis(50);

/// What the thread is told.
#[derive(Debug, Default)]
struct Work {
    is_woken: bool,
    is_due_soon: bool,
    is_over: bool,
}

impl Work {
    fn is_urgent(&self) -> bool {
        self.is_woken || self.is_over
    }
}

/// Wakes the thread.
#[derive(Debug, Default)]
pub(super) struct Waker {
    work: Mutex<Work>,
    changed: Condvar,
}

impl Waker {
    /// There may be something to move, or to keep.
    pub fn wake(&self) {
        let mut work = self.work.lock();
        if !work.is_woken {
            work.is_woken = true;
            drop(work);
            self.changed.notify_all();
        }
    }

    /// As [`Waker::wake`], for what can wait a moment.
    pub fn wake_soon(&self) {
        let mut work = self.work.lock();
        if !work.is_due_soon {
            work.is_due_soon = true;
            drop(work);
            self.changed.notify_all();
        }
    }

    /// The thread is to end.
    pub fn end(&self) {
        self.work.lock().is_over = true;
        self.changed.notify_all();
    }

    fn is_over(&self) -> bool {
        self.work.lock().is_over
    }

    /// Waits for a waking, and for `period` at most; false once it is over.
    pub fn wait(&self, period: Option<Duration>) -> bool {
        let mut work = self.work.lock();
        if !work.is_urgent() && !work.is_due_soon {
            match period {
                Some(period) => drop(self.changed.wait_for(&mut work, period)),
                None => self.changed.wait(&mut work),
            }
        }
        if !work.is_urgent() && work.is_due_soon {
            self.changed.wait_for(&mut work, SOON);
        }
        (work.is_woken, work.is_due_soon) = (false, false);
        !work.is_over
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Mover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    pub fn start(shared: Arc<Shared>) -> Result<Self> {
        let theirs = Arc::clone(&shared);
        let thread = threads::spawn("thermocline-moves", move || theirs.move_until_over())
            .map_err(|error| Error::io("start a thread for", Path::new("moves"), &error))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.shared.waker.end();
        if let Some(thread) = self.thread.take().filter(|thread| !threads::is_current(thread)) {
            // It moved what it could, whatever became of it.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn move_until_over(&self) {
        let mut seconds = Every::new(PERIOD, self.clock.now_ns());
        let mut windows = Every::new(self.settings.window.0, self.clock.now_ns());
        // Those whose window is over, and whose reads in it were not looked at yet.
        let mut over = BTreeSet::new();
        while self.wait_for_work() {
            let now_ns = self.clock.now_ns();
            let seconds = seconds.passed(now_ns);
            let is_window_over = windows.passed(now_ns) > 0;
            let copies = self.settings.cache == HostCache::Files;
            let directories: Vec<_> = {
                let open = self.open.lock();
                let writers = open.open.iter().filter(|(_, names)| names.is_writer());
                writers.map(|(directory, _)| directory.clone()).collect()
            };
            over.retain(|directory| directories.contains(directory));
            if is_window_over && copies {
                over.extend(directories.iter().cloned());
            }
            for directory in directories {
                if self.is_awaited() {
                    break;
                }
                // A directory that is released meanwhile must have no user here.
                let _moving = self.moving.lock();
                let Some(names) = self.open.lock().open.get(&directory).cloned() else { continue };
                names.seconds_passed(u32::try_from(seconds).unwrap_or(u32::MAX));
                self.move_files(&names);
                if !self.is_awaited() && over.remove(&directory) {
                    names.end_window();
                    self.copy_files(&names);
                }
                while !self.is_awaited() && names.tend_extents() {}
                if seconds > 0 {
                    names.write_gathered_extents();
                }
            }
        }
    }

    /// False once it is over.
    fn wait_for_work(&self) -> bool {
        // A file that is made after this look wakes the thread.
        let has_writers = self.open.lock().open.values().any(Names::is_writer);
        self.waker.wait(has_writers.then_some(PERIOD))
    }

    /// A call waits until no file moves.
    fn is_awaited(&self) -> bool {
        self.waiting.load(Acquire) > 0
    }

    fn move_files(&self, names: &Names) {
        let threads = || self.settings.move_threads.unwrap_or_else(|| names.move_threads());
        let is_ended = AtomicBool::new(false);
        let goes_on = || !is_ended.load(Acquire) && !self.is_awaited() && !self.waker.is_over();
        let mover = |place: u16| {
            while goes_on() && place < threads() {
                match names.move_next() {
                    Ok(true) => {}
                    Ok(false) => is_ended.store(true, Release),
                    Err(error) => {
                        tracing::warn!(%error, "a file stays where it is");
                        is_ended.store(true, Release);
                    }
                }
            }
        };
        if names.has_moves() {
            together(threads(), mover);
        }
    }

    fn copy_files(&self, names: &Names) {
        let hit_percent = self.settings.hit_percent;
        let threads = names.copy_threads(hit_percent);
        together(threads.min(self.settings.move_threads.unwrap_or(threads)), |_| {
            if let Err(error) = names.copy_next(hit_percent) {
                tracing::warn!(%error, "a file is not copied to a faster tier");
            }
        });
    }
}

/// A span of time that passes again and again.
struct Every {
    span_ns: u64,
    since_ns: u64,
}

impl Every {
    fn new(span: Duration, since_ns: u64) -> Self {
        Self { span_ns: span.as_nanos() as u64, since_ns }
    }

    /// How often it passed since it did last; the next one begins now where it did.
    fn passed(&mut self, now_ns: u64) -> u64 {
        let times = now_ns.saturating_sub(self.since_ns) / self.span_ns;
        if times > 0 {
            self.since_ns = now_ns;
        }
        times
    }
}

/// Runs so many of `body` at once, or as many as the system has threads for, each with its place;
/// this thread is the first.
fn together(threads: u16, body: impl Fn(u16) + Sync) {
    threads::scope(|scope| {
        let body = &body;
        let mut others = 1..threads;
        let started = others.try_for_each(|at| threads::spawn_within(scope, move || body(at)));
        if let Err(error) = started {
            tracing::warn!(%error, "files move by fewer threads");
        }
        if threads > 0 {
            body(0);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_passes_once_it_is_over_and_the_next_one_begins_then() {
        const S: u64 = 1_000_000_000;
        let mut every = Every::new(Duration::from_secs(10), 5 * S);
        let looks = [(14, 0), (15, 1), (16, 0), (24, 0), (46, 3), (55, 0), (56, 1), (40, 0)];
        for (at_s, times) in looks {
            assert_eq!(every.passed(at_s * S), times, "{at_s} s");
        }
    }
}
