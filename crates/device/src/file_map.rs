//! Which files exist, what they are, and on which tier each lies: a journal on tier 0.
//!
//! See docs/formats/file-map.md. A change is one frame of records; the newest map file that has its
//! first frame is the map, and that frame is a snapshot of everything.
//!
//! 1. A change is durable before the state in memory shows it.
//! 2. Numbers are reserved durably, a batch at a time, before any is given out; none is given out
//!    twice, not even after a crash.
//! 3. Compaction writes a snapshot under a new number. Until its only frame is durable the old map
//!    is the map; afterwards nothing is appended to the old one. So there is one valid map at every
//!    instant.
//! 4. If it cannot be known which of two maps a crash would leave in charge, the map takes no more
//!    changes.
//!
//! Threads: its owner locks; the lock is held while a frame is made durable.

use crate::buffer::PAGE_BYTES;
use crate::context::{FileKind, Keeping};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{File, Location};
use crate::journal::{Journal, Purpose};
use crate::tier::{Tier, TierIndex};
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_foundation::coding::{DecodeError, Decoder, put_varint};
use thermocline_foundation::sync_site::apart;
use thermocline_foundation::threads::catch_panic;
use thermocline_foundation::{DatabaseId, FileNumber, Planted, planted, sync_site};

const VERSION: u64 = 1;
/// Numbers reserved at a time.
pub const NUMBERS_PER_BATCH: u64 = 1024;
/// No number is reserved beyond: far from what a database can use up, and far from overflow.
const NUMBER_MAX: FileNumber = FileNumber(1 << 62);
/// A map shorter than this is not worth compacting.
const COMPACT_BYTES_MIN: u64 = 1 << 20;
/// A map is compacted when it is this many times as long as its snapshot was.
const COMPACT_FACTOR: u64 = 8;

/// And on a device without room, or where it is to be short, when it is this many times as long.
const COMPACT_FACTOR_FULL: u64 = 2;

/// What is kept for changes that give room back: more than other journals keep, for this one lies
/// nowhere else.
const LAST_BYTES: u64 = 8 * PAGE_BYTES as u64;

/// What a file takes of a snapshot, and more than most do.
const ENTRY_BYTES: usize = 24;

const TAG_SNAPSHOT: u8 = 1;
const TAG_RESERVE: u8 = 2;
const TAG_ADD: u8 = 3;
const TAG_RECLASSIFY: u8 = 4;
const TAG_MOVE: u8 = 5;
const TAG_REMOVE: u8 = 6;

/// A file as the map knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// What it holds.
    pub kind: FileKind,
    /// Where it lies.
    pub tier: TierIndex,
    /// Bytes that it has at least; a table has exactly so many.
    pub bytes: u64,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// Numbers below may be given out.
    Reserve(FileNumber),
    /// A file is published.
    Add(FileNumber, MapEntry),
    /// A file holds something else from now on: a table changed its level.
    Reclassify(FileNumber, FileKind),
    /// A file lies elsewhere from now on.
    Move(FileNumber, TierIndex),
    /// A file is no more.
    Remove(FileNumber),
}

/// What the map says: the state that its changes lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapState {
    /// Files by number.
    pub files: BTreeMap<FileNumber, MapEntry>,
    /// Numbers below were or may have been given out.
    pub reserved: FileNumber,
}

impl MapState {
    /// Applies a change; an error says why it cannot follow from this state.
    fn apply(&mut self, change: MapChange) -> Result<(), String> {
        let unknown = |number| format!("file {number} is changed but not there");
        match change {
            MapChange::Reserve(until) if until < self.reserved => {
                return Err(format!("numbers up to {until} reserved after {}", self.reserved));
            }
            MapChange::Reserve(until) if until > NUMBER_MAX => {
                return Err(format!("numbers up to {until} reserved, {NUMBER_MAX} is the last"));
            }
            MapChange::Reserve(until) => self.reserved = until,
            MapChange::Add(number, _) if number >= self.reserved => {
                return Err(format!("file {number} is added but its number is not reserved"));
            }
            MapChange::Add(number, entry) => {
                if self.files.insert(number, entry).is_some() {
                    return Err(format!("file {number} is added twice"));
                }
            }
            MapChange::Reclassify(number, kind) => {
                self.files.get_mut(&number).ok_or_else(|| unknown(number))?.kind = kind;
            }
            MapChange::Move(number, tier) => {
                self.files.get_mut(&number).ok_or_else(|| unknown(number))?.tier = tier;
            }
            MapChange::Remove(number) => {
                self.files.remove(&number).ok_or_else(|| unknown(number))?;
            }
        }
        Ok(())
    }

    /// Whether [`MapState::apply`] would take all of `changes`, one after the other.
    fn check(&self, changes: &[MapChange]) -> Result<(), String> {
        // Only the files that are named matter, so the check costs nothing that grows with the map.
        let numbers = changes.iter().filter_map(|change| match change {
            MapChange::Reserve(_) => None,
            MapChange::Add(number, _)
            | MapChange::Reclassify(number, _)
            | MapChange::Move(number, _)
            | MapChange::Remove(number) => Some(number),
        });
        let files = numbers.filter_map(|number| Some((*number, *self.files.get(number)?)));
        let mut part = Self { files: files.collect(), reserved: self.reserved };
        changes.iter().try_for_each(|change| part.apply(*change))
    }

    fn encode_snapshot(&self) -> Vec<u8> {
        let mut out = vec![TAG_SNAPSHOT];
        put_varint(&mut out, VERSION);
        encode(&MapChange::Reserve(self.reserved), &mut out);
        for (number, entry) in &self.files {
            encode(&MapChange::Add(*number, *entry), &mut out);
        }
        out
    }
}

/// What changes are for, seen from tier 0, where the map lies.
fn purpose(changes: &[MapChange]) -> Purpose {
    // Gives room back, or what gives some cannot do without it: a manifest that goes elsewhere.
    let releases = |change: &MapChange| match change {
        MapChange::Remove(_) | MapChange::Reserve(_) => true,
        MapChange::Move(_, to) => *to != TierIndex(0),
        MapChange::Add(_, entry) => entry.kind == FileKind::Manifest && entry.tier != TierIndex(0),
        MapChange::Reclassify(..) => false,
    };
    let is_elsewhere = |change: &MapChange| match change {
        MapChange::Add(_, entry) => entry.tier != TierIndex(0),
        _ => false,
    };
    if changes.iter().all(releases) {
        Purpose::Release
    } else if changes.iter().all(|change| releases(change) || is_elsewhere(change)) {
        Purpose::Overflow
    } else {
        Purpose::Change
    }
}

fn encode(change: &MapChange, out: &mut Vec<u8>) {
    let (tag, number) = match change {
        MapChange::Reserve(until) => (TAG_RESERVE, until),
        MapChange::Add(number, _) => (TAG_ADD, number),
        MapChange::Reclassify(number, _) => (TAG_RECLASSIFY, number),
        MapChange::Move(number, _) => (TAG_MOVE, number),
        MapChange::Remove(number) => (TAG_REMOVE, number),
    };
    out.push(tag);
    put_varint(out, number.0);
    match change {
        MapChange::Add(_, entry) => {
            out.extend_from_slice(&entry.kind.code());
            out.push(entry.tier.0);
            put_varint(out, entry.bytes);
        }
        MapChange::Reclassify(_, kind) => out.extend_from_slice(&kind.code()),
        MapChange::Move(_, tier) => out.push(tier.0),
        MapChange::Reserve(_) | MapChange::Remove(_) => {}
    }
}

/// The changes of one frame; the first frame of a map begins with its version.
fn decode(payload: &[u8], is_first: bool, tiers: usize) -> Result<Vec<MapChange>, String> {
    let short = |error: DecodeError| error.to_string();
    let mut decoder = Decoder::new(payload);
    if is_first {
        if decoder.u8().map_err(short)? != TAG_SNAPSHOT {
            return Err("it does not begin with a snapshot".to_owned());
        }
        let version = decoder.varint().map_err(short)?;
        if version > VERSION {
            return Err(format!("map version {version}, this software knows {VERSION}: upgrade"));
        }
    }
    let mut changes = Vec::new();
    while !decoder.is_empty() {
        changes.push(decode_change(&mut decoder, tiers)?);
    }
    Ok(changes)
}

fn decode_change(decoder: &mut Decoder<'_>, tiers: usize) -> Result<MapChange, String> {
    let short = |error: DecodeError| error.to_string();
    let kind = |code| {
        let kind = FileKind::from_code(code).filter(|kind| kind.keeping() == Keeping::Durable);
        kind.ok_or_else(|| format!("no file kind {code:?}"))
    };
    let tier = |index: u8| match usize::from(index) < tiers {
        true => Ok(TierIndex(index)),
        false => Err(format!("tier {index} of {tiers}")),
    };
    let tag = decoder.u8().map_err(short)?;
    let number = FileNumber(decoder.varint().map_err(short)?);
    Ok(match tag {
        TAG_RESERVE => MapChange::Reserve(number),
        TAG_ADD => {
            let kind = kind(decoder.array().map_err(short)?)?;
            let tier = tier(decoder.u8().map_err(short)?)?;
            let bytes = decoder.varint().map_err(short)?;
            MapChange::Add(number, MapEntry { kind, tier, bytes })
        }
        TAG_RECLASSIFY => MapChange::Reclassify(number, kind(decoder.array().map_err(short)?)?),
        TAG_MOVE => MapChange::Move(number, tier(decoder.u8().map_err(short)?)?),
        TAG_REMOVE => MapChange::Remove(number),
        _ => return Err(format!("no change has tag {tag}")),
    })
}

/// The open map.
#[derive(Debug)]
pub struct FileMap {
    database: DatabaseId,
    tier: Arc<Tier>,
    journal: Journal,
    state: MapState,
    next: FileNumber,
    snapshot_bytes: u64,
    compact_bytes_min: u64,
    room_bytes: u64,
    /// Not shorter than this after a compaction that failed.
    compact_again_bytes: u64,
    /// What older maps take that could not be deleted.
    left_bytes: u64,
    failed: Option<Error>,
}

/// The name of map `number`.
pub(crate) fn map_name(number: FileNumber) -> String {
    format!("{number}.{}", FileKind::Map.extension())
}

impl FileMap {
    /// Makes the first map, on `tier`, saying `state`; its numbers go on after `state.reserved`.
    pub fn create(database: DatabaseId, tier: &Arc<Tier>, mut state: MapState) -> Result<Self> {
        let number = state.reserved.max(FileNumber(1));
        state.reserved = FileNumber(number.0 + NUMBERS_PER_BATCH);
        let journal = write_snapshot(database, tier, number, &state, u64::MAX)?;
        sync_site("name", || tier.sync_directory())?;
        let snapshot_bytes = journal.len_bytes();
        Ok(Self {
            database,
            tier: Arc::clone(tier),
            journal,
            state,
            next: FileNumber(number.0 + 1),
            snapshot_bytes,
            compact_bytes_min: COMPACT_BYTES_MIN,
            room_bytes: u64::MAX,
            compact_again_bytes: 0,
            left_bytes: 0,
            failed: None,
        })
    }

    /// Opens the map on `tier` of a database of so many tiers. `maps` are the numbers of all map
    /// files there. With `repair`, a torn end is erased; what else must go (older and unfinished
    /// maps) is the caller's to delete.
    pub fn open(
        database: DatabaseId,
        tier: &Arc<Tier>,
        tiers: usize,
        mut maps: Vec<FileNumber>,
        repair: bool,
    ) -> Result<Self> {
        maps.sort_unstable();
        while let Some(number) = maps.pop() {
            let name = map_name(number);
            let handle = match repair {
                true => tier.driver().open(&name)?,
                false => tier.driver().open_to_read(&name)?,
            };
            let file = Arc::new(wrap(database, number, tier, handle));
            let (state, snapshot_bytes) = replay(&file, tiers)?;
            if snapshot_bytes == 0 {
                // Its only frame never became durable: the map before it is the map.
                continue;
            }
            let mut journal = match repair {
                true => Journal::open(file, |_| Ok(()))?,
                false => Journal::open_read_only(file, |_| Ok(()))?,
            };
            journal.set_last_bytes(LAST_BYTES);
            let next = match state.files.keys().next_back() {
                Some(last) if planted(Planted::FileNumberReused) => FileNumber(last.0 + 1),
                _ => state.reserved,
            };
            return Ok(Self {
                database,
                tier: Arc::clone(tier),
                journal,
                state,
                next,
                snapshot_bytes,
                compact_bytes_min: COMPACT_BYTES_MIN,
                room_bytes: u64::MAX,
                compact_again_bytes: 0,
                left_bytes: 0,
                failed: None,
            });
        }
        let text = format!(
            "{} has no complete file map (*.map): it is damaged or was emptied; mount the right \
             directory or restore from a checkpoint",
            tier.describe()
        );
        Err(Error::new(ErrorKind::Corrupt, text))
    }

    /// Bytes that a map takes that is begun with `state`.
    pub(crate) fn begun_bytes(state: &MapState) -> u64 {
        Journal::begun_bytes(state.files.len() * ENTRY_BYTES, LAST_BYTES)
    }

    /// What the map says.
    pub fn state(&self) -> &MapState {
        &self.state
    }

    /// The number of the map's own file.
    pub fn number(&self) -> FileNumber {
        self.journal.file().number()
    }

    /// The journal that the map is.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// See [`Journal::opened`].
    pub fn opened(&mut self) {
        self.journal.opened();
    }

    /// Bytes of the map's file, and of older ones that could not be deleted.
    pub fn file_bytes(&self) -> u64 {
        self.journal.file_bytes() + self.left_bytes
    }

    /// The next number given out; all below are used or lost.
    pub fn next(&self) -> FileNumber {
        self.next
    }

    /// Bytes that the map may come to, where it is to be kept short, with one that is written
    /// afresh beside it.
    pub(crate) fn announced_bytes(&self) -> u64 {
        if self.room_bytes == u64::MAX {
            return self.file_bytes();
        }
        let snapshot_bytes = self.state.files.len() * ENTRY_BYTES;
        let afresh_bytes = Journal::begun_bytes(snapshot_bytes, LAST_BYTES);
        self.journal.file_bytes().max(self.room_bytes) + afresh_bytes + self.left_bytes
    }

    /// The map's file has so many bytes at most, as far as its state allows.
    pub fn set_room_bytes(&mut self, bytes: u64) {
        self.compact_bytes_min = bytes.saturating_sub(LAST_BYTES);
        self.room_bytes = bytes;
        self.journal.set_room_bytes(bytes);
    }

    /// A number that was never used.
    pub fn allocate_number(&mut self) -> Result<FileNumber> {
        if self.next >= self.state.reserved {
            let until = FileNumber(self.state.reserved.0.max(self.next.0) + NUMBERS_PER_BATCH);
            sync_site("reserve", || self.append(&[MapChange::Reserve(until)]))?;
        }
        let number = self.next;
        self.next = FileNumber(number.0 + 1);
        Ok(number)
    }

    /// Makes the changes durable, all or none, then shows them.
    pub fn commit(&mut self, changes: &[MapChange]) -> Result<()> {
        self.append(changes)?;
        let len_bytes = self.journal.len_bytes();
        // A snapshot takes less than a map that cannot grow as it wants.
        let (least, factor) = match (self.journal.is_tight(), self.room_bytes) {
            (true, _) => (0, COMPACT_FACTOR_FULL),
            (false, u64::MAX) => (self.compact_bytes_min, COMPACT_FACTOR),
            (false, _) => (self.compact_bytes_min, COMPACT_FACTOR_FULL),
        };
        if len_bytes >= least.max(self.compact_again_bytes)
            && len_bytes >= factor * self.snapshot_bytes
        {
            // The changes are made; that the map stays long, or takes no further ones, is for later
            // calls to say.
            if let Err(error) = apart(|| self.compact()) {
                tracing::warn!(%error, "the file map was not compacted");
                // Not again with each change, on a device without room.
                self.compact_again_bytes = len_bytes + len_bytes / COMPACT_FACTOR;
            }
        }
        Ok(())
    }

    fn append(&mut self, changes: &[MapChange]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.state.check(changes).map_err(|why| {
            let text = format!("cannot change the file map on {}: {why}", self.tier.describe());
            Error::new(ErrorKind::Invalid, text)
        })?;
        let mut payload = Vec::new();
        changes.iter().for_each(|change| encode(change, &mut payload));
        self.journal.append_for(&payload, purpose(changes))?;
        for change in changes {
            self.state.apply(*change).expect("the changes were checked");
        }
        Ok(())
    }

    /// Writes a snapshot under a new number and makes it the map.
    pub fn compact(&mut self) -> Result<()> {
        let number = self.allocate_number()?;
        let driver = Arc::clone(self.tier.driver());
        let named = || sync_site("compact/name", || self.tier.sync_directory());
        let switched = catch_panic(|| {
            let room = self.room_bytes;
            let write = || write_snapshot(self.database, &self.tier, number, &self.state, room);
            sync_site("compact", write).and_then(|journal| named().map(|()| journal))
        });
        // A snapshot that is there and does not count would be the map at the next opening.
        let switched = switched.unwrap_or_else(|panic| {
            let tier = self.tier.describe();
            let text = format!(
                "the file map on {tier} takes no more changes since one panicked; reopen: {panic}"
            );
            self.failed = Some(Error::new(ErrorKind::Io, text));
            panic.resume()
        });
        match switched {
            Ok(journal) => {
                let (old, old_bytes) = (map_name(self.number()), self.journal.file_bytes());
                self.snapshot_bytes = journal.len_bytes();
                self.compact_again_bytes = 0;
                self.journal = journal;
                if let Err(error) = driver.delete(&old) {
                    self.left_bytes += old_bytes;
                    tracing::warn!(%error, "an old file map stays until the next opening");
                }
                // What the old one gave back, for the changes to come.
                let _ = self.journal.ask_for_room(0, Purpose::Change);
                Ok(())
            }
            // It was not even made.
            Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => Err(error),
            Err(error) => {
                let deleted = match driver.delete(&map_name(number)) {
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                    deleted => deleted,
                };
                let gone = deleted
                    .and_then(|()| sync_site("compact/undone", || self.tier.sync_directory()));
                if let Err(also) = gone {
                    let text = format!(
                        "the file map on {} takes no more changes since one failed; reopen: \
                         {error}; {also}",
                        self.tier.describe()
                    );
                    self.failed = Some(Error::new(error.kind().after_writing(), text));
                }
                Err(error)
            }
        }
    }
}

fn wrap(database: DatabaseId, number: FileNumber, tier: &Arc<Tier>, handle: crate::Handle) -> File {
    let location = Location::open(Arc::clone(tier), handle);
    File::detached(database, number, FileKind::Map, location)
}

/// A new map file of one frame, durable but for its name, that may come to `room_bytes`.
fn write_snapshot(
    database: DatabaseId,
    tier: &Arc<Tier>,
    number: FileNumber,
    state: &MapState,
    room_bytes: u64,
) -> Result<Journal> {
    let handle = tier.driver().create(&map_name(number))?;
    let mut journal = Journal::create(Arc::new(wrap(database, number, tier, handle)))?;
    journal.set_last_bytes(LAST_BYTES);
    journal.set_room_bytes(room_bytes);
    let snapshot = state.encode_snapshot();
    sync_site("snapshot", || match journal.append(&snapshot) {
        // The old one, which goes then, has what is to be kept.
        Err(error) if error.kind() == ErrorKind::OutOfSpace => {
            journal.append_for(&snapshot, Purpose::Release)
        }
        appended => appended,
    })?;
    Ok(journal)
}

/// The state that the journal in `file` leads to, and the bytes of its snapshot; none if it has no
/// frame.
fn replay(file: &File, tiers: usize) -> Result<(MapState, u64)> {
    let mut state = MapState::default();
    let mut frame = 0u64;
    let mut snapshot_bytes = 0;
    Journal::read_mended(file, |payload| {
        let damage = |why: String| match why.ends_with("upgrade") {
            true => Error::new(ErrorKind::NewerFormat, format!("{} has {why}", file.describe())),
            false => {
                let what = format!("frame {frame} of {}", file.describe());
                Error::corrupt(what, 0, format!("{why}; restore from a checkpoint"))
            }
        };
        for change in decode(payload, frame == 0, tiers).map_err(damage)? {
            state.apply(change).map_err(damage)?;
        }
        if frame == 0 {
            snapshot_bytes = payload.len() as u64;
        }
        frame += 1;
        Ok(())
    })?;
    Ok((state, snapshot_bytes))
}
