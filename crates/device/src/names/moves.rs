//! A file's bytes go to another tier, or home, under the name that they have: moves that are worth
//! making, what overflows, and everything home.
//!
//! ```text
//!   copy -> sync -> verify -> sync the tier's names -> the link, by rename
//!        -> sync the host's names -> epoch -> the old place goes
//! ```
//! 1. The link is the switch. A crash before it leaves a stray copy, one after it the old file;
//!    the next opening for writing removes either.
//! 2. Readers never wait: those that began at the old place end there.
//! 3. A file that is deleted or replaced meanwhile stays so, and the copy goes.
//! 4. A file that overflows is cut to the bytes that its host knows of, so that repeating the
//!    append that failed writes them once.
//!
//! Threads: any number of files move at once, a file once at a time.

use super::link_text::parse_file_name;
use super::listing::Place;
use super::named_file::NamedFile;
use super::{Holds, Host, LinkText, Names, UNFINISHED};
use crate::context::{FileContext, FileKind, Origin};
use crate::driver::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::migration::copy;
use crate::migration_queue::{Leaving, Thresholds, leaving};
use crate::placement::{TierState, overflow_order};
use crate::pool_size::pool_size;
use crate::tier::TierIndex;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, planted, sync_site};

/// Where a file goes and what its copy is called there.
pub(super) struct Target {
    pub room: TierIndex,
    pub file: String,
    /// None where it goes to the host's directory.
    link: Option<LinkText>,
}

impl Names {
    /// The level of a table became known, or is another one now: it counts for the next placement,
    /// and [`Names::move_next`] moves the file where that has it elsewhere.
    pub fn set_level(&self, name: &str, level: u8) {
        let mut listing = self.host.listing.lock();
        let Ok(named) = listing.get_mut(name) else { return };
        let before = named.class.level.replace(level);
        if before != Some(level) && named.class.holds != Holds::Other {
            self.host.counts.corrected_levels.add(u64::from(before.is_some()));
            listing.to_place.push_back(name.to_owned());
        }
    }

    /// Makes one of the moves that are due; false if there was none. Files whose level changed come
    /// first, then the coldest of a tier that is nearly full; what must go goes before both.
    ///
    /// Errors: the file stays where it is.
    pub fn move_next(&self) -> Result<bool> {
        let leaving = self.host.next_leaving();
        if !leaving.as_ref().is_some_and(|leaving| leaving.is_forced) {
            let next = self.host.listing.lock().to_place.pop_front();
            if let Some(name) = next {
                let moved = self.host.place_again(&name)?;
                self.host.counts.moved_by_level.add(u64::from(moved));
                return Ok(true);
            }
        }
        let Some(leaving) = leaving else { return Ok(false) };
        let file = match self.open(&leaving.name) {
            // It was deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            file => file?,
        };
        let moved = self.host.relocate(&file, None, leaving.to)?;
        self.host.counts.moved_for_room.add(u64::from(moved));
        self.host.counts.moved_by_force.add(u64::from(moved && leaving.is_forced));
        Ok(true)
    }

    /// A move is due.
    pub fn has_moves(&self) -> bool {
        !self.host.listing.lock().to_place.is_empty() || self.host.next_leaving().is_some()
    }

    /// Threads that may call [`Names::move_next`] at once now: what the writers leave of the tiers
    /// to which files are to move, and one where one must (Keigo, section 4.2). 0 where no move is
    /// due.
    pub fn move_threads(&self) -> u16 {
        let leaving = self.host.next_leaving();
        let states = self.host.tier_states();
        // Where a file goes whose level changed is decided when it is moved: the busiest tier
        // counts.
        let busiest = |state: &TierState| spare_threads(state, false);
        let placed = match self.host.listing.lock().to_place.is_empty() {
            true => 0,
            false => states.iter().map(busiest).min().unwrap_or(0),
        };
        let left = leaving
            .map_or(0, |leaving| spare_threads(&states[leaving.to.position()], leaving.is_forced));
        placed.max(left)
    }

    /// Gives all managed files the places that placement has for them: those that were plain, too,
    /// logs excepted. Returns how many moved.
    pub fn adopt(&self) -> Result<u64> {
        let mut moved = 0;
        for name in self.host.managed_names(|holds| holds != Holds::Log) {
            moved += u64::from(self.host.place_again(&name)?);
        }
        Ok(moved)
    }

    /// Brings all files home: the directory needs no tiers then. Returns how many moved. No host
    /// may write meanwhile.
    pub fn export(&self) -> Result<u64> {
        let mut moved = 0;
        for name in self.host.managed_names(|_| true) {
            let file = self.open(&name)?;
            moved += u64::from(self.host.relocate(&file, None, self.host.home)?);
        }
        Ok(moved)
    }
}

impl NamedFile {
    /// Makes bytes and name durable, as the host's own sync and [`NamedFile::synced`] would.
    pub(super) fn make_durable(&self) -> Result<()> {
        let (host, place) = self.location();
        let driver = host.room(&place).tier.driver();
        let file = driver.open(&place.file)?;
        sync_site("names/whole", || driver.execute(&file, crate::driver::Operation::Sync).result)?;
        self.synced()
    }
}

fn spare_threads(tier: &TierState, is_forced: bool) -> u16 {
    pool_size(tier.profile.write.useful_workers(), tier.load.writers_now(), is_forced)
}

impl Host {
    /// The file that is to leave its tier next, for want of room.
    fn next_leaving(&self) -> Option<Leaving<String>> {
        let tiers = self.tier_states();
        let residents = self.listing.lock().residents(tiers.len());
        leaving(&residents, &tiers, Thresholds::default()).into_iter().next()
    }

    fn managed_names(&self, wanted: impl Fn(Holds) -> bool) -> Vec<String> {
        let listing = self.listing.lock();
        let managed = listing.iter().filter(|(_, named)| {
            let holds = named.class.holds;
            (holds != Holds::Other || named.place.room != self.home) && wanted(holds)
        });
        managed.map(|(name, _)| name.clone()).collect()
    }

    /// Moves a file to where placement has it now; true if it moved.
    fn place_again(self: &Arc<Self>, name: &str) -> Result<bool> {
        self.begin()?;
        let mut states = self.tier_states();
        self.tell_levels(&states);
        let mut listing = self.listing.lock();
        let Ok(named) = listing.get(name) else { return Ok(false) };
        if !matches!(named.class.holds, Holds::Table | Holds::Blob) {
            return Ok(false);
        }
        let context = named.class.context();
        if let Some(here) = states.get_mut(named.place.room.position()) {
            here.remove(context.kind, named.bytes);
        }
        let Some(to) = self.placement.place(context, named.bytes, &states) else {
            return Ok(false);
        };
        let file = listing.open(self, name)?;
        drop(listing);
        self.relocate(&file, None, to)
    }

    pub(super) fn continue_elsewhere(self: &Arc<Self>, file: &NamedFile, len: u64) -> Result<()> {
        let tiers = self.identities.len();
        let (_, from) = file.location();
        self.drop_copies(from.room);
        let others = overflow_order(from.room.position(), tiers);
        for to in others.map(|at| TierIndex(at as u8)).filter(|to| *to != from.room) {
            match self.relocate(file, Some(len), to) {
                Ok(_) => {
                    self.counts.overflowed.add(1);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.full())
    }

    /// The file's length is final as far as it is known: it is what it takes.
    pub(super) fn settle(&self, file: &NamedFile) {
        let is_log = Holds::of_name(&file.name()) == Holds::Log;
        if !is_log {
            file.is_written();
        }
        let (_, place) = file.location();
        let len = self.room(&place).tier.driver().open_to_read(&place.file);
        let Ok(len) = len.and_then(|file| file.len()) else { return };
        let mut listing = self.listing.lock();
        let Some(name) = listing.name_of(file) else { return };
        let Ok(named) = listing.get_mut(&name) else { return };
        if matches!(named.class.holds, Holds::Table | Holds::Blob) {
            (named.bytes, named.is_whole) = (len, true);
            let class = named.class;
            listing.remember(class, Some(len));
        }
    }

    /// Moves a file, of which only the first `cut` bytes count, to another room; false if it is
    /// there already, or on its way.
    fn relocate(
        self: &Arc<Self>,
        file: &NamedFile,
        cut: Option<u64>,
        to: TierIndex,
    ) -> Result<bool> {
        self.begin()?;
        self.require_sound()?;
        let Some((from, bytes)) = self.begin_move(file, to)? else { return Ok(false) };
        self.make_room(to, bytes);
        let moved = self.copy(&from, cut, to).and_then(|target| self.switch(file, &target));
        let mut listing = self.listing.lock();
        if let Some(name) = listing.name_of(file) {
            listing.get_mut(&name)?.moving = false;
        }
        drop(listing);
        moved.map_err(|error| {
            self.counts.failed_moves.add(1);
            let text = format!("cannot move {} to {to}: {error}", file.name());
            Error::new(error.kind(), text)
        })
    }

    fn begin_move(&self, file: &NamedFile, to: TierIndex) -> Result<Option<(Place, u64)>> {
        let mut listing = self.listing.lock();
        let name = listing.name_of(file).ok_or_else(|| gone(file))?;
        let named = listing.get_mut(&name)?;
        if named.moving || named.place.room == to {
            return Ok(None);
        }
        named.moving = true;
        Ok(Some((named.place.clone(), named.bytes)))
    }

    /// Copies what is at `from`; the copy is whole and durable, and so is its name on a tier.
    fn copy(&self, from: &Place, cut: Option<u64>, to: TierIndex) -> Result<Target> {
        let target = self.target(from, to);
        let tier = &self.room(from).tier;
        let handle = match cut {
            None => tier.driver().open_to_read(&from.file)?,
            Some(len) => {
                let handle = tier.driver().open(&from.file)?;
                handle.truncate(len)?;
                handle
            }
        };
        let room = &self.rooms[to.position()];
        let copied =
            sync_site("names/move", || self.copy_bytes(from, handle, &target, Origin::Migration));
        let is_late = planted(Planted::HomeSyncedBeforeTier);
        let synced = copied.and_then(|()| match to == self.home || is_late {
            true => Ok(()),
            false => room.sync(),
        });
        if let Err(error) = synced {
            self.remove(&Place { room: to, file: target.file });
            return Err(error);
        }
        Ok(target)
    }

    /// Copies the bytes behind a handle of `from`, verified and synced; the name is not durable.
    pub(super) fn copy_bytes(
        &self,
        from: &Place,
        handle: Handle,
        target: &Target,
        origin: Origin,
    ) -> Result<()> {
        let database = self.changing.lock().as_ref().map(|changing| changing.home.database);
        let (database, kind) = (database.unwrap_or_default(), FileKind::Table { level: 0 });
        let driver = Arc::clone(self.room(from).tier.driver());
        let source = File::new(database, FileNumber(0), kind, from.room, driver, handle);
        let room = &self.rooms[target.room.position()];
        let _writing = self.loads.begin(target.room, FileContext { kind, origin });
        let copied = copy(&source, &room.tier, &target.file, &mut |_| {});
        room.changed();
        copied.map(drop)
    }

    pub(super) fn target(&self, from: &Place, room: TierIndex) -> Target {
        let mut changing = self.changing.lock();
        let serial = changing.as_mut().expect("it has begun, and never ends").serial();
        if room == self.home {
            return Target { room, file: format!("{UNFINISHED}{serial}"), link: None };
        }
        let name = match parse_file_name(&from.file) {
            Some((_, name)) => name.to_owned(),
            None => from.file.clone(),
        };
        let link = LinkText { tier: room, serial, name };
        Target { room, file: link.file_name(), link: Some(link) }
    }

    /// Makes the copy count; false if the file was deleted or replaced meanwhile.
    fn switch(&self, file: &NamedFile, target: &Target) -> Result<bool> {
        let copy = Place { room: target.room, file: target.file.clone() };
        let (old, new, changes) = {
            let _changing = self.changing.lock();
            self.require_sound()?;
            let Some(name) = self.listing.lock().name_of(file) else {
                self.remove(&copy);
                return Ok(false);
            };
            let old = self.listing.lock().get(&name)?.place.clone();
            if planted(Planted::OldPlaceDeletedFirst) && old.room != self.home {
                self.remove(&old);
            }
            let switched = match &target.link {
                Some(link) => self.put_link(&name, link),
                None => self.named(self.home_driver().rename(&target.file, &name)),
            };
            if let Err(error) = switched {
                self.remove(&copy);
                return Err(error);
            }
            let new = if target.link.is_some() { copy } else { self.plain(&name) };
            self.listing.lock().get_mut(&name)?.place = new.clone();
            self.drop_copy(&name);
            (old, new, file.changes())
        };
        self.sync_home()?;
        if planted(Planted::HomeSyncedBeforeTier) {
            self.room(&new).sync()?;
        }
        // A rename since then has changed what the place is called at home.
        let now = {
            let listing = self.listing.lock();
            listing.name_of(file).and_then(|name| Some(listing.get(&name).ok()?.place.clone()))
        };
        if let Some(now) = now {
            file.moved(now, changes);
        }
        if old.room != self.home {
            self.remove(&old);
        }
        Ok(true)
    }
}

fn gone(file: &NamedFile) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} was deleted or replaced", file.name()))
}
