//! Parts of a host's files, kept on the fastest tier: what reads come back to is served from there,
//! also after a restart (beyond Keigo's section 4.3, which copies whole files).
//!
//! ```text
//!   reader ── read ──> look-up ──> sealed file on tier 0 ──> checksum ──> served
//!                │ not there                        '── does not match ──> the host reads its file
//!                │
//!                '─ read again, or there is room: wanted ── host reads it ── fill ──> batch
//!
//!   stored extent   bytes of the file | checksum u32, bound to instance, file and offset
//! ```
//! Files of this cache have the format of `sealed.rs`; what is a table there is an [`ExtentFile`]
//! here.
//!
//! Invariants:
//! 1. An extent is served only after its checksum has matched, which covers which file it is of:
//!    one that was replaced, written again or moved has another identity.
//! 2. The cache fails no call, and changes no answer.
//! 3. Readers wait for no I/O of the cache but the read of their own extents. They take locks for
//!    arithmetic and for the copying of an extent.
//! 4. A host that makes a file waits for no fill: what it asks for while one goes on is done by
//!    the thread that fills. Only where the device is full it waits, for the room that is given
//!    back.
//! 5. An extent that nothing has to leave for is taken at its first read; a cache that is full
//!    takes what a cache by least recent use would have.
//! 6. Reads of more than [`READ_EXTENTS_MAX`] extents pass by: scans and compactions.
//!
//! Threads: any read and fill; one at a time keeps.

mod file;
mod keeping;
mod plan;
#[cfg(test)]
mod tests;

pub use file::ExtentFile;
pub(crate) use keeping::delete_files;
pub use plan::ExtentPlan;

use super::back_off::BackOff;
use super::filling::{Filling, Offered};
use super::lookup::{Lookup, hash_of};
use super::tape::{CacheFile, Files};
use crate::error::Error;
use crate::tier::Tier;
use keeping::Keeping;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{ArcSwap, Mutex, OnceLock};
use thermocline_foundation::{Clock, Counter, FileNumber};
use thermocline_popularity::{AdmissionPolicy, BlockAdmission};

/// Extents that a read touches at most to be served here.
pub const READ_EXTENTS_MAX: usize = 16;

/// Bytes of the checksum behind an extent.
const CHECKSUM_BYTES: usize = 4;

/// What the cache did since the directory was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExtentCounts {
    /// Reads that were served, and reads that asked and were not.
    pub hits: u64,
    /// See `hits`.
    pub misses: u64,
    /// Extents that were written.
    pub admitted: u64,
    /// Extents that were written again when their file left.
    pub kept: u64,
    /// Extents that were filled in, and dropped: they were under way already, writing was behind,
    /// or it failed.
    pub dropped: u64,
    /// Extents that could not be read, or did not match.
    pub damaged: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Files of earlier openings that were taken over, and extents of these.
    pub adopted_files: u64,
    /// See `adopted_files`.
    pub adopted: u64,
    /// Files that there are, and bytes that they may come to.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counts {
    hits: Counter,
    misses: Counter,
    admitted: Counter,
    kept: Counter,
    dropped: Counter,
    damaged: Counter,
    written_bytes: Counter,
    adopted_files: Counter,
    adopted: Counter,
}

/// Bytes of a host's file that the cache wants: to be read by the host, whole, and given to
/// [`Extents::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// How many.
    pub len: usize,
    /// The file as it was when it was asked for.
    pub file: FileNumber,
}

/// What became of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached {
    /// So many bytes were read, fewer than asked for where the file ends.
    Served(usize),
    /// The host reads its file; it may fill in what is wanted, which covers the read.
    Missed(Option<Wanted>),
}

/// Names an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExtentKey {
    file: FileNumber,
    offset: u64,
    /// Stored bytes, with the checksum.
    len: u32,
}

impl ExtentKey {
    fn hash(self) -> u64 {
        hash_of(self.file, self.offset)
    }
}

/// What is to be called when there is something to keep.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// See the module.
pub struct Extents {
    plan: ExtentPlan,
    tier: Arc<Tier>,
    /// Made by [`Extents::begin`]: a directory that is only read keeps none.
    tables: OnceLock<Tables>,
    files: ArcSwap<Files>,
    counts: Counts,
    clock: Arc<dyn Clock>,
    back_off: Mutex<BackOff>,
    /// Nothing is read or taken before that time.
    off_until_ns: AtomicU64,
    /// Extents are taken: not while files of earlier openings are read.
    is_filled: AtomicBool,
    /// No extent has to leave for another one: all that is missed is taken.
    has_room: AtomicBool,
    keeping: Mutex<Option<Keeping>>,
    /// What the host's files left when they asked for room amid a fill; more where none did.
    asked_room_bytes: AtomicU64,
    wake: Wake,
}

/// What is in memory in proportion to the cache.
struct Tables {
    lookup: Lookup,
    filling: Mutex<Filling<ExtentKey>>,
    admission: Mutex<BlockAdmission>,
}

impl Tables {
    fn new(plan: ExtentPlan) -> Self {
        let policy = AdmissionPolicy::SimulatedLru { percent: 100 };
        let admission = BlockAdmission::new(policy, plan.capacity_bytes, plan.extent_bytes);
        Self {
            lookup: Lookup::new(plan.extents()),
            filling: Mutex::new(Filling::new(super::Layout::Packed, plan.batch_bytes)),
            admission: Mutex::new(admission),
        }
    }
}

impl fmt::Debug for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extents").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Extents {
    /// An empty cache on `tier`, which takes nothing before [`Extents::begin`].
    pub fn new(plan: ExtentPlan, tier: Arc<Tier>, clock: Arc<dyn Clock>, wake: Wake) -> Self {
        Self {
            tables: OnceLock::new(),
            files: ArcSwap::from_pointee(Files::new()),
            counts: Counts::default(),
            clock,
            back_off: Mutex::default(),
            off_until_ns: AtomicU64::new(0),
            is_filled: AtomicBool::new(false),
            has_room: AtomicBool::new(false),
            keeping: Mutex::new(None),
            asked_room_bytes: AtomicU64::new(u64::MAX),
            plan,
            tier,
            wake,
        }
    }

    /// The time of this cache.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// There may be something to keep.
    pub fn wake(&self) {
        (self.wake)();
    }

    /// For what happens after [`Extents::begin`] only.
    fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| Tables::new(self.plan))
    }

    fn is_off(&self) -> bool {
        let until_ns = self.off_until_ns.load(Relaxed);
        until_ns > 0 && self.clock.now_ns() < until_ns
    }

    /// Reads bytes of `file` at `offset`, if all of them are here.
    pub fn read(&self, file: &ExtentFile, offset: u64, to: &mut [u8]) -> Cached {
        let extent = self.plan.extent_bytes;
        let end = offset.saturating_add(to.len() as u64).min(file.len());
        let (first, last) = (offset / extent, end.saturating_sub(1) / extent);
        if offset >= end || last - first >= READ_EXTENTS_MAX as u64 || self.is_off() {
            return Cached::Missed(None);
        }
        let Some(tables) = self.tables.get() else { return Cached::Missed(None) };
        let files = self.files.load();
        let mut found = [None; READ_EXTENTS_MAX];
        let mut is_wanted = self.has_room.load(Relaxed);
        let keys = (first..=last).map(|number| file.key(number * extent, extent));
        for (place, key) in found.iter_mut().zip(keys.clone()) {
            let low = tables.lookup.find(key.hash());
            *place = low.filter(|low| files.copy_at(*low, key.len, 0).is_some());
        }
        let count = (last - first + 1) as usize;
        if found[..count].iter().any(Option::is_none) {
            let mut admission = tables.admission.lock();
            for (_, key) in found.iter().zip(keys).filter(|(place, _)| place.is_none()) {
                is_wanted |= admission.missed(key.hash(), key.len);
            }
            self.counts.misses.add(1);
            let is_wanted = is_wanted && self.is_filled.load(Relaxed);
            let (offset, end) = (first * extent, ((last + 1) * extent).min(file.len()));
            let len = (end - offset) as usize;
            return Cached::Missed(is_wanted.then_some(Wanted {
                offset,
                len,
                file: file.number(),
            }));
        }
        for (low, key) in found.into_iter().flatten().zip(keys) {
            if !self.copy_out(file, key, &files, low, offset, &mut to[..(end - offset) as usize]) {
                return Cached::Missed(None);
            }
        }
        self.counts.hits.add(1);
        Cached::Served((end - offset) as usize)
    }

    /// Copies what an extent has of the bytes from `offset` on; false where it is not what it
    /// should be.
    fn copy_out(
        &self,
        of: &ExtentFile,
        key: ExtentKey,
        files: &Files,
        low: u64,
        offset: u64,
        to: &mut [u8],
    ) -> bool {
        let Some((file, at)) = files.copy_at(low, key.len, 0) else { return false };
        let stored = match file.file.read(at, key.len as usize) {
            Ok(stored) => stored,
            Err(error) => {
                self.failed(key, file, at, &error);
                return false;
            }
        };
        let Some(bytes) = of.verified(key.offset, &stored) else {
            let why = Error::corrupt(file.file.describe(), at, "an extent does not match");
            self.failed(key, file, at, &why);
            return false;
        };
        let (from, end) = (key.offset.max(offset), key.offset + bytes.len() as u64);
        let end = end.min(offset + to.len() as u64);
        let part = &bytes[(from - key.offset) as usize..(end - key.offset) as usize];
        to[(from - offset) as usize..(end - offset) as usize].copy_from_slice(part);
        true
    }

    fn failed(&self, key: ExtentKey, file: &CacheFile, at: u64, why: &Error) {
        self.counts.damaged.add(1);
        if why.kind() == crate::ErrorKind::TooManyOpenFiles {
            return;
        }
        self.tables().lookup.take(key.hash(), file.position(at));
        let requests = self.counts.hits.get() + self.counts.misses.get();
        if file.failed(requests) {
            tracing::warn!(%why, "a file of extents is given up");
            let mut back_off = self.back_off.lock();
            if back_off.file_given_up(self.clock.now_ns()) {
                self.off_until_ns.store(back_off.until_ns(), Relaxed);
            }
            drop(back_off);
            self.wake();
        }
    }

    /// Takes the bytes that were wanted of `file`.
    pub fn fill(&self, file: &ExtentFile, wanted: Wanted, bytes: &[u8]) {
        let extent = self.plan.extent_bytes;
        let is_it = wanted.file == file.number() && wanted.len == bytes.len();
        if !is_it || !wanted.offset.is_multiple_of(extent) || self.is_off() {
            return;
        }
        let Some(tables) = self.tables.get() else { return };
        let mut is_due = false;
        for (offset, bytes) in
            (wanted.offset..).step_by(extent as usize).zip(bytes.chunks(extent as usize))
        {
            let key = file.key(offset, extent);
            let is_here = || {
                let files = self.files.load();
                tables.lookup.position(key.hash()).is_some_and(|low| files.is_live(low))
            };
            if key.len as usize != bytes.len() + CHECKSUM_BYTES || is_here() {
                continue;
            }
            let stored = file.stored(offset, bytes);
            match tables.filling.lock().offer(key, &stored) {
                Offered::Taken => {}
                Offered::BatchFull => is_due = true,
                Offered::Dropped => self.counts.dropped.add(1),
            }
        }
        if is_due {
            self.wake();
        }
    }

    /// Bytes that its files may come to.
    pub fn bytes(&self) -> u64 {
        self.files.load().bytes()
    }

    /// What it did, and what it has.
    pub fn counts(&self) -> ExtentCounts {
        let (counts, files) = (&self.counts, self.files.load());
        ExtentCounts {
            hits: counts.hits.get(),
            misses: counts.misses.get(),
            admitted: counts.admitted.get(),
            kept: counts.kept.get(),
            dropped: counts.dropped.get(),
            damaged: counts.damaged.get(),
            written_bytes: counts.written_bytes.get(),
            adopted_files: counts.adopted_files.get(),
            adopted: counts.adopted.get(),
            files: files.list().len() as u64,
            bytes: self.bytes(),
        }
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        self.end();
    }
}
