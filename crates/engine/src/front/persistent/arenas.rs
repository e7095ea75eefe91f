//! The arenas of the region: which one follows, and when one goes.
//!
//! 1. An arena is made, its header durable, before the memtable before it is frozen: the manifest's
//!    floor never names one that is not there.
//! 2. It is freed after the edit that has its records in tables, and before a writer sees that its
//!    memtable is flushed. So at most `MEMTABLES - 1` others are in use where one is to be made,
//!    but at an opening all that there may be.
//! 3. It has room for a full memtable. Where the region has not so many chunks in a row, and
//!    nothing gives any back, it has less, and the next one comes earlier: an opening does not fail
//!    for it.
//! 4. Numbers are those of files, and never used again.
//!
//! Threads: making is of the thread at the turnstile, freeing of the one that commits.

use super::opening::OpenedRegion;
use super::{Persistent, Turnstile};
use crate::error::{Error, ErrorKind, Result};
use crate::front::turnstile::wait_for_memtable;
use crate::generations::memtable::Memtable;
use crate::generations::{Frozen, Generation};
use crate::shared::Shared;
use crate::versions::{Follower, Switch};
use std::path::PathBuf;
use std::sync::Arc;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_device::{Error as DeviceError, ErrorKind as DeviceErrorKind};
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_pmem::layout::CHUNK_HEADER_BYTES;
use thermocline_pmem::{Arena, Region};

/// Parts of a region that an arena, or a batch, takes at most.
const ARENA_SHARE: u64 = 8;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Arenas {
    shared: Arc<Shared>,
    region: Arc<Region>,
    path: PathBuf,
    /// There are none: writes go to a log.
    is_beside_log: bool,
}

impl Arenas {
    /// The arenas of a region that is open for writing.
    pub fn new(shared: &Arc<Shared>, opened: &OpenedRegion) -> Self {
        let (region, path) = (Arc::clone(&opened.region), opened.path.clone());
        Self { shared: Arc::clone(shared), region, path, is_beside_log: opened.is_beside_log }
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Writes go to a log beside the region.
    pub fn is_beside_log(&self) -> bool {
        self.is_beside_log
    }

    /// Where the region is.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Bytes of the largest batch.
    pub fn batch_bytes_max(&self) -> u64 {
        self.region.identity().geometry.bytes / ARENA_SHARE
    }

    /// Bytes of groups of an arena: a full memtable's. The overhead of a record in the memtable is
    /// more than that of a group here.
    fn arena_bytes(&self) -> u64 {
        let memtable_bytes = self.shared.settings.division().memtable_bytes;
        memtable_bytes.min(self.batch_bytes_max()).saturating_sub(CHUNK_HEADER_BYTES)
    }

    /// An arena whose groups begin with `first`, with room for `bytes` of them at least.
    pub fn make(&self, first: Sequence, bytes: u64) -> Result<Arc<Arena>> {
        let number = self.shared.files.take_number()?;
        let arena = self.region.create_arena(number, first, bytes.max(self.arena_bytes()));
        Ok(Arc::new(arena.map_err(|error| self.named(error))?))
    }

    /// As [`Arenas::make`]; where there are too few chunks in a row for a full memtable, with room
    /// for less of it.
    pub fn make_fitting(&self, first: Sequence, bytes: u64) -> Result<Arc<Arena>> {
        let number = self.shared.files.take_number()?;
        let mut wanted = bytes.max(self.arena_bytes());
        loop {
            let made = self.region.create_arena(number, first, wanted);
            let is_refused =
                made.as_ref().is_err_and(|error| error.kind() == DeviceErrorKind::OutOfSpace);
            if !is_refused || wanted == bytes {
                return Ok(Arc::new(made.map_err(|error| self.named(error))?));
            }
            wanted = bytes.max(wanted / 2);
        }
    }

    /// Says that the region was closed in good order, in it and in `DATABASE`.
    pub fn close(&self) -> Result<()> {
        let files = &self.shared.files;
        let Some(record) = files.region() else { return Ok(()) };
        let generation = record.generation + 1;
        self.region.close(generation).map_err(|error| self.named(error))?;
        Ok(files.set_region(RegionRecord { generation, is_clean: true, ..record })?)
    }

    /// An error of the region, with its file.
    pub fn named(&self, error: DeviceError) -> Error {
        super::files::named(&self.path, error)
    }
}

impl Follower for Arenas {
    /// Before a writer sees room for a memtable more, which wants an arena.
    fn before_switch(&self, switch: &Switch<'_>) -> Result<()> {
        let flushed = switch.change.flushed.as_ref().and_then(|frozen| frozen.generation.arena());
        if let Some(arena) = flushed.filter(|_| !planted(Planted::ArenaFreedBeforeEdit)) {
            arena.free();
        }
        Ok(())
    }
}

impl Persistent {
    /// Makes room in the memtable for a group of `bytes`, and in the arena for `arena_bytes`.
    pub(super) fn make_room(
        &self,
        turnstile: &mut Turnstile,
        bytes: u64,
        arena_bytes: u64,
    ) -> Result<()> {
        let bytes_max = self.shared.settings.division().memtable_bytes;
        let is_full = turnstile.memtable_bytes > 0 && turnstile.memtable_bytes + bytes > bytes_max;
        if is_full || turnstile.arena.room() < arena_bytes {
            self.rotate(turnstile, arena_bytes)?;
        }
        Ok(())
    }

    /// Freezes the active memtable and goes on with an empty one and the next arena, which has room
    /// for `arena_bytes`. Groups may still be on their way to the old ones.
    pub(super) fn rotate(&self, turnstile: &mut Turnstile, arena_bytes: u64) -> Result<()> {
        let bytes = turnstile.memtable_bytes;
        wait_for_memtable(&self.shared, &self.versions, &self.figures, bytes)?;
        let arena = self.next_arena(turnstile.next, arena_bytes)?;
        let memtable = Arc::new(Memtable::new());
        let full = std::mem::replace(&mut turnstile.memtable, Arc::clone(&memtable));
        let full_arena = std::mem::replace(&mut turnstile.arena, Arc::clone(&arena));
        turnstile.memtable_bytes = 0;
        let frozen = Arc::new(Frozen {
            memtable: full,
            generation: Generation::of_arena(full_arena, arena.number()),
            claimed: AtomicBool::new(false),
        });
        self.versions.freeze(frozen, memtable);
        Ok(())
    }

    /// The next arena. Where the region has no room, waits for what flushes give back, and then
    /// takes what room there is.
    fn next_arena(&self, first: Sequence, bytes: u64) -> Result<Arc<Arena>> {
        let refused = |error: &Error| self.shared.fail_unless_refused(error);
        loop {
            let next = self.arenas.make(first, bytes);
            let is_full = next.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
            if !is_full {
                return next.inspect_err(refused);
            }
            if self.versions.current().frozen.is_empty() {
                return self.arenas.make_fitting(first, bytes).inspect_err(refused);
            }
            self.versions.wait_for_flushes()?;
        }
    }
}
