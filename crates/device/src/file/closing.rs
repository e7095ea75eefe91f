//! How a file comes to be open and closed, and what is known of its syncs: it is closed only where
//! the device has all that was written to it. See `open_files.rs`.
//!
//! 1. Changes are counted when they end, and a sync covers those that ended before it began.
//! 2. A sync that precedes a closing and fails fails each later one of the file, and the one beside
//!    it. A file whose own sync failed stays open, so that no closing tries it again.
//!
//! Threads: shared freely. What has to be done with the ring of open files locked says so.

use super::{File, Location};
use crate::context::Keeping;
use crate::driver::{Completion, Handle, Operation};
use crate::error::{Error, Result};
use crate::open_files::OpenFiles;
use crate::tiered_files::file_name;
use std::sync::Arc;
use thermocline_foundation::sync::ArcSwapGuard;
use thermocline_foundation::sync::atomic::{
    Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use thermocline_foundation::sync_site;
use thermocline_foundation::sync_site::apart;

/// A change under way: the file stays open until it ends.
#[derive(Debug)]
pub(super) struct Change<'a> {
    file: &'a File,
    pub(super) location: ArcSwapGuard<Arc<Location>>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.file.end_change();
    }
}

impl File {
    /// Where the file's bytes are, open, fixed for one call.
    pub(crate) fn located(&self) -> Result<ArcSwapGuard<Arc<Location>>> {
        let location = self.location.load();
        if location.handle.is_none() {
            return self.reopen();
        }
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        Ok(location)
    }

    #[cold]
    fn reopen(&self) -> Result<ArcSwapGuard<Arc<Location>>> {
        let me = self.me.upgrade().expect("only files of a namespace are closed");
        loop {
            let closed = self.location.load_full();
            if closed.handle.is_some() {
                return Ok(ArcSwapGuard::from_inner(closed));
            }
            closed.tier.require_owner()?;
            let (driver, name) = (closed.tier.driver(), file_name(self.number, self.kind()));
            let opened = self.open_files.with_room(|| match self.open_files.reads_only() {
                true => driver.open_to_read(&name),
                false => driver.open(&name),
            });
            match opened {
                Ok(handle) => {
                    self.used.store(true, Relaxed);
                    let opened = Location::open(Arc::clone(&closed.tier), handle);
                    if let Some(opened) = self.open_files.reopened(&me, &closed, opened) {
                        return Ok(ArcSwapGuard::from_inner(opened));
                    }
                }
                // It moved while it was being opened, or another thread has opened it.
                Err(_) if !self.is_at(&closed) => {}
                Err(error) => {
                    let file = closed.describe(self.label());
                    let text = format!("cannot open {file} again: {error}");
                    return Err(Error::new(error.kind(), text));
                }
            }
        }
    }

    /// The open files that this one is among.
    pub(crate) fn open_files(&self) -> &OpenFiles {
        &self.open_files
    }

    /// Keeps the file open from now on, also where its name goes.
    pub(crate) fn keep_open(&self) -> Result<()> {
        self.open_files.dismiss(self);
        self.located().map(drop)
    }

    /// Begins a change, which lasts until what it gives is dropped.
    pub(super) fn begin_change(&self) -> Result<Change<'_>> {
        let location = self.located_to_change()?;
        Ok(Change { file: self, location })
    }

    /// As [`File::located`], and open until [`File::end_change`] is called.
    pub(crate) fn located_to_change(&self) -> Result<ArcSwapGuard<Arc<Location>>> {
        // In a forked child a thread of its parent may hold the lock that the note needs.
        self.location.load().tier.require_owner()?;
        let note = || {
            self.changing.fetch_add(1, Acquire);
        };
        match self.enrolled.load(Acquire) {
            true => self.open_files.begin_change(note),
            false => note(),
        }
        self.located().inspect_err(|_| {
            self.changing.fetch_sub(1, Release);
        })
    }

    pub(crate) fn end_change(&self) {
        self.changed.fetch_add(1, Release);
        self.changing.fetch_sub(1, Release);
    }

    /// Nothing is being written to it.
    pub(crate) fn is_idle(&self) -> bool {
        self.changing.load(Acquire) == 0
    }

    /// Nothing is being written to it, and the device has all that was, as far as it must.
    pub(crate) fn is_clean(&self) -> bool {
        let is_synced = || self.synced.load(Acquire) == self.changed.load(Acquire);
        let may_be_lost = self.kind().keeping() != Keeping::Durable;
        self.is_idle() && (may_be_lost || self.lost.get().is_none() && is_synced())
    }

    /// Syncs the file so that it may be closed. A failure is that of all later syncs.
    pub(crate) fn sync_to_close(&self) -> Result<()> {
        let _syncing = self.syncing_to_close.lock();
        if self.is_clean() {
            // Another thread was here.
            return Ok(());
        }
        let covered = self.covered();
        let location = self.location.load();
        location.tier.require_owner()?;
        let Some(handle) = self.begin_sync(&location)? else { return Ok(()) };
        let sync = || location.tier.driver().execute(&handle, Operation::Sync);
        // Whichever call opens a file is not what the sync belongs to.
        let completion = apart(|| sync_site("idle-file", sync));
        self.note_sync(&location, covered, completion).inspect_err(|error| {
            self.lost.get_or_init(|| error.clone());
        })
    }

    /// Gives up the descriptor; what is given back still has it. With the ring locked.
    pub(crate) fn close(&self) -> Arc<Location> {
        let before = self.location.load_full();
        let closed = Location { tier: Arc::clone(&before.tier), handle: None };
        self.location.store(Arc::new(closed));
        before
    }

    pub(crate) fn is_open(&self) -> bool {
        self.location.load().handle.is_some()
    }

    /// The file is where `location` says, and open as it says.
    pub(crate) fn is_at(&self, location: &Arc<Location>) -> bool {
        Arc::ptr_eq(&self.location.load(), location)
    }

    /// From now on the file is read at `location`; reads under way finish where they began. With
    /// the ring locked.
    pub(crate) fn put_at(&self, location: Arc<Location>) {
        self.location.store(location);
    }

    pub(crate) fn is_enrolled(&self) -> bool {
        self.enrolled.load(Acquire)
    }

    /// Whether the file may be closed; says whether it might before. With the ring locked.
    pub(crate) fn set_enrolled(&self, enrolled: bool) -> bool {
        let before = self.is_enrolled();
        self.enrolled.store(enrolled, Release);
        before
    }

    /// The file was asked for since this was last called.
    pub(crate) fn was_used(&self) -> bool {
        self.used.load(Relaxed) && {
            self.used.store(false, Relaxed);
            true
        }
    }

    /// What a sync that begins now covers.
    pub(crate) fn covered(&self) -> u64 {
        self.changed.load(Acquire)
    }

    /// The file to sync, where it is open.
    pub(crate) fn begin_sync(&self, location: &Location) -> Result<Option<Handle>> {
        self.require_kept()?;
        let Some(handle) = &location.handle else { return Ok(None) };
        location.tier.counters(self.kind()).count_sync();
        Ok(Some(Handle::clone(handle)))
    }

    /// What the sync of a caller came to.
    pub(crate) fn end_sync(
        &self,
        location: &Location,
        covered: u64,
        completion: Completion,
    ) -> Result<()> {
        // Linux tells a descriptor of a failure once. If a sync that precedes a closing went on
        // beside this one, it may have heard of the failure and this one not.
        drop(self.syncing_to_close.lock());
        let noted = self.note_sync(location, covered, completion);
        noted.inspect_err(|_| self.open_files.dismiss(self))
    }

    fn note_sync(&self, location: &Location, covered: u64, completion: Completion) -> Result<()> {
        completion.result.map_err(|error| {
            let explained = self.explain(location, "sync", &error);
            Error::new(error.kind().after_writing(), explained.to_string())
        })?;
        self.require_kept()?;
        self.synced.fetch_max(covered, Relaxed);
        Ok(())
    }

    /// An error once a sync has failed that was to precede a closing.
    fn require_kept(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
