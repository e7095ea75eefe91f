//! One file of a host: where the host finds its bytes, and what must happen when it syncs them.
//!
//! 1. The place changes only by a rename of a plain file, a move or an overflow, that of reads also
//!    by a copy; the epoch goes up when it does, so that a host which loads it before each read
//!    opens the new place.
//! 2. A name that was made or changed since the last sync is made durable by the next one.
//!
//! Threads: shared freely.

use super::Host;
use super::extents::Known;
use super::listing::{Place, Reading};
use crate::driver::{Driver, HostUse};
use crate::error::Result;
use crate::load::Writing;
use crate::tier::TierIndex;
use std::path::PathBuf;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An open file of a host. Shared by all that opened it.
#[derive(Debug)]
pub struct NamedFile {
    host: Arc<Host>,
    at: Mutex<At>,
    epoch: AtomicU64,
    /// Of the listing, where it outlives this.
    reading: Arc<Reading>,
    /// The room that serves its reads.
    served_by: AtomicUsize,
    /// What extents know it by; none where none are kept.
    known: Option<Known>,
}

#[derive(Debug)]
struct At {
    name: String,
    place: Place,
    /// On a faster tier.
    copy: Option<Place>,
    /// Changes of the name, and how many of them are durable.
    changes: u64,
    durable: u64,
    /// It is being written.
    writing: Option<Writing>,
    /// The rooms whose devices refused what comes behind so many bytes.
    refused: (u64, Vec<TierIndex>),
}

impl NamedFile {
    /// A file of which it is not known whether its name is durable.
    pub(super) fn new(
        host: &Arc<Host>,
        name: &str,
        place: Place,
        copy: Option<Place>,
        reading: Arc<Reading>,
    ) -> Self {
        let served_by = AtomicUsize::new(copy.as_ref().unwrap_or(&place).room.position());
        let (name, refused) = (name.to_owned(), (0, Vec::new()));
        let at = At { name, place, copy, changes: 1, durable: 0, writing: None, refused };
        let (host, at, known) = (Arc::clone(host), Mutex::new(at), host.unknown_file());
        Self { host, at, epoch: AtomicU64::new(0), reading, served_by, known }
    }

    /// It is being written from now on.
    pub(super) fn written_by(&self, writing: Option<Writing>) {
        self.at.lock().writing = writing;
    }

    /// Its bytes are about to change.
    pub(super) fn will_change(&self) {
        self.known.iter().for_each(Known::forget);
    }

    pub(super) fn known(&self) -> Option<&Known> {
        self.known.as_ref()
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn served_by(&self) -> usize {
        self.served_by.load(Ordering::Relaxed)
    }

    /// It is written no more.
    pub(super) fn is_written(&self) {
        self.at.lock().writing = None;
    }

    /// To be called when the host has read from it: what is read stays longer on its tier.
    pub fn was_read(&self) {
        self.was_read_times(1);
    }

    /// As [`NamedFile::was_read`], for so many reads since the call before.
    pub fn was_read_times(&self, times: u64) {
        let epoch = self.host.epochs.load(Ordering::Relaxed);
        self.reading.last_epoch.store(epoch, Ordering::Relaxed);
        self.reading.reads.fetch_add(times, Ordering::Relaxed);
        self.host.served[self.served_by()].add(times);
    }

    /// Offsets, lengths and buffers of a host's direct I/O that suit the devices of all tiers,
    /// since its buffers may outlive a move: multiples of so many bytes, a power of two.
    pub fn direct_unit(&self) -> usize {
        self.host.direct_unit
    }

    /// Where its tier's device is emulated: when that would be done with what the host is about to
    /// do. The host then [waits](NamedFile::wait_until). None for a real device.
    pub fn book(&self, of: HostUse) -> Option<u64> {
        if !self.is_emulated() {
            return None;
        }
        self.device().book(std::ptr::from_ref(self).addr(), of)
    }

    /// One of the host's tiers is emulated. Costs a load from memory.
    pub fn is_emulated(&self) -> bool {
        self.host.is_emulated
    }

    /// Waits until a time that [`NamedFile::book`] told, wherever the file has moved since: all
    /// emulated devices live by one clock.
    pub fn wait_until(&self, due_ns: u64) {
        let devices = self.host.identities.iter().map(|tier| tier.driver());
        devices.for_each(|device| device.wait_until(due_ns));
    }

    /// A file that is written has no copy: it is written where its reads are served. The room of
    /// files at home is a plain directory; its tier may be emulated.
    fn device(&self) -> &dyn Driver {
        let at = self.served_by();
        let tier = self.host.identities.get(at).unwrap_or(&self.host.rooms[at].tier);
        &**tier.driver()
    }

    /// Where the host opens it, to read, or to write while it has a [`Writer`](super::Writer).
    pub fn place(&self) -> PathBuf {
        self.host.path_of(&self.at.lock().place)
    }

    /// Where the host opens it to read: at a copy on a faster tier, where there is one. It must not
    /// be written any more.
    pub fn place_to_read(&self) -> PathBuf {
        let at = self.at.lock();
        self.host.path_of(at.copy.as_ref().unwrap_or(&at.place))
    }

    /// Goes up when [`NamedFile::place`] or [`NamedFile::place_to_read`] changes.
    pub fn epoch(&self) -> &AtomicU64 {
        &self.epoch
    }

    /// To be called when the host has made the file's bytes durable, before it relies on that:
    /// makes the name durable, too.
    ///
    /// Errors: the name may be lost with the power, and later calls fail as well.
    pub fn synced(&self) -> Result<()> {
        // After a move whose name is not known to be durable, the bytes may be at the other place.
        self.host.require_sound()?;
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
        Ok(())
    }

    /// A room's device refused what comes behind `len` bytes of the file; all that did.
    pub(super) fn refused_by(&self, room: TierIndex, len: u64) -> Vec<TierIndex> {
        let refused = &mut self.at.lock().refused;
        if refused.0 != len {
            *refused = (len, Vec::new());
        }
        if !refused.1.contains(&room) {
            refused.1.push(room);
        }
        refused.1.clone()
    }

    /// The host was told that all rooms refused: if it tries again, so do they.
    pub(super) fn forget_refusals(&self) {
        self.at.lock().refused.1.clear();
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

    /// The file is whole and durable at `place`, its name is not yet. Returns the changes of the
    /// name so far, for [`NamedFile::is_durable`].
    pub(super) fn moved(&self, place: Place) -> u64 {
        let mut at = self.at.lock();
        at.changes += 1;
        self.relocate(&mut at, place);
        at.changes
    }

    /// So many changes of the name are durable.
    pub(super) fn is_durable(&self, changes: u64) {
        let mut at = self.at.lock();
        at.durable = at.durable.max(changes);
    }

    /// Reads are served there from now on; by its place where there is no copy any more.
    pub(super) fn copied(&self, copy: Option<Place>) {
        let mut at = self.at.lock();
        at.copy = copy;
        self.serve(&at);
    }

    fn serve(&self, at: &At) {
        let room = at.copy.as_ref().unwrap_or(&at.place).room;
        self.served_by.store(room.position(), Ordering::Relaxed);
        self.will_change();
        self.epoch.fetch_add(1, Ordering::Release);
    }

    fn relocate(&self, at: &mut At, place: Place) {
        if at.place != place {
            let writing = at.writing.as_ref().map(|writing| writing.elsewhere(place.room));
            (at.place, at.writing) = (place, writing);
            self.serve(at);
        }
    }
}
