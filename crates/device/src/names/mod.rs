//! Names over links: one host directory over several storage tiers, for programs that keep their
//! own files and cannot change them (Keigo, sections 4.1 and 4.6).
//!
//! The host's directory stays an ordinary one. A file on a tier is a relative symbolic link in it,
//! so that a host without this code opens the directory as well. One `rename` replaces a link: a
//! move is atomic, and no second record can disagree with the names.
//!
//! ```text
//!   /db/000012.sst -> .thermocline/tier-0/3-17.000012.sst        a managed file on tier 0
//!   /db/CURRENT                                                  a plain file
//!   /db/.thermocline/tier-0 -> /mnt/nvme/app/INSTANCE            where tier 0 is
//!                    DATABASE  LOCK  lost/                       tiers, lock, links without a file
//!   /mnt/nvme/app/INSTANCE/TIER  HOME  3-17.000012.sst           whose tier it is; its files
//!
//!   mod.rs         Names: the calls          class.rs     what a file is, as the host knows it
//!   named_file.rs  one file of a host        link_text.rs what a link says; serials
//!   listing.rs     names and places          home_file.rs HOME: whose directory a tier serves
//!   creation.rs    a new directory           opening.rs   the scan; what a crash left
//!   links.rs       link, rename elsewhere    moves.rs     moves, overflow, export
//!   report.rs      what people are shown     counts.rs    what happened
//!   dissolving.rs  the end of a directory   copies.rs    copies of files on faster tiers
//!   writer.rs      a file while it is written  extents.rs  parts of files on the fastest tier
//!   sampling.rs    what devices are asked    rooms.rs     which tier a new file comes to
//!   settings.rs    what a host may decide
//! ```
//! The host moves the bytes itself, at [`NamedFile::place`]. What a call does, and what a crash
//! leaves of it, is the table in docs/formats/names.md.
//!
//! 1. A link that takes another's name by a rename or a move names a whole file, which was synced
//!    before.
//! 2. Tier directories are synced before the host's.
//! 3. A synced file keeps its name, its bytes and one authoritative place.
//! 4. A serial is given once; no two links name one tier file.
//! 5. Only tier files without a link, on tiers whose identity matched, are deleted.
//! 6. Nothing is created on a tier without `TIER`, nor below a path that is not there.
//! 7. A file that a link no longer names goes only after the new link is durable.
//! 8. Copies are made and go at any time, and never change an answer: a name's file is at its
//!    place.
//! 9. Nothing is changed before the first call that changes something, which takes the lock: tools
//!    that only read work beside a writer.
//! 10. A change whose outcome is not known is the last: later ones say why, until the directory is
//!     opened again.
//!
//! Locks: `changing` is held while names change and while a writing begins, `listing` within it for
//! a moment, never during I/O; a file's own within that, and those of `loads` last. Syncs and
//! copies hold neither.
//! Threads: everything is shared freely.

mod class;
mod copies;
mod counts;
mod creation;
mod dissolving;
mod extents;
mod home_file;
mod link_text;
mod links;
mod listing;
mod moves;
mod named_file;
mod opening;
mod report;
mod rooms;
mod sampling;
mod settings;
mod writer;

pub use class::{FileClass, Heat, Holds};
pub use counts::NameCounts;
pub use extents::ExtentSettings;
pub use home_file::HomeFile;
pub use link_text::{LinkText, Serial};
pub use named_file::NamedFile;
pub(crate) use report::Claim;
pub use report::{NamedInfo, NamedTier};
pub use settings::NameSettings;
pub use writer::Writer;

use crate::driver::{DirectoryLock, Driver, Entry, Operation};
use crate::error::{Error, ErrorKind, Result};
use crate::load::Loads;
use crate::placement::Placement;
use crate::tier::{Tier, TierIndex};
use crate::tiered_files::{Devices, Home};
use copies::Copying;
use counts::Counts;
use extents::HostExtents;
use listing::{Listing, Named, Place};
use sampling::Sampling;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use thermocline_foundation::sync::atomic::Ordering::{AcqRel, Acquire};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64};
use thermocline_foundation::sync::{Mutex, OnceLock};
use thermocline_foundation::{Counter, Planted, planted, sync_site};

/// The directory of this software in a host's.
pub const DIRECTORY_NAME: &str = ".thermocline";
/// What names in a host's directory begin with while they are being made.
const UNFINISHED: &str = ".thermocline-new.";
/// Links without a file, in the directory of this software.
const LOST_NAME: &str = "lost";

/// The name is this software's, and no host's.
pub(crate) fn is_hidden(name: &str) -> bool {
    name == DIRECTORY_NAME || name.starts_with(UNFINISHED)
}

/// One host directory over its tiers. Clones are the same. See the module.
#[derive(Clone, Debug)]
pub struct Names {
    host: Arc<Host>,
}

/// A [`Names`] that lasts as long as another one, or a file of it, does.
#[derive(Clone, Debug)]
pub(crate) struct WeakNames {
    host: Weak<Host>,
}

impl WeakNames {
    pub(crate) fn upgrade(&self) -> Option<Names> {
        self.host.upgrade().map(|host| Names { host })
    }
}

/// A directory that files lie in: a tier's, or the host's.
#[derive(Debug)]
struct Room {
    tier: Arc<Tier>,
    /// Changes of names in it, and how many of them are durable.
    changes: AtomicU64,
    durable: AtomicU64,
}

impl Room {
    fn new(tier: Arc<Tier>) -> Self {
        Self { tier, changes: AtomicU64::new(0), durable: AtomicU64::new(0) }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, AcqRel);
    }

    /// Makes the names in it durable that changed before the call.
    fn sync(&self) -> Result<()> {
        let changes = self.changes.load(Acquire);
        if changes > self.durable.load(Acquire) {
            sync_site("names/tier", || self.tier.sync_directory())?;
            self.durable.fetch_max(changes, AcqRel);
        }
        Ok(())
    }
}

/// What all openings of one [`Names`] share.
#[derive(Debug)]
struct Host {
    devices: Arc<dyn Devices>,
    path: PathBuf,
    /// `.thermocline`, and its path.
    own: Arc<dyn Driver>,
    own_path: PathBuf,
    /// The tiers by what says whose they are. That of a host's directory which is a tier itself is
    /// in `.thermocline`.
    identities: Vec<Arc<Tier>>,
    /// One of them has an emulated device.
    is_emulated: bool,
    /// The largest block of their devices.
    direct_unit: usize,
    /// The tiers by where their files lie, and last the host's directory where it is no tier.
    rooms: Vec<Room>,
    /// Which of `rooms` is the host's directory.
    home: TierIndex,
    placement: Arc<dyn Placement>,
    listing: Mutex<Listing>,
    /// Those of the listing, for readers that do not wait for it.
    epochs: Arc<AtomicU64>,
    loads: Loads,
    sampling: Sampling,
    counts: Counts,
    /// Reads that hosts told of, by the room that served them.
    served: Vec<Counter>,
    copying: Copying,
    /// None inside: nothing is kept. Goes before the lock.
    extents: OnceLock<Option<HostExtents>>,
    changing: Mutex<Option<Changing>>,
    /// There is something in `changing`.
    is_writer: AtomicBool,
    /// Why nothing can be changed any more.
    broken: Mutex<Option<Error>>,
}

/// What a writer has.
#[derive(Debug)]
struct Changing {
    home: Home,
    last_counter: u64,
    _lock: Box<dyn DirectoryLock>,
}

impl Changing {
    /// A serial that no other file had or will have.
    fn serial(&mut self) -> Serial {
        self.last_counter += 1;
        let generation = self.home.generation;
        let generation = if planted(Planted::SerialReused) { 1 } else { generation };
        Serial { generation, counter: self.last_counter }
    }
}

impl Names {
    /// Makes a file under a name that may be in use; the old file stays until the new name is
    /// durable. The host opens the file at its place. It is whole once the writer is dropped.
    ///
    /// Errors: `OutOfSpace` where every tier refused.
    pub fn create(&self, name: &str, class: FileClass) -> Result<Writer> {
        self.host.change(name, |changing| self.host.create(changing, name, class))
    }

    /// The file of a name: a managed one, or the host's own.
    pub fn open(&self, name: &str) -> Result<Arc<NamedFile>> {
        self.host.require_visible(name)?;
        self.host.look_at(name)?;
        self.host.listing.lock().open(&self.host, name)
    }

    /// Gives a file another name. What had the name is replaced as a whole: the new file is made
    /// durable first, and the old one goes when the new name is durable.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        [from, to].into_iter().try_for_each(|name| self.host.require_visible(name))?;
        if from == to {
            return self.open(from).map(drop);
        }
        self.host.make_whole(from, to)?;
        self.host.change(from, |_| self.host.rename(from, to))
    }

    /// Removes a name and its file.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.host.change(name, |_| self.host.delete(name))
    }

    /// Makes all names so far durable: of the tiers first, then the host's.
    pub fn sync_directory(&self) -> Result<()> {
        self.host.begin()?;
        if !planted(Planted::DirectorySyncForgetsTiers) {
            self.host.tier_rooms().try_for_each(Room::sync)?;
        }
        self.host.sync_home()
    }

    /// What a host sees in its directory: its plain files, and managed ones with their lengths. A
    /// link whose file is gone is listed as a link.
    ///
    /// Errors: those of a tier that does not say how long a file is.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let mut entries = self.host.home_driver().list()?;
        entries.retain(|entry| !is_hidden(&entry.name));
        for entry in entries.iter_mut().filter(|entry| entry.is_link) {
            let text = self.host.link_now(&entry.name)?.flatten();
            let Some(place) = text.and_then(|text| self.host.place_of(&text)) else { continue };
            match self.host.room(&place).tier.driver().open_to_read(&place.file) {
                Ok(file) => (entry.len, entry.is_link) = (file.len()?, false),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    /// Something was changed here, by this value or one that it is a clone of.
    pub fn is_writer(&self) -> bool {
        self.host.is_writer.load(Acquire)
    }

    /// Bytes that managed files can still take: what tiers have left of their capacities, and
    /// their devices at all.
    pub fn free_bytes(&self) -> u64 {
        let states = self.host.tier_states();
        let free = states.iter().zip(&self.host.identities).map(|(state, tier)| {
            let left = state.capacity_bytes.saturating_sub(state.used_bytes);
            tier.driver().space().map_or(left, |space| left.min(space.free_bytes))
        });
        free.fold(0, u64::saturating_add)
    }

    /// What happened since the directory was opened.
    pub fn counts(&self) -> NameCounts {
        self.host.counts.get()
    }

    pub(crate) fn downgrade(&self) -> WeakNames {
        WeakNames { host: Arc::downgrade(&self.host) }
    }

    /// The host's directory.
    pub fn path(&self) -> &std::path::Path {
        &self.host.path
    }
}

impl Host {
    fn room(&self, place: &Place) -> &Room {
        &self.rooms[place.room.position()]
    }

    fn path_of(&self, place: &Place) -> PathBuf {
        self.room(place).tier.spec().path.join(&place.file)
    }

    /// The text of a name that was listed, none where it is no link any more; the outer none says
    /// that the name went since then, which a writer beside this process may do.
    fn link_now(&self, name: &str) -> Result<Option<Option<String>>> {
        match self.home_driver().read_link(name) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn home_driver(&self) -> &Arc<dyn Driver> {
        self.rooms[self.home.position()].tier.driver()
    }

    fn tier_rooms(&self) -> impl Iterator<Item = &Room> {
        let home = self.home.position();
        self.rooms.iter().enumerate().filter(move |(at, _)| *at != home).map(|(_, room)| room)
    }

    /// Where a link leads; none where it is no link of a tier.
    fn place_of(&self, text: &str) -> Option<Place> {
        let link = LinkText::parse(text)?;
        let is_tier = link.tier.position() < self.identities.len() && link.tier != self.home;
        is_tier.then(|| Place { room: link.tier, file: link.file_name() })
    }

    /// Names of this software are no host's.
    fn require_visible(&self, name: &str) -> Result<()> {
        if !is_hidden(name) {
            return Ok(());
        }
        let text = format!("{name} in {} is Thermocline's: name another", self.path.display());
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// Carries out a change of names, one at a time.
    fn change<T>(&self, name: &str, change: impl FnOnce(&mut Changing) -> Result<T>) -> Result<T> {
        self.require_visible(name)?;
        self.begin()?;
        let mut changing = self.changing.lock();
        let changing = changing.as_mut().expect("it has begun, and never ends");
        self.require_sound()?;
        change(changing)
    }

    fn require_sound(&self) -> Result<()> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    /// The result of a call that changes a name. After a failure it is not known what the name
    /// leads to (invariant 10), unless the failure says that nothing was done.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        use ErrorKind::{AlreadyExists, Denied, Invalid, NotFound, OutOfSpace, ReadOnly};
        let unchanged = [OutOfSpace, NotFound, AlreadyExists, Denied, ReadOnly, Invalid];
        if let Err(error) = &result
            && !unchanged.contains(&error.kind())
        {
            self.latch(error);
        }
        result
    }

    /// Ends changes until the directory is opened again.
    fn latch(&self, error: &Error) {
        let text = format!(
            "names in {} may not be what they seem since a change failed; open it again: {error}",
            self.path.display()
        );
        self.broken.lock().get_or_insert(Error::new(error.kind(), text));
    }

    /// Looks again at a name that another process, or the host itself, may have changed.
    fn look_at(&self, name: &str) -> Result<()> {
        if self.is_writer.load(Acquire) && self.listing.lock().get(name).is_ok() {
            return Ok(());
        }
        let found = match self.home_driver().read_link(name) {
            Ok(text) => {
                let place = text.and_then(|text| self.place_of(&text));
                Some(place.unwrap_or_else(|| self.plain(name)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut listing = self.listing.lock();
        // A name that this opening listed meanwhile is of a file that this look knows nothing of.
        let is_known = self.is_writer.load(Acquire) && listing.get(name).is_ok();
        if !is_known {
            listing.found(name, found);
        }
        Ok(())
    }

    fn plain(&self, name: &str) -> Place {
        Place { room: self.home, file: name.to_owned() }
    }

    fn create(
        self: &Arc<Self>,
        changing: &mut Changing,
        name: &str,
        class: FileClass,
    ) -> Result<Writer> {
        let expected = self.expected_bytes(class);
        let rooms = self.rooms_for(class, expected)?;
        let mut refused = None;
        for room in rooms {
            self.make_room(room, expected);
            let created = match self.create_in(changing, name, room) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && self.drop_copies(room) => {
                    self.create_in(changing, name, room)
                }
                created => created,
            };
            match created {
                Ok(place) => {
                    let writing = self.loads.begin(place.room, self.context(class));
                    let mut listing = self.listing.lock();
                    if matches!(class.holds, Holds::Table | Holds::Blob) {
                        listing.begin_epoch();
                    }
                    let mut named = Named::new(place, class, expected, listing.epoch());
                    named.begin_writing();
                    listing.replace(name, named, self.home);
                    let file = listing.open(self, name)?;
                    file.written_by(writing);
                    drop(listing);
                    return Ok(Writer::of(file));
                }
                Err(error) if error.kind() == ErrorKind::OutOfSpace => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.unwrap_or_else(|| self.full()))
    }

    /// Makes a file in a room, and gives it the name.
    fn create_in(&self, changing: &mut Changing, name: &str, room: TierIndex) -> Result<Place> {
        let serial = changing.serial();
        if room == self.home {
            let unfinished = format!("{UNFINISHED}{serial}");
            self.home_driver().create(&unfinished)?;
            let renamed = self.home_driver().rename(&unfinished, name);
            return self.named(renamed).map(|()| self.plain(name));
        }
        let link = LinkText { tier: room, serial, name: name.to_owned() };
        let place = Place { room, file: link.file_name() };
        let directory = self.room(&place);
        directory.tier.driver().create(&place.file)?;
        directory.changed();
        if let Err(error) = self.put_link(name, &link) {
            self.remove(&place);
            return Err(error);
        }
        Ok(place)
    }

    /// Makes a link, in place of what has the name.
    fn put_link(&self, name: &str, link: &LinkText) -> Result<()> {
        let unfinished = format!("{UNFINISHED}{}", link.serial);
        let home = self.home_driver();
        home.make_link(&unfinished, &link.to_string())?;
        self.named(home.rename(&unfinished, name))
    }

    /// Removes a file of a room that nothing leads to; one that stays is found at the next opening.
    fn remove(&self, place: &Place) {
        let room = self.room(place);
        match room.tier.driver().delete(&place.file) {
            Ok(()) => room.changed(),
            Err(error) => tracing::warn!(%error, "a file stays that nothing leads to"),
        }
    }

    /// Before a file takes the name of another: what it holds is durable, and so is its own name on
    /// its tier (invariant 1).
    fn make_whole(&self, from: &str, to: &str) -> Result<()> {
        self.begin()?;
        self.look_at(from)?;
        self.look_at(to)?;
        let place = {
            let listing = self.listing.lock();
            let place = listing.get(from)?.place.clone();
            match listing.get(to) {
                Ok(other) if other.place.room != self.home || place.room != self.home => place,
                _ => return Ok(()),
            }
        };
        let room = self.room(&place);
        if planted(Planted::LinkSwitchedUnsynced) {
            return Ok(());
        }
        let driver = room.tier.driver();
        let file = match driver.open(&place.file) {
            // It was moved meanwhile.
            Err(_) if self.has_left(from, &place) => return self.make_whole(from, to),
            opened => opened?,
        };
        sync_site("names/whole", || driver.execute(&file, Operation::Sync).result)?;
        if place.room == self.home { Ok(()) } else { room.sync() }
    }

    /// The file of a name is elsewhere by now.
    fn has_left(&self, name: &str, place: &Place) -> bool {
        self.listing.lock().get(name).is_ok_and(|named| named.place != *place)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.listing.lock().get(from)?;
        self.named(self.home_driver().rename(from, to))?;
        self.listing.lock().rename(from, to, self.home);
        Ok(())
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.look_at(name)?;
        let place = self.listing.lock().get(name)?.place.clone();
        let len = self.len_of(&place).ok();
        self.named(self.home_driver().delete(name))?;
        let copy = self.listing.lock().delete(name, len);
        copy.iter().for_each(|copy| self.remove(copy));
        if place.room != self.home {
            self.remove(&place);
        }
        Ok(())
    }

    /// Makes the host's names durable; what they replaced goes.
    fn sync_home(&self) -> Result<()> {
        let replaced = self.listing.lock().take_replaced();
        let synced =
            sync_site("names/home", || self.rooms[self.home.position()].tier.sync_directory());
        if synced.is_ok() {
            replaced.iter().for_each(|place| self.remove(place));
        }
        // What a power cut leaves is not known any more, and a second sync does not tell.
        synced.inspect_err(|error| self.latch(error))
    }

    /// The first sync of a file that has a new name, after its bytes are durable.
    fn sync_name(&self, place: &Place) -> Result<()> {
        if planted(Planted::FirstSyncForgetsName) {
            return Ok(());
        }
        if place.room != self.home {
            self.room(place).sync()?;
        }
        self.sync_home()
    }
}
