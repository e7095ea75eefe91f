//! One file of a host: where the host finds its bytes, and what must happen when it syncs them.
//!
//! 1. The place changes only by a rename of a plain file, a move or an overflow; the epoch goes up
//!    when it does, so that a host which loads it before each read opens the new place.
//! 2. A name that was made or changed since the last sync is made durable by the next one.
//!
//! Threads: shared freely.

use super::Host;
use super::listing::Place;
use crate::error::Result;
use std::path::PathBuf;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};

/// An open file of a host. Shared by all that opened it.
#[derive(Debug)]
pub struct NamedFile {
    host: Arc<Host>,
    at: Mutex<At>,
    epoch: AtomicU64,
}

#[derive(Debug)]
struct At {
    name: String,
    place: Place,
    /// Changes of the name, and how many of them are durable.
    changes: u64,
    durable: u64,
}

impl NamedFile {
    /// A file of which it is not known whether its name is durable.
    pub(super) fn new(host: &Arc<Host>, name: &str, place: Place) -> Self {
        let at = At { name: name.to_owned(), place, changes: 1, durable: 0 };
        Self { host: Arc::clone(host), at: Mutex::new(at), epoch: AtomicU64::new(0) }
    }

    /// Where the host opens it.
    pub fn place(&self) -> PathBuf {
        let at = self.at.lock();
        self.host.room(&at.place).tier.spec().path.join(&at.place.file)
    }

    /// Goes up when [`NamedFile::place`] changes.
    pub fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// To be called when the host has made the file's bytes durable, before it relies on that:
    /// makes the name durable, too.
    ///
    /// Errors: the name may be lost with the power, and later calls fail as well.
    pub fn synced(&self) -> Result<()> {
        let (place, changes) = {
            let at = self.at.lock();
            if at.changes == at.durable {
                return Ok(());
            }
            (at.place.clone(), at.changes)
        };
        self.host.begin()?;
        self.host.sync_name(&place)?;
        let mut at = self.at.lock();
        at.durable = at.durable.max(changes);
        drop(at);
        self.host.settle(self);
        Ok(())
    }

    /// To be called when the device refused to extend the file beyond its first `len` bytes: the
    /// file goes on elsewhere, with these bytes, and the host repeats there what failed.
    ///
    /// Errors: `OutOfSpace` where every tier refused; the file is as it was.
    pub fn continue_elsewhere(&self, len: u64) -> Result<()> {
        self.host.continue_elsewhere(self, len)
    }

    /// The name that the file has, or had last.
    pub fn name(&self) -> String {
        self.at.lock().name.clone()
    }

    pub(super) fn location(&self) -> (Arc<Host>, Place) {
        (Arc::clone(&self.host), self.at.lock().place.clone())
    }

    pub(super) fn renamed(&self, to: &str, place: Place) {
        let mut at = self.at.lock();
        at.name = to.to_owned();
        at.changes += 1;
        self.relocate(&mut at, place);
    }

    /// The file is whole and durable at `place`, as is its name.
    pub(super) fn moved(&self, place: Place, changes: u64) {
        let mut at = self.at.lock();
        at.durable = at.durable.max(changes);
        self.relocate(&mut at, place);
    }

    /// Changes of the name so far.
    pub(super) fn changes(&self) -> u64 {
        self.at.lock().changes
    }

    fn relocate(&self, at: &mut At, place: Place) {
        if at.place != place {
            at.place = place;
            self.epoch.fetch_add(1, Ordering::Release);
        }
    }
}
