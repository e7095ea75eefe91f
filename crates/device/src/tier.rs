//! One tier: a directory on a device, its queues at rest, and what was read from it and written to
//! it.
//!
//! A `Tier` is shared by all files that lie on it. Queues are costly to make (a ring is a mapping
//! and a system call), so a batch takes one from the pool and gives it back; the pool keeps as many
//! as were ever used at once, up to `IDLE_QUEUES_MAX`.
//!
//! 1. A queue in the pool has nothing in flight.
//! 2. Counters only grow. They count what was asked of the device, not what it did for it.
//!
//! Threads: everything is shared freely.

use crate::context::FileKind;
use crate::driver::{Driver, Queue, Space};
use crate::drivers::OwnerProcess;
use crate::error::{Error, ErrorKind, Result};
use crate::io_classes::IoClasses;
use crate::refusals::Refusals;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{ByteSize, Counter};

/// Requests that a pooled queue takes at once.
const QUEUE_DEPTH: usize = 128;

/// Share of a device that tables and slabs leave for logs and journals once it has refused
/// something, and the most. Logs leave half of it for journals, and manifests half of that for the
/// map, which lies nowhere else.
const SLACK_SHARE: u64 = 32;
const SLACK_BYTES_MAX: u64 = 64 << 20;
/// What a map leaves that reserves room ahead: for one that is written afresh.
const MAP_SLACK_BYTES: u64 = 16 << 10;

/// Queues that a tier keeps for later.
const IDLE_QUEUES_MAX: usize = 32;

/// A tier by its place in the list, 0 being the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TierIndex(pub u8);

impl TierIndex {
    /// As a position in a list of tiers.
    pub fn position(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for TierIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.0)
    }
}

/// What a user says of a tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierSpec {
    /// The tier's directory.
    pub path: PathBuf,
    /// Bytes that the database may use there.
    pub capacity: ByteSize,
    /// The driver's name: `posix`, `direct`, `memory`, `emulated-gp3`.
    pub driver: String,
}

/// Reads, writes and syncs of one kind of file since the tier was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficTotals {
    /// Read requests.
    pub reads: u64,
    /// Bytes that they returned.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes that they held.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
}

/// The counters behind [`TrafficTotals`].
#[derive(Debug, Default)]
pub(crate) struct TrafficCounters {
    reads: Counter,
    read_bytes: Counter,
    writes: Counter,
    written_bytes: Counter,
    syncs: Counter,
}

impl TrafficCounters {
    pub(crate) fn count_read(&self, bytes: usize) {
        self.reads.add(1);
        self.read_bytes.add(bytes as u64);
    }

    pub(crate) fn count_write(&self, bytes: usize) {
        self.writes.add(1);
        self.written_bytes.add(bytes as u64);
    }

    pub(crate) fn count_sync(&self) {
        self.syncs.add(1);
    }

    fn totals(&self) -> TrafficTotals {
        TrafficTotals {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            writes: self.writes.get(),
            written_bytes: self.written_bytes.get(),
            syncs: self.syncs.get(),
        }
    }
}

/// An open tier.
#[derive(Debug)]
pub struct Tier {
    index: TierIndex,
    spec: TierSpec,
    driver: Arc<dyn Driver>,
    idle: Mutex<Vec<Box<dyn Queue>>>,
    traffic: [TrafficCounters; 7],
    classes: IoClasses,
    /// Why names made here may never be durable.
    names_failed: Mutex<Option<Error>>,
    refusals: Refusals,
    owner: OwnerProcess,
}

/// A kind without its level, the grain of [`TrafficTotals`].
fn class(kind: FileKind) -> usize {
    usize::from(kind.code()[0] - 1)
}

impl Tier {
    /// The tier `index` that `driver` serves.
    pub fn new(index: TierIndex, spec: TierSpec, driver: Arc<dyn Driver>) -> Self {
        Self {
            index,
            spec,
            driver,
            idle: Mutex::default(),
            traffic: Default::default(),
            classes: IoClasses::default(),
            names_failed: Mutex::default(),
            refusals: Refusals::default(),
            owner: OwnerProcess::current(),
        }
    }

    /// Refuses a forked child, whose parent's the files and queues are.
    pub(crate) fn require_owner(&self) -> Result<()> {
        if self.owner.is_current() { Ok(()) } else { self.owner.require(self.describe()) }
    }

    /// Makes the names durable that were made, changed and removed in the directory. A failure is
    /// final, as it is for a file: the operating system reports it once, and a later sync that
    /// succeeds would not cover those names.
    ///
    /// Errors: the driver's, and again after the first until the tier is opened anew.
    pub fn sync_directory(&self) -> Result<()> {
        self.require_owner()?;
        let mut failed = self.names_failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        let synced = self.driver.sync_directory();
        let synced = synced.map_err(|e| Error::new(e.kind().after_writing(), e.to_string()));
        if let Err(error) = &synced {
            let text = format!(
                "names on {} may not be durable since a sync of its directory failed; reopen: \
                 {error}",
                self.describe()
            );
            *failed = Some(Error::new(error.kind(), text));
        }
        synced
    }

    /// A tier that belongs to no namespace: for files opened by themselves.
    pub(crate) fn detached(index: TierIndex, driver: Arc<dyn Driver>) -> Self {
        let spec = TierSpec {
            path: driver.describe().into(),
            capacity: ByteSize(u64::MAX),
            driver: driver.name().to_owned(),
        };
        Self::new(index, spec, driver)
    }

    /// The tier's place in the list.
    pub fn index(&self) -> TierIndex {
        self.index
    }

    /// What the user said of it.
    pub fn spec(&self) -> &TierSpec {
        &self.spec
    }

    /// The driver that serves its directory.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// Tier and directory, for messages: `tier 1, /mnt/slow`.
    pub fn describe(&self) -> String {
        format!("{}, {}", self.index, self.spec.path.display())
    }

    /// Traffic of one kind of file; tables of all levels count together.
    pub fn traffic(&self, kind: FileKind) -> TrafficTotals {
        self.traffic[class(kind)].totals()
    }

    /// Traffic of all kinds of file together.
    pub fn traffic_total(&self) -> TrafficTotals {
        self.traffic.iter().map(TrafficCounters::totals).fold(TrafficTotals::default(), |a, b| {
            TrafficTotals {
                reads: a.reads + b.reads,
                read_bytes: a.read_bytes + b.read_bytes,
                writes: a.writes + b.writes,
                written_bytes: a.written_bytes + b.written_bytes,
                syncs: a.syncs + b.syncs,
            }
        })
    }

    /// What its device has refused for want of room.
    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Its device has refused something for want of room a moment ago, and nothing says yet that it
    /// has room again.
    pub fn is_refused(&self) -> bool {
        if self.refusals.stands()
            && let Ok(space) = self.driver.space()
        {
            self.refusals.told(space);
        }
        self.refusals.stands()
    }

    /// Refuses so many bytes more of files of a kind where the device has refused something before
    /// and they would leave it too little for logs and journals, without which nothing is written
    /// and nothing is deleted.
    pub(crate) fn require_slack(&self, kind: FileKind, bytes: u64) -> Result<()> {
        if !self.refusals.is_in_doubt() {
            return Ok(());
        }
        let Ok(Space { total_bytes, free_bytes }) = self.driver.space() else { return Ok(()) };
        let slack_bytes = (total_bytes / SLACK_SHARE).min(SLACK_BYTES_MAX);
        let slack_bytes = match kind {
            FileKind::Table { .. } | FileKind::TableIndex | FileKind::Slab => slack_bytes,
            FileKind::BlockCache => slack_bytes,
            FileKind::Log => slack_bytes / 2,
            FileKind::Manifest => slack_bytes / 4,
            FileKind::Map => MAP_SLACK_BYTES,
        };
        if free_bytes >= bytes.saturating_add(slack_bytes) {
            return Ok(());
        }
        let text = format!(
            "{} has {} free on its device, which leaves too little for logs and journals",
            self.describe(),
            ByteSize(free_bytes)
        );
        let error = Error::new(ErrorKind::OutOfSpace, text);
        // A cache makes do with what it has: others need not ask elsewhere for its sake.
        if kind != FileKind::BlockCache {
            self.note_refusal(&error, bytes.saturating_add(slack_bytes));
        }
        Err(error)
    }

    /// Remembers `error`, which its device gave for so many bytes more, where it is for want of
    /// room.
    pub(crate) fn note_refusal(&self, error: &Error, wanted_bytes: u64) {
        if error.kind() == ErrorKind::OutOfSpace {
            self.refusals.note(wanted_bytes, self.driver.space().ok());
        }
    }

    pub(crate) fn counters(&self, kind: FileKind) -> &TrafficCounters {
        &self.traffic[class(kind)]
    }

    /// Which I/O goes first here.
    pub(crate) fn classes(&self) -> &IoClasses {
        &self.classes
    }

    /// A queue with nothing in flight; give it back with [`Tier::give_queue`].
    pub(crate) fn take_queue(&self) -> Result<Box<dyn Queue>> {
        self.require_owner()?;
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.driver.queue(QUEUE_DEPTH), Ok)
    }

    pub(crate) fn give_queue(&self, queue: Box<dyn Queue>) {
        debug_assert_eq!(queue.in_flight(), 0, "a queue at rest has nothing in flight");
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_QUEUES_MAX {
            idle.push(queue);
        }
    }
}
