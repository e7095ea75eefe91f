//! How many files of a namespace are open at once: idle ones are closed, and opened again when they
//! are wanted.
//!
//! A process may have so many descriptors and no more, and a store may have more files than that.
//! Most of them are tables and slabs, each known by a name that no other file ever gets; so their
//! descriptors can be given up at any moment at which the device has all that was written through
//! them.
//!
//! ```text
//!   table, slab, copy of an index               open <--> closed   enrolled; on the ring if open
//!   log, manifest, and any file that was
//!   deleted and is still read                   open
//! ```
//! Which file is closed a clock hand decides: it goes round the ring of open files, passes those
//! that were used since it came by, and closes the first that was not.
//!
//! 1. A file is closed only where nothing is being written to it and a sync has covered all that
//!    was: a new descriptor would not hear of a write that failed after the old one was closed.
//!    Where no such file is left, one is synced first; a copy that ends with the process needs no
//!    sync.
//! 2. Whether a file is open, and whether it may be closed, changes under the lock of the ring, and
//!    so does the beginning of a write. No I/O is done under it.
//! 3. A request keeps what it found open for as long as it lasts, beyond the bound where need be.
//! 4. A file whose name goes is opened before, and stays open for those that have it.
//!
//! Threads: shared freely. A read of an open file takes no lock.

use crate::error::{Error, ErrorKind, Result};
use crate::file::{File, Location};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use thermocline_foundation::Counter;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Entries of the ring below which files that are gone are left in it.
const RING_CLEANED_MIN: usize = 64;

/// The open files of a namespace. See the module.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// Descriptors that the process may have; none where there is no bound.
    limit: Option<u64>,
    bound: AtomicU64,
    open: AtomicU64,
    ring: Mutex<Ring>,
    reads_only: bool,
    reopened: Counter,
}

/// Files that may be closed, the next one in front.
#[derive(Debug, Default)]
struct Ring {
    files: VecDeque<Weak<File>>,
    /// Length at which files that are gone are taken out.
    cleaned_at: usize,
}

/// What there is to say of the open files of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFileCounts {
    /// Files that are open.
    pub open: u64,
    /// How many of them may stay open; none where there is no bound.
    pub open_max: Option<u64>,
    /// Descriptors that the process may have; none where there is no bound.
    pub limit: Option<u64>,
    /// Files that were opened again since the namespace was.
    pub reopened: u64,
}

impl Default for OpenFiles {
    fn default() -> Self {
        Self::new(None, false)
    }
}

impl OpenFiles {
    /// No file yet, in a process that may have `limit` descriptors: half of them are for files, the
    /// others for what else it has.
    pub(crate) fn new(limit: Option<u64>, reads_only: bool) -> Self {
        Self {
            limit,
            bound: AtomicU64::new(limit.map_or(u64::MAX, |limit| limit / 2)),
            open: AtomicU64::new(0),
            ring: Mutex::default(),
            reads_only,
            reopened: Counter::default(),
        }
    }

    /// So many files stay open at most.
    pub(crate) fn set_bound(&self, bound: u64) {
        self.bound.store(bound, Relaxed);
        self.make_room();
    }

    pub(crate) fn counts(&self) -> OpenFileCounts {
        let bound = self.bound.load(Relaxed);
        OpenFileCounts {
            open: self.open.load(Relaxed),
            open_max: (bound < u64::MAX).then_some(bound),
            limit: self.limit,
            reopened: self.reopened.get(),
        }
    }

    /// Files are opened for reading.
    pub(crate) fn reads_only(&self) -> bool {
        self.reads_only
    }

    pub(crate) fn count_opened(&self) {
        self.open.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_closed(&self) {
        self.open.fetch_sub(1, Relaxed);
    }

    /// Does `open`, which opens or makes a file, with idle ones closed where they are too many, and
    /// again where the system has no descriptor for it.
    pub(crate) fn with_room<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        self.make_room();
        loop {
            match open() {
                Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => {
                    if !self.close_one() {
                        return Err(self.explain(&error));
                    }
                }
                done => return done,
            }
        }
    }

    /// A shortage in figures.
    fn explain(&self, error: &Error) -> Error {
        let open = self.open.load(Relaxed);
        let limit = self.limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        let text = format!(
            "{error}; the process has used up its descriptors{limit}, of which the store has \
             {open} for files that are in use: raise the limit (ulimit -n)"
        );
        Error::new(error.kind(), text)
    }

    /// Closes idle files until there is room for one more, as far as there are any.
    fn make_room(&self) {
        while self.open.load(Relaxed) >= self.bound.load(Relaxed) {
            if !self.close_one() {
                return;
            }
        }
    }

    /// Closes a file, if need be one that must be synced first; false where there is none.
    fn close_one(&self) -> bool {
        if self.close_clean() {
            return true;
        }
        // One whose sync fails stays open, and so does one that is written to meanwhile.
        let dirty = self.ring.lock().dirty();
        dirty.iter().any(|file| file.sync_to_close().is_ok() && self.close_clean())
    }

    /// Closes the file at which the hand stops; false where it stops at none.
    fn close_clean(&self) -> bool {
        let mut ring = self.ring.lock();
        // Once round to take the marks away, and once more to find one without.
        for _ in 0..2 * ring.files.len() {
            let Some(next) = ring.files.pop_front() else { break };
            let Some(file) = next.upgrade() else { continue };
            if !file.is_enrolled() {
                continue;
            }
            if file.was_used() || !file.is_clean() {
                ring.files.push_back(next);
                continue;
            }
            let before = file.close();
            drop(ring);
            self.count_closed();
            drop(before);
            return true;
        }
        false
    }

    /// From now on the file may be closed.
    pub(crate) fn enroll(&self, file: &Arc<File>) {
        let mut ring = self.ring.lock();
        if file.set_enrolled(true) {
            return;
        }
        ring.add(file);
    }

    /// From now on the file stays open once it is.
    pub(crate) fn dismiss(&self, file: &File) {
        let _ring = self.ring.lock();
        file.set_enrolled(false);
    }

    /// Puts `opened` in the place of `closed`; none where the file is no longer there, or was
    /// opened by another thread.
    pub(crate) fn reopened(
        &self,
        file: &Arc<File>,
        closed: &Arc<Location>,
        opened: Location,
    ) -> Option<Arc<Location>> {
        let mut ring = self.ring.lock();
        if !file.is_at(closed) {
            return None;
        }
        let opened = Arc::new(opened);
        file.put_at(Arc::clone(&opened));
        if file.is_enrolled() {
            ring.add(file);
        }
        drop(ring);
        self.count_opened();
        self.reopened.add(1);
        Some(opened)
    }

    /// The file is elsewhere, and open there.
    pub(crate) fn relocated(&self, file: &Arc<File>, opened: Location) {
        let mut ring = self.ring.lock();
        let was_open = file.is_open();
        file.put_at(Arc::new(opened));
        if !was_open {
            self.count_opened();
            if file.is_enrolled() {
                ring.add(file);
            }
        }
    }

    /// Notes the beginning of a change with `note`, before or after a closing and never meanwhile.
    pub(crate) fn begin_change(&self, note: impl FnOnce()) {
        let _ring = self.ring.lock();
        note();
    }
}

impl Ring {
    fn add(&mut self, file: &Arc<File>) {
        if self.files.len() >= self.cleaned_at.max(RING_CLEANED_MIN) {
            self.files.retain(|file| file.strong_count() > 0);
            self.cleaned_at = 2 * self.files.len();
        }
        self.files.push_back(Arc::downgrade(file));
    }

    /// Files that need a sync before they may be closed.
    fn dirty(&self) -> Vec<Arc<File>> {
        let files = self.files.iter().filter_map(Weak::upgrade);
        files.filter(|file| file.is_enrolled() && file.is_idle() && !file.is_clean()).collect()
    }
}
