//! The names of a host's directory and the places that they lead to, in memory: what the links say,
//! and what this process knows besides.
//!
//! 1. A name leads to one place. A place that a name no longer leads to is kept as replaced until
//!    the host's directory is durable.
//! 2. All openers of a name share one [`NamedFile`], which follows it through renames and moves.
//!
//! Threads: under one lock, never during I/O.

use super::named_file::NamedFile;
use super::{FileClass, Holds, Host, NameSettings};
use crate::context::FileKind;
use crate::error::{Error, ErrorKind, Result};
use crate::migration_queue::Resident;
use crate::placement::TierState;
use crate::tier::TierIndex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use thermocline_foundation::sync::atomic::AtomicU64;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{Planted, planted};

/// So many lengths of a class are remembered.
const RECENT_MAX: usize = 16;

/// Where a file's bytes are: a room, and the file's name in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub room: TierIndex,
    pub file: String,
}

/// How a file is read.
#[derive(Debug)]
pub(super) struct Reading {
    /// The epoch in which it was read last, or made, or found.
    pub last_epoch: AtomicU64,
    /// Reads so far, older ones counting less.
    pub reads: AtomicU64,
}

/// A name's file.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub place: Place,
    pub class: FileClass,
    /// What it takes, or is expected to.
    pub bytes: u64,
    /// A move, or the making of a copy, is under way.
    pub moving: bool,
    /// Its level became known while it was written: it has its place to find when that ends.
    pub is_late: bool,
    /// Those that write it now, and how often a writing began.
    writers: u32,
    writings: u64,
    /// A copy on a faster tier.
    pub copy: Option<Place>,
    /// Where a copy is being made, which takes its room already.
    pub copying_to: Option<TierIndex>,
    pub reading: Arc<Reading>,
    file: Weak<NamedFile>,
}

impl Named {
    /// One that was just made, or found, in an epoch.
    pub fn new(place: Place, class: FileClass, bytes: u64, epoch: u64) -> Self {
        let (last_epoch, reads) = (AtomicU64::new(epoch), AtomicU64::new(0));
        let reading = Arc::new(Reading { last_epoch, reads });
        let (moving, is_late, writers, writings) = (false, false, 0, 0);
        let (copy, copying_to, file) = (None, None, Weak::new());
        Self {
            place,
            class,
            bytes,
            moving,
            is_late,
            writers,
            writings,
            copy,
            copying_to,
            reading,
            file,
        }
    }

    pub fn begin_writing(&mut self) {
        self.writers += 1;
        self.writings += 1;
    }

    /// True where that was the last writer.
    pub fn end_writing(&mut self) -> bool {
        debug_assert!(self.writers > 0, "a writing ends once");
        self.writers -= 1;
        self.writers == 0
    }

    pub fn writers(&self) -> u32 {
        self.writers
    }

    /// Nothing more is written to it, as far as that is known.
    pub fn is_whole(&self) -> bool {
        self.writers == 0
    }

    /// A move may begin: it is whole, and none is under way.
    pub fn can_move(&self) -> bool {
        !self.moving && (self.is_whole() || planted(Planted::MovedWhileWritten))
    }

    /// Writings that began so far: what was copied is all of it while this stays as it is.
    pub fn writings(&self) -> u64 {
        self.writings
    }

    /// The file, where it is open.
    pub fn open_file(&self) -> Option<Arc<NamedFile>> {
        self.file.upgrade()
    }
}

/// Lengths of files, by what they hold and their level.
type Recent = BTreeMap<(Holds, Option<u8>), VecDeque<u64>>;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Listing {
    names: BTreeMap<String, Named>,
    replaced: Vec<Place>,
    recent: Recent,
    pub settings: NameSettings,
    /// Names of which the level became known, in that order.
    pub to_place: VecDeque<String>,
    /// Tables and blobs that were made: what coldness counts by. The host has it, too.
    pub epochs: Arc<AtomicU64>,
}

impl Listing {
    pub fn get(&self, name: &str) -> Result<&Named> {
        self.names.get(name).ok_or_else(|| missing(name))
    }

    pub fn get_mut(&mut self, name: &str) -> Result<&mut Named> {
        self.names.get_mut(name).ok_or_else(|| missing(name))
    }

    /// The epoch of now.
    pub fn epoch(&self) -> u64 {
        self.epochs.load(Relaxed)
    }

    /// A table or blob is made: an epoch ends.
    pub fn begin_epoch(&self) {
        self.epochs.fetch_add(1, Relaxed);
    }

    /// The files that may leave their tiers, of so many.
    pub fn residents(&self, tiers: usize) -> Vec<Resident<String>> {
        let mut residents = Vec::new();
        for (name, named) in &self.names {
            let tier = named.place.room;
            let is_table = matches!(named.class.holds, Holds::Table | Holds::Blob);
            if is_table && named.can_move() && tier.position() < tiers {
                residents.push(Resident {
                    name: name.clone(),
                    kind: self.kind_of(named),
                    tier,
                    bytes: named.bytes,
                    idle_epochs: self
                        .epoch()
                        .saturating_sub(named.reading.last_epoch.load(Relaxed)),
                });
            }
        }
        residents
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, &Named)> {
        self.names.iter()
    }

    /// The name under which `file` is open, if it still has one.
    pub fn name_of(&self, file: &NamedFile) -> Option<String> {
        let name = file.name();
        let named = self.names.get(&name)?;
        std::ptr::eq(named.file.as_ptr(), file).then_some(name)
    }

    /// What was found at a name, where it is not as it was.
    pub fn found(&mut self, name: &str, place: Option<Place>) {
        match place {
            Some(place) if self.names.get(name).is_some_and(|named| named.place == place) => {}
            Some(place) => {
                let named = Named::new(place, FileClass::of_name(name), 0, self.epoch());
                self.names.insert(name.to_owned(), named);
            }
            None => drop(self.names.remove(name)),
        }
    }

    /// Everything anew; files that are open stay so where their names lead to the same place.
    pub fn found_all(&mut self, found: Vec<(String, Named)>) {
        let mut before = std::mem::take(&mut self.names);
        for (name, mut named) in found {
            if let Some(old) = before.remove(&name).filter(|old| old.place == named.place) {
                named = Named { bytes: named.bytes, ..old };
            }
            self.names.insert(name, named);
        }
    }

    /// The open file of a name.
    pub fn open(&mut self, host: &Arc<Host>, name: &str) -> Result<Arc<NamedFile>> {
        let named = self.get_mut(name)?;
        if let Some(file) = named.file.upgrade() {
            return Ok(file);
        }
        let reading = Arc::clone(&named.reading);
        let (place, copy) = (named.place.clone(), named.copy.clone());
        let file = Arc::new(NamedFile::new(host, name, place, copy, reading));
        named.file = Arc::downgrade(&file);
        Ok(file)
    }

    /// The name leads to another file now.
    pub fn replace(&mut self, name: &str, named: Named, home: TierIndex) {
        let Some(old) = self.names.insert(name.to_owned(), named) else { return };
        if planted(Planted::CopyOfReplacedFileServed) {
            self.names.entry(name.to_owned()).and_modify(|named| named.copy = old.copy);
        } else {
            self.replaced.extend(old.copy);
        }
        self.replaced.extend(Some(old.place).filter(|place| place.room != home));
    }

    pub fn rename(&mut self, from: &str, to: &str, home: TierIndex) {
        let Some(mut named) = self.names.remove(from) else { return };
        if named.place.room == home {
            named.place.file = to.to_owned();
        }
        if let Some(file) = named.open_file() {
            file.renamed(to, named.place.clone());
        }
        self.replace(to, named, home);
    }

    /// The name is gone; the file was `len` bytes long. Returns its copy.
    pub fn delete(&mut self, name: &str, len: Option<u64>) -> Option<Place> {
        let named = self.names.remove(name)?;
        self.remember(named.class, len);
        named.copy
    }

    /// A file of a class came to a length.
    pub fn remember(&mut self, class: FileClass, len: Option<u64>) {
        let lengths = self.recent.entry((class.holds, class.level)).or_default();
        lengths.extend(len);
        if lengths.len() > RECENT_MAX {
            lengths.pop_front();
        }
    }

    /// What a new file of a class may come to: the longest of the last ones; none before one was
    /// seen.
    pub fn expected_bytes(&self, class: FileClass) -> Option<u64> {
        self.recent.get(&(class.holds, class.level))?.iter().max().copied()
    }

    /// Places that go when the host's directory is durable.
    pub fn take_replaced(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.replaced)
    }

    /// Adds the managed files to the tiers that they are on; those that are being written with what
    /// they are expected to come to.
    pub fn count(&self, tiers: &mut [TierState]) {
        for named in self.managed() {
            if let Some(tier) = tiers.get_mut(named.place.room.position()) {
                tier.add(self.kind_of(named), named.bytes);
            }
        }
    }

    /// The managed files that are being written, with what they are expected to come to.
    pub fn unfinished(&self) -> Vec<(Place, u64)> {
        let unfinished = self.managed().filter(|named| !named.is_whole());
        unfinished.map(|named| (named.place.clone(), named.bytes)).collect()
    }

    /// As placement counts it.
    fn kind_of(&self, named: &Named) -> FileKind {
        named.class.context_with(self.settings.unknown_level).kind
    }

    fn managed(&self) -> impl Iterator<Item = &Named> {
        self.names.values().filter(|named| named.class.holds != Holds::Other)
    }
}

fn missing(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("cannot find {name}: there is no such file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_expected_to_be_as_long_as_the_longest_of_the_last_ones() {
        let mut listing = Listing::default();
        let class = FileClass::of_name("1.sst");
        assert_eq!(listing.expected_bytes(class), None);
        listing.remember(class, Some(9));
        (0..15).for_each(|len| listing.remember(class, Some(len % 5)));
        assert_eq!(listing.expected_bytes(class), Some(9));
        listing.remember(class, Some(3));
        assert_eq!(listing.expected_bytes(class), Some(4), "the longest one is too long ago");
        let other = FileClass { level: Some(1), ..class };
        assert_eq!(listing.expected_bytes(other), None);
    }
}
