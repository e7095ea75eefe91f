//! A region: its identity, its chunks, the journal's last run; what opening it does, in which
//! order.
//!
//! ```text
//!   create   root line, number of the applied run; fence; identity, last
//!   open     identity, checked before anything changes; the mark of a good close goes;
//!            the journal's run is applied if it is whole and newer; headers of chunks
//!   close    the page cache, where one holds the bytes; then the mark
//! ```
//! 1. A region without an identity was never finished, and is refused like any other file.
//! 2. Nothing is written before the identity was found to be right.
//! 3. A group behind a chunk's header of zeros has lost it. That is damage, or else acknowledged
//!    records would be taken for free room. Objects and lines of tables there are the index's,
//!    whose scan finds out; where the first line behind the header is lost with it, sequences that
//!    are missing tell.
//!
//! Threads: opening and closing are of one thread; the parts have rules of their own.

use crate::arena::{self, Arena};
use crate::chunks::{self, ChunkHeader, ChunkKind, Chunks, Extent};
use crate::identity::{Circumstances, Expected, RegionIdentity};
use crate::layout::{
    APPLIED_AT, CHUNK_HEADER_BYTES, Geometry, IDENTITY_AT, JOURNAL_AT, LINE_BYTES, Owner, ROOT_AT,
    damaged,
};
use crate::object;
use crate::persist::Medium;
use crate::register::TableLine;
use crate::run;
use crate::tree::root::Root;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};

/// A region of persistent memory.
#[derive(Debug)]
pub struct Region {
    medium: Arc<Medium>,
    chunks: Arc<Chunks>,
    identity: Mutex<RegionIdentity>,
    owner: Owner,
}

/// A region that was opened, with what is in its chunks.
#[derive(Debug)]
pub struct OpenedRegion {
    /// The region.
    pub region: Arc<Region>,
    /// Its arenas, in the order of their numbers, not replayed yet.
    pub arenas: Vec<Arena>,
    /// The chunks of nodes, objects and register, for the scan.
    pub(crate) extents: Vec<Extent>,
}

impl OpenedRegion {
    /// There are chunks of an index.
    pub fn has_index(&self) -> bool {
        !self.extents.is_empty()
    }
}

impl Region {
    /// Makes a region of a medium that is zeros all over.
    pub fn create(medium: Medium, identity: RegionIdentity) -> Result<OpenedRegion> {
        identity.geometry.check()?;
        if identity.geometry.bytes != medium.bytes() {
            let text = "the file of the region has another length than the region";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        medium.write(ROOT_AT, &Root::EMPTY.encode(&identity.owner()));
        medium.store(APPLIED_AT, 0);
        medium.flush(APPLIED_AT, 8);
        medium.fence();
        RegionIdentity { is_clean: false, ..identity }.write(&medium);
        Self::with(medium, identity)
    }

    /// The medium has nothing but what the creation of a region of `database` stores, if that was
    /// cut off: parts of an identity and of an empty root. All else is zeros.
    pub fn is_unfinished(medium: &Medium, database: DatabaseId) -> bool {
        let is_of_creation = |at: u64, word| match at {
            ROOT_AT..APPLIED_AT => true,
            _ if at < ROOT_AT => RegionIdentity::may_have(database, at % IDENTITY_AT[1], word),
            _ => false,
        };
        (0..medium.bytes()).step_by(8).all(|at| {
            let word = medium.load(at);
            word == 0 || is_of_creation(at, word)
        })
    }

    /// Makes an empty region in place of one that may lack what was stored last; `identity` has a
    /// higher generation, and another number. A crash meanwhile leaves the old one or the new one,
    /// either of which may lack something.
    pub fn replace(medium: Medium, identity: RegionIdentity) -> Result<OpenedRegion> {
        identity.geometry.check()?;
        let zeros = vec![0; identity.geometry.journal_bytes as usize];
        medium.write(JOURNAL_AT, &zeros);
        for index in 0..identity.geometry.chunks() {
            let at = identity.geometry.chunk_at(index);
            // The line of a first group, too: it would say that the header is gone.
            medium.write(at, &zeros[..(CHUNK_HEADER_BYTES + LINE_BYTES) as usize]);
        }
        medium.fence();
        Self::create(medium, identity)
    }

    /// Writes all of it to its file, where that is no persistent memory: what follows may then rely
    /// on its identity.
    pub fn sync(&self) -> Result<()> {
        self.medium.sync()
    }

    /// Opens the region in `medium`; its generation will be `generation`.
    pub fn open(
        medium: Medium,
        expected: &Expected,
        now: &Circumstances,
        generation: u64,
    ) -> Result<OpenedRegion> {
        let found = Self::checked(&medium, expected, now)?;
        let identity = RegionIdentity { generation, is_clean: false, opened: *now, ..found };
        identity.write(&medium);
        run::recover(&medium, &identity.owner(), &identity.geometry)?;
        Self::with(medium, identity)
    }

    /// As [`Region::open`], for looking at its arenas only: nothing is changed.
    pub fn look(medium: Medium, expected: &Expected, now: &Circumstances) -> Result<OpenedRegion> {
        let found = Self::checked(&medium, expected, now)?;
        Self::with(medium, found)
    }

    /// The identity, if the region is that of `expected`, may be believed and is whole.
    pub fn checked(
        medium: &Medium,
        expected: &Expected,
        now: &Circumstances,
    ) -> Result<RegionIdentity> {
        let found = RegionIdentity::read(medium)?;
        found.check(expected, now)?;
        if found.geometry.bytes > medium.bytes() {
            let text = format!(
                "the file of the region has {} bytes of {}; restore it",
                medium.bytes(),
                found.geometry.bytes
            );
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(found)
    }

    /// Numbers of the arenas of a region that was [checked](Self::checked). Changes nothing.
    pub fn arenas_of(medium: &Medium, found: &RegionIdentity) -> Result<Vec<FileNumber>> {
        let runs = runs(medium, &found.owner(), &found.geometry)?;
        let arenas = runs.into_iter().filter(|run| run.header.kind == ChunkKind::Arena);
        Ok(arenas.map(|run| FileNumber(run.header.owner)).collect())
    }

    fn with(medium: Medium, identity: RegionIdentity) -> Result<OpenedRegion> {
        let (medium, owner) = (Arc::new(medium), identity.owner());
        let runs = runs(&medium, &owner, &identity.geometry)?;
        let (chunks, used) = Chunks::open(Arc::clone(&medium), owner, identity.geometry, runs);
        let chunks = Arc::new(chunks);
        let is_arena = |extent: &Extent| extent.header.kind == ChunkKind::Arena;
        let (arenas, extents): (Vec<_>, Vec<_>) = used.into_iter().partition(is_arena);
        let parts = || (Arc::clone(&medium), Arc::clone(&chunks));
        let mut arenas: Vec<_> =
            arenas.into_iter().map(|extent| Arena::new(parts(), &owner, extent)).collect();
        arenas.sort_by_key(Arena::number);
        let region = Self {
            medium: Arc::clone(&medium),
            chunks: Arc::clone(&chunks),
            identity: Mutex::new(identity),
            owner,
        };
        Ok(OpenedRegion { region: Arc::new(region), arenas, extents })
    }

    /// The bytes.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    /// The chunks.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// What its checksums are bound to.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The identity that its pages have.
    pub fn identity(&self) -> RegionIdentity {
        *self.identity.lock()
    }

    /// An arena for `bytes` bytes of groups, the first of which begins with `first`. `number` was
    /// never used before.
    pub fn create_arena(&self, number: FileNumber, first: Sequence, bytes: u64) -> Result<Arena> {
        let parts = (Arc::clone(&self.medium), Arc::clone(&self.chunks));
        Arena::create(parts, &self.owner, (number, first), bytes)
    }

    /// Says that the region was closed in good order, after all that was written is durable.
    pub fn close(&self, generation: u64) -> Result<()> {
        self.medium.sync()?;
        let mut identity = self.identity.lock();
        *identity = RegionIdentity { generation, is_clean: true, ..*identity };
        identity.write(&self.medium);
        self.medium.sync()
    }
}

/// All runs of chunks, free or in use, in order. Changes nothing.
fn runs(medium: &Medium, owner: &Owner, geometry: &Geometry) -> Result<Vec<Extent>> {
    let runs = chunks::runs(medium, owner, geometry)?;
    let unused = runs.iter().filter(|run| run.header == ChunkHeader::ZERO);
    for at in unused.map(|run| run.at) {
        let first = at + CHUNK_HEADER_BYTES;
        if arena::may_be_group(medium, first) && !is_of_index(medium, owner, first) {
            return Err(damaged(at, "a memtable has lost the header of its first chunk"));
        }
    }
    Ok(runs)
}

/// An object or the line of a table lies at `at`.
fn is_of_index(medium: &Medium, owner: &Owner, at: u64) -> bool {
    let mut line = [0; LINE_BYTES as usize];
    medium.read(at, &mut line);
    object::read(medium, owner, at).is_ok() || TableLine::decode(&line, owner, at).is_some()
}
