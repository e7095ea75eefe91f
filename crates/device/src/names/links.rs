//! A file under a second name, in the same host directory or another one: hard links of tier files.
//!
//! 1. Each name has a tier file of its own under a serial of its own directory; the bytes are
//!    shared by the file system. So no name can take away what another leads to.
//! 2. Between directories a link would dangle once one of them is moved, so a rename is a link
//!    there, made durable, and a deletion here.
//! 3. Where no tier of the other directory can share the file, the call is refused, and the host
//!    copies.
//!
//! Threads: any. Of two directories only the one that gets the name is held.

use super::link_text::parse_file_name;
use super::listing::{Named, Place};
use super::{Changing, FileClass, Host, LinkText, Names, Room, UNFINISHED};
use crate::error::{Error, ErrorKind, Result};
use crate::tier::TierIndex;
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::{Planted, planted};

impl Names {
    /// Gives the file `name` a second name, `to` in `into`. Both then show the same bytes: only
    /// files that are never written again should be linked.
    ///
    /// Errors: `AlreadyExists`; `Invalid` where the two directories have no device in common.
    pub fn link(&self, name: &str, into: &Self, to: &str) -> Result<()> {
        self.host.look_at(name)?;
        into.host.change(to, |changing| {
            into.host.look_at(to)?;
            if into.host.listing.lock().get(to).is_ok() {
                let text = format!("cannot link {name} as {to}: that exists");
                return Err(Error::new(ErrorKind::AlreadyExists, text));
            }
            into.host.link(changing, &self.host, name, to)
        })
    }

    /// Moves the file `name` to another host directory, in place of what has the name there. A
    /// crash leaves either name, or both.
    ///
    /// Errors: `Invalid` where the two directories have no device in common.
    pub fn rename_into(&self, name: &str, into: &Self, to: &str) -> Result<()> {
        if Arc::ptr_eq(&self.host, &into.host) {
            return self.rename(name, to);
        }
        self.open(name)?.make_durable()?;
        into.host.change(to, |changing| {
            into.host.look_at(to)?;
            into.host.link(changing, &self.host, name, to)
        })?;
        into.host.tier_rooms().try_for_each(Room::sync)?;
        into.host.sync_home()?;
        self.delete(name)
    }

    /// Lets `take` bring a plain file from elsewhere to the path that it is given, that of the name
    /// `to`. A plain file that has the name is replaced.
    ///
    /// Errors: `Invalid` where the name is on a tier.
    pub fn take_plain(&self, to: &str, take: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let host = &self.host;
        host.change(to, |_| {
            host.look_at(to)?;
            let path = host.path.join(to);
            if host.listing.lock().get(to).is_ok_and(|named| named.place.room != host.home) {
                let text = format!("{} is on a tier; copy the file over it", path.display());
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            host.drop_copy(to);
            host.named(take(&path))?;
            let bytes = host.home_driver().open_to_read(to).and_then(|file| file.len())?;
            let mut listing = host.listing.lock();
            let named = Named::new(host.plain(to), FileClass::of_name(to), bytes, listing.epoch());
            listing.replace(to, named, host.home);
            Ok(())
        })
    }

    /// Lets `give` take a plain file away from its path.
    ///
    /// Errors: `Invalid` where the name is on a tier.
    pub fn give_plain(&self, name: &str, give: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let host = &self.host;
        host.change(name, |_| {
            host.look_at(name)?;
            let path = host.path.join(name);
            if host.listing.lock().get(name)?.place.room != host.home {
                let text = format!("{} is on a tier; copy it", path.display());
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            host.named(give(&path))?;
            let copy = host.listing.lock().delete(name, None);
            copy.iter().for_each(|copy| host.remove(copy));
            Ok(())
        })
    }
}

impl Host {
    fn link(&self, changing: &mut Changing, from: &Self, name: &str, to: &str) -> Result<()> {
        let (linked, class, bytes) = loop {
            from.look_at(name)?;
            let (place, class, bytes) = {
                let listing = from.listing.lock();
                let named = listing.get(name)?;
                (named.place.clone(), named.class, named.bytes)
            };
            let is_plain = place.room == from.home;
            let linked = match is_plain {
                true => self.link_plain(changing, from, &place, to),
                false => self.link_on_tier(changing, from, &place, to),
            };
            // Where a move came between, the listing has the new place by now, or soon.
            let has_moved = || {
                from.has_left(name, &place)
                    || is_plain && from.home_driver().read_link(name).is_ok_and(|l| l.is_some())
            };
            match linked {
                Err(error) if error.kind() == ErrorKind::NotFound && has_moved() => {}
                linked => break (linked?, class, bytes),
            }
        };
        let Some(linked) = linked else {
            let text = format!(
                "cannot link {name} of {} into {}: they have no device in common; copy it",
                from.path.display(),
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        };
        let class = FileClass { holds: FileClass::of_name(to).holds, ..class };
        let mut listing = self.listing.lock();
        let named = Named::new(linked, class, bytes, listing.epoch());
        listing.replace(to, named, self.home);
        Ok(())
    }

    fn link_plain(
        &self,
        changing: &mut Changing,
        from: &Self,
        place: &Place,
        to: &str,
    ) -> Result<Option<Place>> {
        let unfinished = format!("{UNFINISHED}{}", changing.serial());
        let home = self.home_driver();
        if !from.home_driver().try_link(&place.file, &**home, &unfinished)? {
            return Ok(None);
        }
        // A move that came between has put a link in the file's place: the second name would be of
        // that.
        if home.read_link(&unfinished)?.is_some() {
            home.delete(&unfinished)?;
            let text = format!("{} moved to a tier meanwhile", place.file);
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        self.named(home.rename(&unfinished, to))?;
        Ok(Some(self.plain(to)))
    }

    fn link_on_tier(
        &self,
        changing: &mut Changing,
        from: &Self,
        place: &Place,
        to: &str,
    ) -> Result<Option<Place>> {
        if planted(Planted::LinkedNamesShareFile)
            && let Some((serial, first)) = parse_file_name(&place.file)
        {
            let link = LinkText { tier: place.room, serial, name: first.to_owned() };
            return self.put_link(to, &link).map(|()| Some(place.clone()));
        }
        let source = from.room(place).tier.driver();
        // Most likely the tier of the same speed is on the same device.
        let same = place.room.position().min(self.rooms.len() - 1);
        for index in std::iter::once(same).chain(0..self.rooms.len()) {
            let (room, tier) = (&self.rooms[index], TierIndex(index as u8));
            let link = LinkText { tier, serial: changing.serial(), name: to.to_owned() };
            let file = link.file_name();
            if tier == self.home || !source.try_link(&place.file, &**room.tier.driver(), &file)? {
                continue;
            }
            room.changed();
            let linked = Place { room: tier, file };
            return match self.put_link(to, &link) {
                Ok(()) => Ok(Some(linked)),
                Err(error) => {
                    self.remove(&linked);
                    Err(error)
                }
            };
        }
        Ok(None)
    }
}
