//! One namespace of numbered files over all tiers: create, publish, open, move, delete, and account
//! for the room.
//!
//! ```text
//! create_file --> unpublished --publish--> published --delete_files--> gone
//!                 (garbage after a crash)      |  ^
//!                                              v  | migrate: copy, verify, switch, delete the old
//!                                            other tier
//! ```
//!
//! 1. A file survives a crash if and only if the map has it: data and directory are durable before
//!    the map says so, and the map forgets a file before the file goes.
//! 2. What a crash leaves behind (never published, no longer listed, half copied) is removed at the
//!    next opening. Caches alone stay, for their maker to look at: they are never published.
//! 3. A file number is given out once, ever.
//! 4. Capacity is accounted for from the moment a file is created, for the length it is expected to
//!    reach, until its name has gone (`leaving.rs`). Where a device has less than its capacity,
//!    files go where there is room (`new_file.rs`).
//! 5. All openers of a file share one [`File`]; it follows the file from tier to tier.
//!
//! Locks: `map` is held while a change is made durable; `state` only for a moment and never during
//! I/O. A thread that takes both takes `map` first. `leaving` and `loads` come last. Threads:
//! everything is shared freely.
//!
//! Long because: the life of a file from creation to deletion is one state under two locks.

mod access;
mod attachment;
mod checkpoint;
mod creation;
mod devices;
mod generations;
mod home;
mod leaving;
mod lost;
mod map_rebuild;
mod new_file;
mod opening;
mod promises;
mod region;
mod reshape;
mod system;
mod unfinished;

pub use devices::{Devices, MemoryDevices};
pub(crate) use generations::{check_generations, raise_after_crash, write_generation};
pub use home::{FILE_NAME as HOME_FILE_NAME, Home, RegionRecord};
pub use lost::Unreadable;
pub use map_rebuild::MapRebuild;
pub use new_file::GivesWay;
pub(crate) use opening::{Found, LOCK_NAME, absolute, check_identity, has_file, open_tier, refuse};
pub use reshape::{Copied, Spared, TierChange};
pub use system::SystemDevices;
pub(crate) use unfinished::{FILE_NAME as CREATING_NAME, clear};

use crate::buffer::PAGE_BYTES;
use crate::context::{FileContext, FileKind, Keeping};
use crate::driver::{DirectoryLock, Driver, Space};
use crate::drivers::OwnerProcess;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{File, Location};
use crate::file_map::{FileMap, MapChange, MapEntry};
use crate::identity::InstanceId;
use crate::journal::Extent;
use crate::load::{Loads, Writing};
use crate::open_files::{OpenFileCounts, OpenFiles};
use crate::placement::{FileInfo, Placement, TierState, TierUse};
use crate::tier::{Tier, TierIndex, TierSpec, TrafficTotals};
use leaving::Leaving;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, OnceLock};
use thermocline_foundation::threads::catch_panic;
use thermocline_foundation::{
    ByteSize, Clock, DatabaseId, FileNumber, Planted, planted, sync_site,
};

/// The namespace. See the module.
#[derive(Debug)]
pub struct TieredFiles {
    database: DatabaseId,
    instance: InstanceId,
    home: PathBuf,
    home_driver: Arc<dyn Driver>,
    tiers: Vec<Arc<Tier>>,
    placement: Arc<dyn Placement>,
    open_files: Arc<OpenFiles>,
    map: Mutex<FileMap>,
    state: Mutex<BTreeMap<FileNumber, Entry>>,
    /// What is in no entry any more and still takes room.
    leaving: Leaving,
    /// Bytes of the map's file, which lies on tier 0 and in no entry.
    map_bytes: AtomicU64,
    /// What it may come to, with one that is written afresh beside it.
    map_room_bytes: AtomicU64,
    loads: Loads,
    generation: AtomicU64,
    /// Numbers below were or may have been given out before this opening.
    numbers_below_at_opening: FileNumber,
    /// How far the journals went when the database was last closed.
    closed_extents: BTreeMap<String, Extent>,
    /// The region of persistent memory that `DATABASE` has.
    region: Mutex<Option<RegionRecord>>,
    /// The life of the opening that last had a cache of copies, as `DATABASE` has it.
    cache_life: Mutex<Option<u64>>,
    read_only: bool,
    closed: AtomicBool,
    /// The opening has ended a change of the tiers that was cut off.
    has_ended_change: bool,
    /// Whose files on tier 0 make room for those of others.
    gives_way: OnceLock<Weak<dyn GivesWay>>,
    owner: OwnerProcess,
    /// Hold the directories until the namespace is dropped.
    locks: Mutex<Vec<Box<dyn DirectoryLock>>>,
}

/// A file as the namespace knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: FileKind,
    pub(crate) tier: TierIndex,
    /// Bytes announced at creation, until the file is published, or since.
    expected_bytes: u64,
    /// Bytes that the file takes; the open [`File`] raises it.
    extent: Arc<AtomicU64>,
    /// The open file, while a caller has it.
    pub(crate) open: Weak<File>,
    /// Keeps the file open until it is published.
    unpublished: Option<Arc<File>>,
    pub(crate) published: bool,
    /// Where it is being copied to.
    pub(crate) moving_to: Option<TierIndex>,
    /// It is being written there: until it is published.
    _writing: Option<Writing>,
}

impl Entry {
    fn published(entry: &MapEntry, bytes: u64) -> Self {
        Self {
            kind: entry.kind,
            tier: entry.tier,
            expected_bytes: 0,
            extent: Arc::new(AtomicU64::new(bytes)),
            open: Weak::new(),
            unpublished: None,
            published: true,
            moving_to: None,
            _writing: None,
        }
    }

    /// A file of `bytes` on `tier` that an earlier opening left, and which no map has.
    fn left(kind: FileKind, tier: TierIndex, bytes: u64) -> Self {
        let entry = MapEntry { kind, tier, bytes };
        Self { published: false, ..Self::published(&entry, bytes) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.extent.load(Relaxed).max(self.expected_bytes)
    }
}

/// How a tier is used.
#[derive(Clone, Debug)]
pub struct TierUsage {
    /// The tier's place in the list.
    pub tier: TierIndex,
    /// What the user said of it.
    pub spec: TierSpec,
    /// Bytes that the database may use there.
    pub capacity_bytes: u64,
    /// Bytes that its files take, growth that was announced included, and what could not be deleted
    /// yet.
    pub used_bytes: u64,
    /// The same by kind, tables by level.
    pub used_by_kind: BTreeMap<FileKind, u64>,
    /// Room on the device; none where it cannot be told.
    pub space: Option<Space>,
    /// Traffic since opening by kind, tables of all levels together under level 0.
    pub traffic: BTreeMap<FileKind, TrafficTotals>,
}

/// A capacity from here on stands for "as large as the device".
pub const CAPACITY_OF_DEVICE: u64 = 1 << 60;

/// What a user should know of a device that cannot hold what the capacity of its tier promises, of
/// which so much is used; none where it can.
pub fn shortfall(capacity_bytes: u64, used_bytes: u64, space: Space) -> Option<String> {
    let Space { total_bytes, free_bytes } = space;
    let left_bytes = capacity_bytes.saturating_sub(used_bytes);
    let what = if capacity_bytes >= CAPACITY_OF_DEVICE {
        return None;
    } else if total_bytes < capacity_bytes {
        format!("its device has {}", ByteSize(total_bytes))
    } else if free_bytes < left_bytes {
        let (free, left) = (ByteSize(free_bytes), ByteSize(left_bytes));
        format!("its device has {free} free, where the capacity leaves {left}")
    } else {
        return None;
    };
    Some(format!(
        "may use {}, but {what}: what finds no room there goes to other tiers; free space on the \
         device, or lower the capacity",
        ByteSize(capacity_bytes)
    ))
}

/// The name of a data file.
pub(crate) fn file_name(number: FileNumber, kind: FileKind) -> String {
    format!("{number}.{}", kind.extension())
}

impl TieredFiles {
    /// The database, to which all checksums are bound.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// This copy of the database.
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Goes up when the database is opened for writing and when it is closed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// No file has this number or a larger one, now or before.
    pub fn numbers_below(&self) -> FileNumber {
        self.map.lock().next()
    }

    /// As [`TieredFiles::numbers_below`], before this opening gave out any.
    pub fn numbers_below_at_opening(&self) -> FileNumber {
        self.numbers_below_at_opening
    }

    /// The home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The driver of the home directory.
    pub fn home_driver(&self) -> &Arc<dyn Driver> {
        &self.home_driver
    }

    /// The tiers, fastest first.
    pub fn tiers(&self) -> &[Arc<Tier>] {
        &self.tiers
    }

    /// The placement policy.
    pub fn placement(&self) -> &Arc<dyn Placement> {
        &self.placement
    }

    /// The program above has opened all that it needs: see [`crate::Journal::opened`].
    pub fn opened(&self) {
        self.map.lock().opened();
    }

    /// Background work makes way for writes of the log, as it does from the start, or does not.
    pub fn set_log_first(&self, is_on: bool) {
        self.tiers.iter().for_each(|tier| tier.classes().set_log_first(is_on));
    }

    /// See [`FileMap::set_room_bytes`].
    #[doc(hidden)]
    pub fn set_map_room_bytes(&self, bytes: u64) {
        let mut map = self.map.lock();
        map.set_room_bytes(bytes);
        self.map_room_bytes.store(map.announced_bytes(), Relaxed);
    }

    /// Makes files survive a crash, all or none. Their data must have been synced; this syncs their
    /// directories and appends to the map.
    pub fn publish(&self, numbers: &[FileNumber]) -> Result<()> {
        self.require_writable()?;
        let mut changes = Vec::with_capacity(numbers.len());
        let mut lens = Vec::with_capacity(numbers.len());
        let mut tiers = BTreeSet::new();
        for number in numbers {
            let (file, kind, tier) = self.unpublished(*number)?;
            if kind.keeping() != Keeping::Durable {
                let text = format!("file {number} is a {kind}, which is never published");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            let len = file.len()?;
            // Tables never change again; the others do, but keep their first page.
            let bytes = if is_table(kind) { len } else { len.min(PAGE_BYTES as u64) };
            changes.push(MapChange::Add(*number, MapEntry { kind, tier, bytes }));
            lens.push(len);
            tiers.insert(tier);
        }
        for tier in tiers.into_iter().filter(|_| !planted(Planted::PublishSkipsDirectorySync)) {
            let tier = &self.tiers[tier.position()];
            sync_site("publish/name", || tier.sync_directory()).map_err(|error| {
                let text = format!("cannot sync the directory of {}: {error}", tier.describe());
                Error::new(error.kind(), text)
            })?;
        }
        self.with_map(|map| {
            for (number, change) in numbers.iter().zip(&mut changes) {
                // The level may have changed meanwhile, and the file may have been deleted.
                let (_, kind, _) = self.unpublished(*number)?;
                if let MapChange::Add(_, entry) = change {
                    entry.kind = kind;
                }
            }
            let commit = || sync_site("publish/map", || map.commit(&changes));
            let committed = catch_panic(commit);
            if let Ok(Err(error)) = &committed
                && error.kind() == ErrorKind::OutOfSpace
            {
                // The map has refused the change before it began.
                return Err(error.clone());
            }
            let mut state = self.state.lock();
            for (number, len) in numbers.iter().zip(lens) {
                if let Some(entry) = state.get_mut(number) {
                    self.tiers[entry.tier.position()].refusals().served();
                    // After a failed commit, or a panic in it, the map may or may not list the
                    // files. They count as published, so that deleting them asks the map, which
                    // refuses: the next opening decides.
                    entry.published = true;
                    entry.unpublished = None;
                    entry._writing = None;
                    entry.expected_bytes = 0;
                    entry.extent.store(len, Relaxed);
                }
            }
            drop(state);
            committed.unwrap_or_else(|panic| panic.resume())
        })
    }

    fn unpublished(&self, number: FileNumber) -> Result<(Arc<File>, FileKind, TierIndex)> {
        let state = self.state.lock();
        let entry = state.get(&number).ok_or_else(|| unknown(number))?;
        let file = entry.unpublished.as_ref().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("file {number} is already published"))
        })?;
        Ok((Arc::clone(file), entry.kind, entry.tier))
    }

    /// Opens a file; all callers get the same one.
    pub fn open_file(&self, number: FileNumber) -> Result<Arc<File>> {
        self.require_owner()?;
        loop {
            let (kind, tier, extent) = {
                let state = self.state.lock();
                let entry = state.get(&number).ok_or_else(|| unknown(number))?;
                if let Some(file) = entry.open.upgrade() {
                    return Ok(file);
                }
                (entry.kind, entry.tier, Arc::clone(&entry.extent))
            };
            let driver = self.tiers[tier.position()].driver();
            let name = file_name(number, kind);
            let opened = self.open_files.with_room(|| match self.read_only {
                true => driver.open_to_read(&name),
                false => driver.open(&name),
            });
            let mut state = self.state.lock();
            let entry = state.get_mut(&number).ok_or_else(|| unknown(number))?;
            if let Some(file) = entry.open.upgrade() {
                return Ok(file);
            }
            if entry.tier != tier {
                // It moved while it was being opened.
                continue;
            }
            let tier = Arc::clone(&self.tiers[tier.position()]);
            let handle = opened.map_err(|error| {
                let text = format!("cannot open file {number} on {}: {error}", tier.describe());
                Error::new(error.kind(), text)
            })?;
            let (database, location) = (self.database, Location::open(tier, handle));
            let file = File::at(database, number, entry.kind, location, extent, &self.open_files);
            if may_be_closed(entry.kind) {
                self.open_files.enroll(&file);
            }
            entry.open = Arc::downgrade(&file);
            return Ok(file);
        }
    }

    /// Records that a table belongs to another level now.
    pub fn reclassify(&self, number: FileNumber, kind: FileKind) -> Result<()> {
        self.require_writable()?;
        self.with_map(|map| {
            let (old, published) = {
                let state = self.state.lock();
                let entry = state.get(&number).ok_or_else(|| unknown(number))?;
                (entry.kind, entry.published)
            };
            if old.extension() != kind.extension() {
                let text = format!("file {number} is a {old} and cannot become a {kind}");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            if old != kind && published {
                let change = MapChange::Reclassify(number, kind);
                sync_site("reclassify/map", || map.commit(&[change]))?;
            }
            if let Some(entry) = self.state.lock().get_mut(&number) {
                entry.kind = kind;
                if let Some(file) = entry.open.upgrade() {
                    file.set_kind(kind);
                }
            }
            Ok(())
        })
    }

    /// Deletes files, all or none; a caller that has one open can go on reading it. Then others
    /// may have their room, but for what cannot be deleted before the next opening.
    pub fn delete_files(&self, numbers: &[FileNumber]) -> Result<()> {
        self.require_writable()?;
        let numbers: BTreeSet<FileNumber> = numbers.iter().copied().collect();
        let removed = self.with_map(|map| {
            let mut changes = Vec::new();
            {
                let state = self.state.lock();
                for number in &numbers {
                    let entry = state.get(number).ok_or_else(|| unknown(*number))?;
                    if entry.published {
                        changes.push(MapChange::Remove(*number));
                    }
                }
            }
            if !changes.is_empty() {
                sync_site("delete/map", || map.commit(&changes))?;
            }
            let mut state = self.state.lock();
            let removed = numbers.iter().filter_map(|number| self.forget(&mut state, *number));
            Ok(removed.collect::<Vec<_>>())
        })?;
        for (number, entry) in removed {
            // A table that was never published may be what found no room, and is written again.
            let given_back = entry.published || !is_table(entry.kind);
            let bytes = if given_back { entry.bytes() } else { 0 };
            let Entry { kind, tier, open, unpublished, .. } = entry;
            drop(unpublished);
            // Those that have the file read on: without its name it could not be opened again.
            match open.upgrade().map_or(Ok(()), |file| file.keep_open()) {
                Ok(()) => self.unlink(number, kind, tier, bytes),
                // What a cache had is read elsewhere, and its room is wanted.
                Err(_) if kind.keeping() == Keeping::Cache => {
                    self.unlink(number, kind, tier, bytes);
                }
                Err(error) => {
                    tracing::warn!(%error, "a deleted file that is read stays until reopening");
                }
            }
        }
        Ok(())
    }

    /// How many files are open, and may be.
    pub fn open_file_counts(&self) -> OpenFileCounts {
        self.open_files.counts()
    }

    /// So many files stay open at most, besides those that a request is using. What is idle is
    /// closed and opened again.
    pub fn set_open_files_max(&self, files: u64) {
        self.open_files.set_bound(files);
    }

    /// Takes the entry of a file out, which counts on its tier until it is unlinked.
    fn forget(
        &self,
        state: &mut BTreeMap<FileNumber, Entry>,
        number: FileNumber,
    ) -> Option<(FileNumber, Entry)> {
        let entry = state.remove(&number)?;
        self.leaving.add_entry(number, &entry);
        Some((number, entry))
    }

    /// Removes a file that the map does not have there, and that gives so many bytes back. What
    /// cannot be removed now is removed by the next opening, and counts until then.
    pub(crate) fn unlink(&self, number: FileNumber, kind: FileKind, tier: TierIndex, bytes: u64) {
        let tier = &self.tiers[tier.position()];
        match tier.driver().delete(&file_name(number, kind)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let tier = tier.describe();
                tracing::warn!(%error, %tier, "a deleted file stays until reopening");
            }
            _ => {
                self.leaving.end(number, tier.index());
                tier.refusals().freed(bytes);
            }
        }
    }

    /// The namespace has a file of that number.
    pub fn has_file(&self, number: FileNumber) -> bool {
        self.state.lock().contains_key(&number)
    }

    /// Makes a new log out of one that is no longer needed, on the same tier and with its blocks:
    /// `old` is forgotten, its bytes are what the new file begins with. The new file is not
    /// published.
    pub fn recycle(&self, old: FileNumber, context: FileContext) -> Result<Arc<File>> {
        self.require_writable()?;
        let file = self.open_file(old)?;
        let number = self.with_map(|map| {
            let (kind, published) = {
                let state = self.state.lock();
                let entry = state.get(&old).ok_or_else(|| unknown(old))?;
                (entry.kind, entry.published)
            };
            if kind != FileKind::Log || context.kind != FileKind::Log {
                let text = format!("file {old} is a {kind}: only logs are made into new logs");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            let keeps = planted(Planted::RecycledLogKeepsNumber);
            let number = if keeps { old } else { map.allocate_number()? };
            if published {
                sync_site("recycle/map", || map.commit(&[MapChange::Remove(old)]))?;
            }
            let mut state = self.state.lock();
            let entry = state.remove(&old).ok_or_else(|| unknown(old))?;
            state.insert(number, Entry { published: false, ..entry });
            Ok(number)
        })?;
        let location = Arc::clone(&file.location());
        let names = (file_name(old, FileKind::Log), file_name(number, FileKind::Log));
        if let Err(error) = location.tier.driver().rename(&names.0, &names.1) {
            // The map has forgotten it, under either name.
            let bytes = self.with_state(|state| {
                let lost = state.remove(&number)?;
                self.leaving.add_entry(old, &lost);
                Some(lost.bytes())
            });
            let bytes = bytes.unwrap_or(0);
            self.unlink(old, FileKind::Log, location.tier.index(), bytes);
            let text = format!("cannot recycle {}: {error}", file.describe());
            return Err(Error::new(error.kind().after_opening(), text));
        }
        let (tier, handle) = (Arc::clone(&location.tier), Arc::clone(location.handle()));
        let extent = Arc::new(AtomicU64::new(file.len()?));
        if let Some(entry) = self.state.lock().get_mut(&number) {
            entry.extent = Arc::clone(&extent);
        }
        let (database, location) = (self.database, Location::open(tier, handle));
        let file = File::at(database, number, FileKind::Log, location, extent, &self.open_files);
        self.hold_unpublished(&file);
        Ok(file)
    }

    /// All files, published or not, by number.
    pub fn files(&self) -> Vec<FileInfo> {
        let state = self.state.lock();
        let info = |(number, entry): (&FileNumber, &Entry)| FileInfo {
            number: *number,
            kind: entry.kind,
            tier: entry.tier,
            bytes: entry.bytes(),
            published: entry.published,
        };
        state.iter().map(info).collect()
    }

    /// How each tier is used.
    pub fn usage(&self) -> Vec<TierUsage> {
        let mut used = vec![BTreeMap::<FileKind, u64>::new(); self.tiers.len()];
        let mut count = |tier: TierIndex, kind, bytes| {
            *used[tier.position()].entry(kind).or_default() += bytes;
        };
        self.with_state(|state| {
            state.values().for_each(|entry| count(entry.tier, entry.kind, entry.bytes()));
            self.leaving.count(&mut count);
        });
        count(TierIndex(0), FileKind::Map, self.map_bytes.load(Relaxed));
        let usage = self.tiers.iter().zip(used).map(|(tier, used_by_kind)| {
            let table = FileKind::Table { level: 0 };
            let (map, slab, index) = (FileKind::Map, FileKind::Slab, FileKind::TableIndex);
            let (log, cache) = (FileKind::Log, FileKind::BlockCache);
            let kinds = [log, FileKind::Manifest, table, map, slab, index, cache];
            TierUsage {
                tier: tier.index(),
                spec: tier.spec().clone(),
                capacity_bytes: tier.spec().capacity.0,
                used_bytes: used_by_kind.values().sum(),
                used_by_kind,
                space: tier.driver().space().ok(),
                traffic: kinds.into_iter().map(|kind| (kind, tier.traffic(kind))).collect(),
            }
        });
        usage.collect()
    }

    /// Moves that the placement policy finds worth making now; files that are being moved are left
    /// out.
    pub fn misplaced(&self) -> Vec<(FileNumber, TierIndex)> {
        self.moves(|files, tiers| self.placement.misplaced(files, tiers))
    }

    /// Moves to faster tiers that it finds worth making while nothing else is to be done.
    pub fn worth_fetching(&self) -> Vec<(FileNumber, TierIndex)> {
        self.moves(|files, tiers| self.placement.worth_fetching(files, tiers))
    }

    /// Bytes of tier 0 that the placement policy keeps for tables.
    pub fn claimed_bytes(&self) -> u64 {
        let tiers = self.with_state(|state| self.tier_states(state));
        self.placement.claimed_bytes(&tiers)
    }

    /// Tells the placement policy how much of the fast tier's bandwidth was used lately.
    pub fn measured(&self, fast_tier: TierUse) {
        let tiers = self.with_state(|state| self.tier_states(state));
        self.placement.measured(fast_tier, &tiers);
    }

    fn moves(
        &self,
        choose: impl FnOnce(&[FileInfo], &[TierState]) -> Vec<(FileNumber, TierIndex)>,
    ) -> Vec<(FileNumber, TierIndex)> {
        if self.tiers.len() == 1 {
            return Vec::new();
        }
        let refused = self.refused_tiers();
        let (mut tiers, moving) = {
            let state = self.state.lock();
            let moving = state.iter().filter(|(_, entry)| entry.moving_to.is_some());
            (self.tier_states(&state), moving.map(|(number, _)| *number).collect::<BTreeSet<_>>())
        };
        for (tier, is_refused) in tiers.iter_mut().zip(refused) {
            tier.is_refused = is_refused;
        }
        let mut files = self.files();
        files.retain(|file| !moving.contains(&file.number));
        choose(&files, &tiers)
    }

    /// From now on placement is told what the devices can do, as far as that is known, and how many
    /// writers they have.
    pub fn measure_load(&self, clock: Arc<dyn Clock>) {
        self.loads.measure(clock, self.tiers.iter().map(|tier| tier.driver()));
    }

    /// How full the tiers are; a file on the move counts on both, and one that was forgotten until
    /// it is gone.
    pub(crate) fn tier_states(&self, state: &BTreeMap<FileNumber, Entry>) -> Vec<TierState> {
        let empty = |tier: &Arc<Tier>| {
            let capacity_bytes = tier.spec().capacity.0;
            let mut state = TierState { capacity_bytes, ..TierState::default() };
            self.loads.tell(tier.index(), tier.traffic(FileKind::Log).writes, &mut state);
            state
        };
        let mut tiers: Vec<TierState> = self.tiers.iter().map(empty).collect();
        tiers[0].add(FileKind::Map, self.map_room_bytes.load(Relaxed));
        for entry in state.values() {
            let bytes = entry.bytes();
            tiers[entry.tier.position()].add(entry.kind, bytes);
            if let Some(to) = entry.moving_to {
                tiers[to.position()].add(entry.kind, bytes);
            }
        }
        self.leaving.count(|tier, kind, bytes| tiers[tier.position()].add(kind, bytes));
        tiers
    }

    /// Runs `change` with the map and afterwards notes how long the map is.
    pub(crate) fn with_map<T>(&self, change: impl FnOnce(&mut FileMap) -> Result<T>) -> Result<T> {
        let mut map = self.map.lock();
        let result = change(&mut map);
        self.map_bytes.store(map.file_bytes(), Relaxed);
        self.map_room_bytes.store(map.announced_bytes(), Relaxed);
        result
    }

    pub(crate) fn loads(&self) -> &Loads {
        &self.loads
    }

    pub(crate) fn leaving(&self) -> &Leaving {
        &self.leaving
    }

    pub(crate) fn with_state<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<FileNumber, Entry>) -> T,
    ) -> T {
        change(&mut self.state.lock())
    }
}

/// A file of this kind is closed where it is idle and too many are open.
fn may_be_closed(kind: FileKind) -> bool {
    is_table(kind) || matches!(kind, FileKind::Slab | FileKind::TableIndex | FileKind::BlockCache)
}

fn is_table(kind: FileKind) -> bool {
    matches!(kind, FileKind::Table { .. })
}

pub(crate) fn unknown(number: FileNumber) -> Error {
    Error::new(ErrorKind::NotFound, format!("the file map has no file {number}"))
}
