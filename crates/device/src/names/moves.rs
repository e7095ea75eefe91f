//! A file's bytes go to another tier, or home, under the name that they have: moves that are worth
//! making, what overflows, and everything home.
//!
//! ```text
//!   copy -> sync -> verify -> sync the tier's names -> the link, by rename -> epoch
//!        -> sync the host's names -> the old place goes
//! ```
//! 1. The link is the switch. A crash before it leaves a stray copy, one after it the old file;
//!    the next opening for writing removes either.
//! 2. Readers never wait: those that began at the old place end there.
//! 3. A file that is deleted, replaced or written meanwhile stays so, and the copy goes.
//! 4. A file that overflows goes on where it is, in another file, if copies or extents made room
//!    there; else on another tier that did not refuse the same bytes before. It is cut to the bytes
//!    that its host knows of, so that repeating the append that failed writes them once.
//!
//! 5. Until the host's names are durable, a sync of the file makes them so: what is written at the
//!    new place counts only where the name leads there.
//! 6. What is copied is the file that was asked for. A plain file is found by its name, which
//!    another file may have a moment later: it is opened while no name changes. What lies on a tier
//!    has a name of its own there.
//! 7. No file is raised to a tier that it would have to leave for want of room.
//!
//! Threads: any number of files move at once, a file once at a time.

use super::link_text::parse_file_name;
use super::listing::{Named, Place};
use super::named_file::NamedFile;
use super::writer::gone;
use super::{Holds, Host, LinkText, Names, UNFINISHED};
use crate::context::{FileContext, FileKind, Origin};
use crate::driver::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::migration::copy;
use crate::migration_queue::{Leaving, is_due, is_free, leaving};
use crate::placement::{TierState, overflow_order};
use crate::pool_size::pool_size;
use crate::profile::Source;
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

/// Which bytes of a file a move takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    /// All of a file that is not being written, nor meanwhile.
    Whole,
    /// So many; its writer waits.
    First(u64),
}

/// A move that has begun.
struct Begun {
    from: Place,
    /// What is at `from`.
    file: Handle,
    bytes: u64,
    /// Writings until then.
    writings: u64,
}

impl Names {
    /// The level of a table became known, or is another one now: it counts for the next placement,
    /// and [`Names::move_next`] moves the file where that has it elsewhere; true if it is to look
    /// at that.
    pub fn set_level(&self, name: &str, level: u8) -> bool {
        let mut listing = self.host.listing.lock();
        let Ok(named) = listing.get_mut(name) else { return false };
        let before = named.class.level.replace(level);
        if before == Some(level) || named.class.holds == Holds::Other {
            return false;
        }
        self.host.counts.corrected_levels.add(u64::from(before.is_some()));
        named.is_late = !named.is_whole() && !named.can_move();
        let is_due = !named.is_late;
        if is_due {
            listing.to_place.push_back(name.to_owned());
        }
        is_due
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
                let moved = self.host.place_again(&name);
                // It is due still, behind the others.
                let again = || self.host.listing.lock().to_place.push_back(name.clone());
                let moved = moved.inspect_err(|_| again())?;
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
        let moved = self.host.relocate(&file, Bytes::Whole, leaving.to)?;
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

    /// Brings all files home: the directory needs no tiers then. Returns how many moved. What a
    /// killed process left on the tiers goes, also where no file is to move. No host may write
    /// meanwhile.
    ///
    /// Errors: `Invalid` where a file is being written.
    pub fn export(&self) -> Result<u64> {
        self.host.begin()?;
        let mut moved = 0;
        for name in self.host.managed_names(|_| true) {
            let file = self.open(&name)?;
            let home = self.host.home;
            let is_moved = self.host.relocate(&file, Bytes::Whole, home)?;
            if !is_moved && file.location().1.room != home {
                let text = format!("cannot bring {name} home: it is being written; close it first");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            moved += u64::from(is_moved);
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

/// Threads that may write to a tier beside its writers. A limit that traffic showed may be wrong,
/// and leaves one.
pub(super) fn spare_threads(tier: &TierState, is_forced: bool) -> u16 {
    let has_one = is_forced || tier.profile.source == Source::Online;
    pool_size(tier.profile.write.useful_workers(), tier.load.writers_now(), has_one)
}

impl Host {
    /// The file that is to leave its tier next, for want of room.
    fn next_leaving(&self) -> Option<Leaving<String>> {
        let (tiers, thresholds) = (self.tier_states(), self.settings().thresholds);
        // Asked for each file that a host makes: most of the time no tier is that full.
        if !is_due(&tiers, thresholds) {
            return None;
        }
        let residents = self.listing.lock().residents(tiers.len());
        leaving(&residents, &tiers, thresholds).into_iter().next()
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
        let unknown_level = listing.settings.unknown_level;
        let Ok(named) = listing.get_mut(name) else { return Ok(false) };
        if !matches!(named.class.holds, Holds::Table | Holds::Blob) {
            return Ok(false);
        }
        if !named.can_move() {
            named.is_late = !named.is_whole();
            return Ok(false);
        }
        let writings = named.writings();
        let context = named.class.context_with(unknown_level);
        if let Some(here) = states.get_mut(named.place.room.position()) {
            here.remove(context.kind, named.bytes);
        }
        let Some(to) = self.placement.place(context, named.bytes, &states) else {
            return Ok(false);
        };
        // A file that leaves a tier for want of room would be back there at the next placement.
        let upper_percent = listing.settings.thresholds.upper_percent;
        let named = listing.get(name)?;
        let is_raised = to < named.place.room && named.place.room.position() < states.len();
        if is_raised && !is_free(&states[to.position()], named.bytes, upper_percent) {
            return Ok(false);
        }
        let file = listing.open(self, name)?;
        drop(listing);
        let moved = self.relocate(&file, Bytes::Whole, to)?;
        if !moved {
            self.place_later(&file, writings);
        }
        Ok(moved)
    }

    /// Where the file was written during its move, that is tried again when the writing has ended.
    fn place_later(&self, file: &NamedFile, writings: u64) {
        let mut listing = self.listing.lock();
        let Some(name) = listing.name_of(file) else { return };
        let Ok(named) = listing.get_mut(&name) else { return };
        if named.writings() != writings {
            named.is_late = !named.is_whole();
            if !named.is_late {
                listing.to_place.push_back(name);
            }
        }
    }

    pub(super) fn continue_elsewhere(self: &Arc<Self>, file: &NamedFile, len: u64) -> Result<()> {
        let tiers = self.identities.len();
        let (_, from) = file.location();
        // It goes on beside itself first: what the host has open may cut its own file when it is
        // closed.
        let has_room = self.drop_copies(from.room) && from.room != self.home;
        // Without that, a file of which nothing fits anywhere would go from room to room for ever.
        let refused = file.refused_by(from.room, len);
        let others = overflow_order(from.room.position(), tiers).map(|at| TierIndex(at as u8));
        let others = others.filter(|to| !refused.contains(to));
        for to in has_room.then_some(from.room).into_iter().chain(others) {
            match self.relocate(file, Bytes::First(len), to) {
                Ok(_) => {
                    self.counts.overflowed.add(u64::from(to != from.room));
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                Err(error) => return Err(error),
            }
        }
        file.forget_refusals();
        Err(self.full())
    }

    /// Moves bytes of a file to another room; false if it is there already, on its way, or was
    /// written meanwhile.
    fn relocate(self: &Arc<Self>, file: &NamedFile, bytes: Bytes, to: TierIndex) -> Result<bool> {
        self.begin()?;
        self.require_sound()?;
        let Some(begun) = self.begin_move(file, bytes, to)? else { return Ok(false) };
        self.make_room(to, begun.bytes);
        let copied = self.copy(&begun, bytes, to);
        let writings = Some(begun.writings).filter(|_| bytes == Bytes::Whole);
        let moved = match copied {
            Ok(target) => self.switch(file, writings, &target),
            // A writing came between: the copy is not as long, or not the same.
            Err(_) if writings.is_some() && self.unwritten(file, writings).is_none() => Ok(false),
            Err(error) => Err(error),
        };
        let mut listing = self.listing.lock();
        if let Some(name) = listing.name_of(file) {
            listing.get_mut(&name)?.moving = false;
        }
        drop(listing);
        moved.map_err(|error| self.move_failed(file, to, &error))
    }

    /// Begins a move; none where the file is there already, on its way, or being written.
    fn begin_move(&self, file: &NamedFile, bytes: Bytes, to: TierIndex) -> Result<Option<Begun>> {
        // Invariant 6.
        let changing = self.changing.lock();
        let may_begin = |named: &Named| match bytes {
            Bytes::Whole => named.can_move() && named.place.room != to,
            // A move under way will be given up.
            Bytes::First(_) => true,
        };
        let from = {
            let listing = self.listing.lock();
            let name = listing.name_of(file).ok_or_else(|| gone(file))?;
            let named = listing.get(&name)?;
            if !may_begin(named) {
                return Ok(None);
            }
            named.place.clone()
        };
        // A file of a tier has a name of its own there: names may change while its device is slow.
        let is_found_by_name = from.room == self.home || bytes != Bytes::Whole;
        let changing = is_found_by_name.then_some(changing);
        let driver = self.room(&from).tier.driver();
        let opened = match bytes {
            Bytes::Whole => driver.open_to_read(&from.file),
            Bytes::First(_) => driver.open(&from.file),
        };
        let opened = opened.map_err(|error| self.move_failed(file, to, &error))?;
        let mut listing = self.listing.lock();
        let name = listing.name_of(file).ok_or_else(|| gone(file))?;
        let named = listing.get_mut(&name)?;
        // A copy of it may have begun meanwhile, or another move ended.
        if !may_begin(named) || named.place != from {
            return Ok(None);
        }
        named.moving = true;
        drop(changing);
        let (bytes, writings) = (named.bytes, named.writings());
        Ok(Some(Begun { from, file: opened, bytes, writings }))
    }

    fn move_failed(&self, file: &NamedFile, to: TierIndex, error: &Error) -> Error {
        self.counts.failed_moves.add(1);
        Error::new(error.kind(), format!("cannot move {} to {to}: {error}", file.name()))
    }

    /// Copies the file; the copy is whole and durable, and so is its name on a tier.
    fn copy(&self, begun: &Begun, bytes: Bytes, to: TierIndex) -> Result<Target> {
        let (from, handle) = (&begun.from, Arc::clone(&begun.file));
        let target = self.target(from, to);
        if let Bytes::First(len) = bytes
            && !planted(Planted::OverflowRepeatsAppend)
        {
            handle.truncate(len)?;
        }
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
        handle.read_ahead();
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

    /// Makes the copy count; false if the file was deleted or replaced meanwhile, or written since
    /// it had so many writings.
    fn switch(&self, file: &NamedFile, writings: Option<u64>, target: &Target) -> Result<bool> {
        let copy = Place { room: target.room, file: target.file.clone() };
        let (old, new, changes) = {
            let _changing = self.changing.lock();
            self.require_sound()?;
            let Some((name, old)) = self.unwritten(file, writings) else {
                self.remove(&copy);
                return Ok(false);
            };
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
            let changes = file.moved(new.clone());
            (old, new, changes)
        };
        self.sync_home()?;
        if planted(Planted::HomeSyncedBeforeTier) {
            self.room(&new).sync()?;
        }
        file.is_durable(changes);
        if old.room != self.home {
            self.remove(&old);
        }
        Ok(true)
    }

    /// The name and place of a file that had so many writings, if it was none since.
    fn unwritten(&self, file: &NamedFile, writings: Option<u64>) -> Option<(String, Place)> {
        let listing = self.listing.lock();
        let name = listing.name_of(file)?;
        let named = listing.get(&name).ok()?;
        let is_same = writings.is_none_or(|writings| named.writings() == writings);
        let is_same = is_same || planted(Planted::MovedWhileWritten);
        is_same.then(|| (name, named.place.clone()))
    }
}
