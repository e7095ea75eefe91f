//! Which I/O goes first on a tier: writes of the log (SpanDB, section 4.3).
//!
//! A caller waits for each write of the log, and none for a write of a table. So while log writes
//! fly, background work asks their tier for little at a time: for [`PIECES_MAX`] requests at once,
//! of [`PIECE_BYTES`] each.
//!
//! ```text
//!   a thread at background work               a thread that writes the log
//!     makes way? -- no --> whole request        log_write() .. write, sync .. dropped:
//!         | yes                                 two additions, no lock
//!         v
//!     turns() -> piece, turns() -> piece, ..
//! ```
//!
//! 1. A log write never waits here, and nothing in the foreground takes a lock or memory here.
//! 2. Background work makes way while a log write flies, and with the first request after one: a
//!    log that is written again and again would meet whole requests in between otherwise.
//! 3. What was submitted before the log write goes on as it is, and so does a sync of a table.
//! 4. Turns are held across one transfer, and their holder asks for no more meanwhile. So each wait
//!    for them ends.
//!
//! A thread says that it is at background work by [`background`]; files say what is of a log by
//! their kind. A log's writes count as such where they are to be durable, and its syncs, but not
//! those of background work: no caller waits for these.
//!
//! Threads: everything is shared freely; a scope is of the thread that made it.

use crate::buffer::Buffer;
use crate::driver::{Completion, Operation};
use std::cell::Cell;
use std::marker::PhantomData;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Condvar, Mutex};

/// Bytes of a request that makes way.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Such requests of a tier at once.
pub(crate) const PIECES_MAX: usize = 4;

thread_local! {
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Until it is dropped, the I/O of the thread is background work.
#[derive(Debug)]
pub struct Background {
    before: bool,
    /// Of this thread.
    _thread: PhantomData<*const ()>,
}

/// Says that the thread is at background work: what it reads and writes from here on makes way for
/// writes of the log.
pub fn background() -> Background {
    Background { before: IN_BACKGROUND.replace(true), _thread: PhantomData }
}

impl Drop for Background {
    fn drop(&mut self) {
        IN_BACKGROUND.set(self.before);
    }
}

/// The classes of one tier. See the module.
#[derive(Debug)]
pub(crate) struct IoClasses {
    is_on: AtomicBool,
    /// Log writes since opening, and those under way.
    begun: AtomicU64,
    flying: AtomicU32,
    /// As many of `begun` has background work made way for.
    noticed: AtomicU64,
    /// Pieces under way.
    pieces: Mutex<usize>,
    ended: Condvar,
}

impl Default for IoClasses {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(true),
            begun: AtomicU64::new(0),
            flying: AtomicU32::new(0),
            noticed: AtomicU64::new(0),
            pieces: Mutex::new(0),
            ended: Condvar::new(),
        }
    }
}

/// A write of the log under way.
#[derive(Debug)]
pub(crate) struct LogWrite<'a>(&'a IoClasses);

impl Drop for LogWrite<'_> {
    fn drop(&mut self) {
        self.0.flying.fetch_sub(1, Relaxed);
    }
}

/// Leave to have so many pieces under way. Meanwhile the thread is not at background work.
#[derive(Debug)]
pub(crate) struct Turns<'a> {
    classes: &'a IoClasses,
    count: usize,
    before: bool,
    _thread: PhantomData<*const ()>,
}

impl Turns<'_> {
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Turns<'_> {
    fn drop(&mut self) {
        IN_BACKGROUND.set(self.before);
        *self.classes.pieces.lock() -= self.count;
        self.classes.ended.notify_all();
    }
}

impl IoClasses {
    /// Logs go first, or do not.
    pub fn set_log_first(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    /// A write of the log is about to begin; it ends when what this gives is dropped. None in
    /// background work.
    pub fn log_write(&self) -> Option<LogWrite<'_>> {
        if IN_BACKGROUND.get() {
            return None;
        }
        self.begun.fetch_add(1, Relaxed);
        self.flying.fetch_add(1, Relaxed);
        Some(LogWrite(self))
    }

    /// The thread's next request is to be in pieces, each in its turn.
    pub fn makes_way(&self) -> bool {
        IN_BACKGROUND.get() && self.is_on.load(Relaxed) && self.is_log_written()
    }

    fn is_log_written(&self) -> bool {
        let begun = self.begun.load(Relaxed);
        self.flying.load(Relaxed) > 0 || self.noticed.swap(begun, Relaxed) != begun
    }

    /// Waits until another piece may go, and takes leave for up to `wanted`, at least one.
    pub fn turns(&self, wanted: usize) -> Turns<'_> {
        let mut pieces = self.pieces.lock();
        // Each piece under way signals its end; the log does not, and need not.
        while *pieces >= PIECES_MAX && self.flying.load(Relaxed) > 0 {
            self.ended.wait(&mut pieces);
        }
        let left = PIECES_MAX.saturating_sub(*pieces).max(1);
        let count = wanted.clamp(1, left);
        *pieces += count;
        drop(pieces);
        let before = IN_BACKGROUND.replace(false);
        Turns { classes: self, count, before, _thread: PhantomData }
    }

    /// Carries out a read or write in pieces, each by `execute` and in its turn; the completion is
    /// the whole one's.
    pub fn in_pieces(
        &self,
        operation: Operation,
        execute: impl Fn(Operation) -> Completion,
    ) -> Completion {
        let (start, mut buffer, written_durable) = match operation {
            Operation::Read { offset, buffer } => (offset, buffer, None),
            Operation::Write { offset, buffer, durable } => (offset, buffer, Some(durable)),
            Operation::Sync => return execute(Operation::Sync),
        };
        let view = buffer.view();
        let mut done = 0;
        let mut failed = None;
        while done < view.len() && failed.is_none() {
            let len = PIECE_BYTES.min(view.len() - done);
            buffer.set_view(view.start + done..view.start + done + len);
            let piece = piece(start + done as u64, buffer, written_durable);
            let completion = {
                let _turn = self.turns(1);
                execute(piece)
            };
            buffer = completion.buffer;
            match completion.result {
                Ok(moved) => {
                    done += moved;
                    if moved < len {
                        break;
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        buffer.set_view(view);
        Completion { tag: 0, result: failed.map_or(Ok(done), Err), buffer }
    }
}

fn piece(offset: u64, buffer: Buffer, written_durable: Option<bool>) -> Operation {
    match written_durable {
        None => Operation::Read { offset, buffer },
        Some(durable) => Operation::Write { offset, buffer, durable },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use std::cell::RefCell;
    use std::sync::Arc;
    use thermocline_foundation::threads;

    #[test]
    fn background_work_makes_way_while_the_log_is_written_and_once_afterwards() {
        let classes = IoClasses::default();
        let log = classes.log_write();
        assert!(log.is_some() && !classes.makes_way(), "nothing in the foreground does");
        let scope = background();
        assert!(classes.makes_way() && classes.makes_way());
        assert!(classes.log_write().is_none(), "no caller waits for this one");
        drop(log);
        assert_eq!([classes.makes_way(), classes.makes_way()], [true, false]);
        drop(scope);
        drop(classes.log_write());
        let _scope = background();
        classes.set_log_first(false);
        assert!(!classes.makes_way(), "switched off");
        classes.set_log_first(true);
        assert!(classes.makes_way(), "a log was written meanwhile");
    }

    #[test]
    fn so_many_pieces_go_at_once_while_a_log_write_flies() {
        let classes = Arc::new(IoClasses::default());
        let log = classes.log_write();
        let three = classes.turns(3);
        let last = classes.turns(9);
        assert_eq!((three.count(), last.count()), (3, 1), "what is left of four");
        let others = Arc::clone(&classes);
        let next = threads::spawn("next", move || others.turns(2).count()).unwrap();
        drop(three);
        assert_eq!(next.join().unwrap(), 2, "it waits for turns to end");
        drop(log);
        let four = classes.turns(4);
        assert_eq!((four.count(), classes.turns(4).count()), (3, 1), "no log is waited for");
        drop(last);
    }

    #[test]
    fn the_holder_of_turns_is_not_asked_to_make_way_again() {
        let classes = IoClasses::default();
        let _log = classes.log_write();
        let _scope = background();
        let turns = classes.turns(4);
        assert!(!classes.makes_way(), "it would wait for itself");
        drop(turns);
        assert!(classes.makes_way());
    }

    /// Offsets and lengths of the pieces of an operation, of which the one at `fails_at` fails and
    /// each moves `most` bytes at most; with the whole result, and the view afterwards.
    fn pieces(
        operation: Operation,
        fails_at: u64,
        most: usize,
    ) -> (Vec<(u64, usize)>, Result<usize, ErrorKind>, usize) {
        let seen = RefCell::default();
        let execute = |piece| {
            let (offset, buffer) = match piece {
                Operation::Read { offset, buffer } => (offset, buffer),
                Operation::Write { offset, buffer, durable } => {
                    assert!(durable, "a piece is as durable as the whole");
                    (offset, buffer)
                }
                Operation::Sync => panic!("not asked for"),
            };
            Vec::push(&mut seen.borrow_mut(), (offset, buffer.len()));
            let result = match offset == fails_at {
                true => Err(Error::new(ErrorKind::Io, "the device is gone")),
                false => Ok(buffer.len().min(most)),
            };
            Completion { tag: 0, result, buffer }
        };
        let done = IoClasses::default().in_pieces(operation, execute);
        (seen.into_inner(), done.result.map_err(|error| error.kind()), done.buffer.len())
    }

    #[test]
    fn a_request_in_pieces_moves_all_of_it_or_ends_where_it_fails() {
        let len = 2 * PIECE_BYTES + 8192;
        let write =
            || Operation::Write { offset: 4096, buffer: Buffer::zeroed(len), durable: true };
        let at = |piece: usize| 4096 + (piece * PIECE_BYTES) as u64;
        let whole = [(at(0), PIECE_BYTES), (at(1), PIECE_BYTES), (at(2), 8192)];
        assert_eq!(pieces(write(), 0, len), (whole.to_vec(), Ok(len), len));
        let failed = (whole[..2].to_vec(), Err(ErrorKind::Io), len);
        assert_eq!(pieces(write(), at(1), len), failed);
        let read = Operation::Read { offset: 0, buffer: Buffer::zeroed(len) };
        let short = (vec![(0, PIECE_BYTES)], Ok(5000), len);
        assert_eq!(pieces(read, 1, 5000), short, "the file ends there");
    }
}
