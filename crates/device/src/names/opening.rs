//! Opening a host's directory: whether its tiers are the right ones, what its links say, and, at
//! the first change, what a crash left.
//!
//! ```text
//! refused   as for any tiers (tiered_files/opening.rs): missing, unmounted, foreign, swapped,
//!           older
//!           HOME names another directory: this one is a copy
//! first change   lock -> generation -> names durable -> lost links -> files that no link names
//! ```
//! 1. Opening changes nothing and takes no lock. The first change takes it and looks again.
//! 2. Names are made durable before a file is removed that none of them leads to: a name that a
//!    killed process left may still go with the power, and an older one come back.
//! 3. A link without its file on the right tier goes to `lost/`, never away.
//!
//! Threads: the opening thread; later the one that makes the first change.

use super::copies::Copying;
use super::counts::Counts;
use super::creation::{elsewhere, files_path, point};
use super::home_file::HomeFile;
use super::link_text::parse_file_name;
use super::listing::{Listing, Named, Place};
use super::sampling::Sampling;
use super::{
    Changing, DIRECTORY_NAME, FileClass, Host, LOST_NAME, Names, Room, UNFINISHED, is_hidden,
};
use crate::buffer::PAGE_BYTES;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::InstanceId;
use crate::load::Loads;
use crate::placement::Placement;
use crate::tier::{Tier, TierIndex, TierSpec};
use crate::tiered_files::{
    Devices, Found, HOME_FILE_NAME, Home, LOCK_NAME, absolute, check_generations, check_identity,
    has_file, open_tier, raise_after_crash, refuse, write_generation,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::Ordering::{Acquire, Release};
use thermocline_foundation::sync::{Mutex, OnceLock};
use thermocline_foundation::{ByteSize, Counter, Planted, planted, sync_site};

/// What a scan found: names, lengths of the files of each tier, and links whose file is not there.
#[derive(Debug, Default)]
struct Scan {
    names: Vec<(String, Named)>,
    lost: Vec<(String, Place, String)>,
    /// Files of tiers that no link names.
    strays: Vec<Place>,
    /// Names that were being made.
    unfinished: Vec<String>,
}

impl Names {
    /// Opens the directory at `path`. `tiers`, if given, are used in place of those that it
    /// recorded (disks may be mounted elsewhere now). Nothing is changed, and no lock is taken,
    /// before the first change.
    ///
    /// Errors: `NotFound` where it is not over tiers, `Tier` where a tier is not the right one or
    /// serves another directory, `Corrupt`, `NewerFormat`.
    pub fn load(
        devices: Arc<dyn Devices>,
        path: &Path,
        tiers: Option<&[TierSpec]>,
        placement: Arc<dyn Placement>,
    ) -> Result<Self> {
        let (host, home) = Host::load(devices, path, tiers, placement)?;
        host.check(&home)?;
        host.require_home(&home)?;
        let scan = host.scan()?;
        host.listing.lock().found_all(scan.names);
        Ok(Self { host: Arc::new(host) })
    }

    /// Makes the directory at `path` the one that its tiers serve: after it was moved, or where a
    /// copy is to have the tiers (`tiers`, if they are copies, too). The one that they served
    /// before is refused from now on.
    pub fn rehome(
        devices: Arc<dyn Devices>,
        path: &Path,
        tiers: Option<&[TierSpec]>,
        placement: Arc<dyn Placement>,
    ) -> Result<()> {
        let (host, home) = Host::load(devices, path, tiers, placement)?;
        let _lock = host.own.lock(LOCK_NAME)?;
        host.check(&home)?;
        for (_, tier) in host.tiers_apart() {
            let home = host.home_file(home.instance, None);
            sync_site("names/rehome", || home.write(&**tier.driver()))?;
        }
        sync_site("names/rehome", || home.write(&*host.own, &host.own_path))?;
        point(&*host.own, &host.own_path, &home.tiers)
    }

    /// Before the directory is renamed to the path `to`, whatever becomes of that: its tiers serve
    /// either path, until the directory is changed under one of them.
    pub fn will_move_to(&self, to: &Path) -> Result<()> {
        self.host.begin()?;
        let to = absolute(to)?;
        let changing = self.host.changing.lock();
        let instance = changing.as_ref().expect("it has begun, and never ends").home.instance;
        for (_, tier) in self.host.tiers_apart() {
            let home = self.host.home_file(instance, Some(to.clone()));
            sync_site("names/rename", || home.write(&**tier.driver()))?;
        }
        Ok(())
    }
}

/// The largest block of the rooms' devices; a page where one does not tell.
fn direct_unit(rooms: &[Room]) -> usize {
    let blocks = rooms.iter().map(|room| room.tier.driver().block_bytes());
    blocks.map(|block| block.unwrap_or(PAGE_BYTES)).max().unwrap_or(PAGE_BYTES)
}

impl Host {
    fn home_file(&self, instance: InstanceId, moving_to: Option<PathBuf>) -> HomeFile {
        HomeFile { instance, path: self.path.clone(), moving_to }
    }

    fn load(
        devices: Arc<dyn Devices>,
        path: &Path,
        tiers: Option<&[TierSpec]>,
        placement: Arc<dyn Placement>,
    ) -> Result<(Self, Home)> {
        let path = absolute(path)?;
        let own_path = path.join(DIRECTORY_NAME);
        let none = || {
            let text = format!("{} is not over tiers; create it there first", path.display());
            Error::new(ErrorKind::NotFound, text)
        };
        let host_driver = devices.home(&path)?;
        let own = match devices.home(&own_path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(none()),
            own => own?,
        };
        if !has_file(&*own, HOME_FILE_NAME)? {
            return Err(none());
        }
        let mut home = Home::read(&*own, &own_path)?;
        if let Some(given) = tiers {
            home.tiers = elsewhere(&path, &home.tiers, given, home.instance)?;
        }
        let open = |(index, spec)| open_tier(&*devices, TierIndex(index as u8), spec, false);
        let identities: Vec<_> = home.tiers.iter().enumerate().map(open).collect::<Result<_>>()?;
        let host_room = |index: TierIndex, capacity: ByteSize| {
            let spec = TierSpec { path: path.clone(), capacity, driver: host_driver.name().into() };
            Room::new(Arc::new(Tier::new(index, spec, Arc::clone(&host_driver))))
        };
        let mut host = None;
        let mut rooms = Vec::with_capacity(identities.len() + 1);
        for tier in &identities {
            let is_host = files_path(&path, tier.spec()) == path;
            host = host.or(is_host.then_some(tier.index()));
            rooms.push(match is_host {
                true => host_room(tier.index(), tier.spec().capacity),
                false => Room::new(Arc::clone(tier)),
            });
        }
        let home_room = host.unwrap_or(TierIndex(identities.len() as u8));
        if host.is_none() {
            rooms.push(host_room(home_room, ByteSize(u64::MAX)));
        }
        let listing = Listing::default();
        let host = Self {
            devices,
            path,
            own,
            own_path,
            is_emulated: identities.iter().any(|tier| tier.driver().emulated_as().is_some()),
            direct_unit: direct_unit(&rooms),
            served: rooms.iter().map(|_| Counter::default()).collect(),
            identities,
            rooms,
            home: home_room,
            placement,
            epochs: Arc::clone(&listing.epochs),
            listing: Mutex::new(listing),
            loads: Loads::default(),
            sampling: Sampling::default(),
            counts: Counts::default(),
            copying: Copying::default(),
            extents: OnceLock::new(),
            changing: Mutex::new(None),
            is_writer: AtomicBool::new(false),
            broken: Mutex::new(None),
        };
        Ok((host, home))
    }

    /// The tiers whose files do not lie in the host's directory.
    pub(super) fn tiers_apart(&self) -> impl Iterator<Item = (TierIndex, &Arc<Tier>)> {
        let all = self.identities.iter().map(|tier| (tier.index(), tier));
        all.filter(|(index, _)| *index != self.home)
    }

    /// The tiers belong here and are as recent as `home`.
    fn check(&self, home: &Home) -> Result<Vec<Found>> {
        let check = |tier: &Arc<Tier>| check_identity(home, Arc::clone(tier));
        let found = self.identities.iter().map(check).collect::<Result<Vec<_>>>()?;
        check_generations(home, &self.own_path, &found)?;
        Ok(found)
    }

    /// The tiers serve this directory, whatever path led to it.
    fn require_home(&self, home: &Home) -> Result<()> {
        for (index, tier) in self.tiers_apart() {
            let recorded = HomeFile::read(&**tier.driver(), &tier.spec().path)?;
            let paths = || std::iter::once(&recorded.path).chain(&recorded.moving_to);
            let is_same = |path: &PathBuf| {
                let there = self.devices.home(path).ok().and_then(|there| there.directory_id());
                there.is_some() && there == self.home_driver().directory_id()
            };
            let is_home = paths().any(|path| *path == self.path) || paths().any(is_same);
            let is_home = is_home || planted(Planted::CopiedDirectoryAccepted);
            if recorded.instance != home.instance || !is_home {
                let whose = format!("{index} at {}", tier.spec().path.display());
                let found = format!(
                    "it serves {}, expected {}: one is a copy of the other",
                    recorded.path.display(),
                    self.path.display()
                );
                let way_out = "open that one, or give the tiers to this one: thermocline tiers \
                               rehome DIRECTORY";
                return Err(refuse(&whose, found, way_out));
            }
        }
        Ok(())
    }

    /// Before a change: the directory is this process's alone, and nothing of a crash is left.
    pub(super) fn begin(&self) -> Result<()> {
        if self.is_writer.load(Acquire) {
            return Ok(());
        }
        let mut changing = self.changing.lock();
        if changing.is_none() {
            let taken = sync_site("names/begin", || self.take())?;
            self.begin_extents(&taken.home);
            *changing = Some(taken);
            self.is_writer.store(true, Release);
        }
        Ok(())
    }

    fn take(&self) -> Result<Changing> {
        let lock = self.own.lock(LOCK_NAME)?;
        let mut home = Home::read(&*self.own, &self.own_path)?;
        home.tiers = self.identities.iter().map(|tier| tier.spec().clone()).collect();
        let found = self.check(&home)?;
        self.require_home(&home)?;
        // A killed process may have left a DATABASE whose name is not durable yet.
        sync_site("own", || self.own.sync_directory())?;
        raise_after_crash(&mut home, &self.own_path, &*self.own, &found)?;
        write_generation(&home, &self.own_path, &*self.own, &self.identities)?;
        self.end_rename(&home)?;
        point(&*self.own, &self.own_path, &home.tiers)?;
        self.recover()?;
        Ok(Changing { home, last_counter: 0, _lock: lock })
    }

    /// The tiers serve one path from now on.
    fn end_rename(&self, home: &Home) -> Result<()> {
        for (_, tier) in self.tiers_apart() {
            let recorded = HomeFile::read(&**tier.driver(), &tier.spec().path)?;
            if recorded.moving_to.is_some() {
                let home = self.home_file(home.instance, None);
                sync_site("rename", || home.write(&**tier.driver()))?;
            }
        }
        Ok(())
    }

    /// Looks at all names and files again, and removes what no link names.
    pub(super) fn recover(&self) -> Result<()> {
        for room in self.tier_rooms() {
            sync_site("tier", || room.tier.sync_directory())?;
        }
        sync_site("home", || self.rooms[self.home.position()].tier.sync_directory())?;
        let scan = self.scan()?;
        if !scan.lost.is_empty() {
            self.keep_lost(&scan.lost)?;
            self.counts.lost_links.add(scan.lost.len() as u64);
        }
        for place in &scan.strays {
            tracing::info!(file = place.file, "removed a file that no link names");
            self.remove(place);
        }
        for name in &scan.unfinished {
            self.home_driver().delete(name)?;
        }
        self.listing.lock().found_all(scan.names);
        Ok(())
    }

    /// Puts links away whose files are not there.
    fn keep_lost(&self, lost: &[(String, Place, String)]) -> Result<()> {
        let path = self.own_path.join(LOST_NAME);
        self.devices.create_directory(&path)?;
        let directory = self.devices.home(&path)?;
        for (name, place, text) in lost {
            tracing::warn!(name, link = text, "a link has no file; it is in .thermocline/lost");
            if planted(Planted::LostLinkDropped) {
                continue;
            }
            match directory.make_link(&place.file, text) {
                // By an opening that was cut off before it was done.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        sync_site("lost", || directory.sync_directory())?;
        lost.iter().try_for_each(|(name, ..)| self.home_driver().delete(name))
    }

    fn scan(&self) -> Result<Scan> {
        let mut files = BTreeMap::new();
        for (index, tier) in self.tiers_apart() {
            for entry in tier.driver().list()?.into_iter().filter(|entry| !entry.is_link) {
                if parse_file_name(&entry.name).is_some() {
                    files.insert(Place { room: index, file: entry.name }, (entry.len, false));
                }
            }
        }
        let mut scan = Scan::default();
        for entry in self.home_driver().list()? {
            if entry.name.starts_with(UNFINISHED) {
                scan.unfinished.push(entry.name);
                continue;
            }
            if is_hidden(&entry.name) {
                continue;
            }
            let text = match entry.is_link {
                true => self.link_now(&entry.name)?,
                false => Some(None),
            };
            // A name that a writer deletes meanwhile is not there.
            let Some(text) = text else { continue };
            let text = text.unwrap_or_default();
            let (place, len) = match self.place_of(&text) {
                None => (self.plain(&entry.name), entry.len),
                Some(place) => match files.get_mut(&place) {
                    None => {
                        scan.lost.push((entry.name, place, text));
                        continue;
                    }
                    Some((len, is_named)) => {
                        if std::mem::replace(is_named, true) {
                            return Err(self.shared(&entry.name, &place));
                        }
                        (place, *len)
                    }
                },
            };
            let class = FileClass::of_name(&entry.name);
            let epoch = self.listing.lock().epoch();
            scan.names.push((entry.name, Named::new(place, class, len, epoch)));
        }
        let strays = files.into_iter().filter(|(_, (_, is_named))| !is_named);
        scan.strays = strays.map(|(place, _)| place).collect();
        Ok(scan)
    }

    fn shared(&self, name: &str, place: &Place) -> Error {
        let text = format!(
            "{} in {} leads to the same tier file as another link, {}: a link was copied; replace \
             one of the two by a copy of what it shows",
            name,
            self.path.display(),
            place.file
        );
        Error::new(ErrorKind::Invalid, text)
    }
}
