//! Extents of a host's files on tier 0 (`file_cache/extents`): which file they are of, and the room
//! that they have.
//!
//! ```text
//!   reader asks ──> look 1: sync, stamp ── 1 s ──> look 2: the same stamp ──> known
//!                       ^                                                      │ written, moved
//!                       '──────────────────── unknown <───────────────────────'
//! ```
//! 1. A file that is being written, and one on tier 0, has no extents.
//! 2. A file is known by a stamp that it had for a second, and that is durable with the bytes: a
//!    later change of its bytes shows in the stamp, and a power cut changes neither. A later
//!    writing gives it another stamp first (`writer.rs`).
//! 3. What a writing or a move began before is not taken: the file is another one then.
//! 4. Extents leave a part of the tier, and of its device, free: what other directories and
//!    programs write to the device counts, although it is not known.
//! 5. Where nothing is configured, a read pays one test of a field that never changes.
//!
//! Locks: `asked` for a moment, before that of the listing; a file's `turns` last.
//! Threads: any reads and fills; one at a time tends.

use super::copies::left_free;
use super::listing::Place;
use super::named_file::NamedFile;
use super::{Host, Names};
use crate::driver::{FileStamp, Space};
use crate::error::Result;
use crate::file_cache::extents::{
    Cached, ExtentCounts, ExtentFile, ExtentPlan, Extents, Wake, Wanted, delete_files,
};
use crate::identity::InstanceId;
use crate::migration_queue::Thresholds;
use crate::tier::TierIndex;
use std::sync::{Arc, Weak};
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use thermocline_foundation::sync::{ArcSwap, Mutex};
use thermocline_foundation::{Clock, sync_site};

/// A stamp counts when it was the same for so long: file systems keep times in steps.
const SETTLED_NS: u64 = 1_000_000_000;

/// Pieces of upkeep at once.
const STEPS_MAX: usize = 64;

/// The tier that has the extents.
const TIER: TierIndex = TierIndex(0);

/// The cache of a host's directory.
#[derive(Debug)]
pub(super) struct HostExtents {
    cache: Extents,
    /// Files that are read and not known yet.
    asked: Mutex<Vec<Asked>>,
}

#[derive(Debug)]
struct Asked {
    file: Weak<NamedFile>,
    seen: Option<Seen>,
}

/// What a look found.
#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: FileStamp,
    at_ns: u64,
    /// How often the file had become unknown.
    turn: u64,
}

/// What a file is known by to the cache.
#[derive(Debug)]
pub(super) struct Known {
    identity: ArcSwap<Option<ExtentFile>>,
    is_asked: AtomicBool,
    /// How often it became unknown.
    turns: Mutex<u64>,
}

impl Known {
    /// Not yet.
    pub fn not() -> Self {
        let identity = ArcSwap::from_pointee(None);
        Self { identity, is_asked: AtomicBool::new(false), turns: Mutex::new(0) }
    }

    /// It is written, or lies elsewhere.
    pub fn forget(&self) {
        let mut turns = self.turns.lock();
        *turns += 1;
        self.identity.store(Arc::new(None));
        self.is_asked.store(false, Release);
    }
}

/// Keeps extents of files of slower tiers.
#[derive(Debug)]
pub struct ExtentSettings {
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Bytes that the cache may take of tier 0; what the host's files leave where none is given.
    pub capacity_bytes: Option<u64>,
}

impl Names {
    /// From now on extents of files are kept, where there is a slower tier, or what an earlier
    /// opening kept is deleted at the first change. `wake` is called when there is something to
    /// tend. The first call counts.
    pub fn keep_extents(
        &self,
        settings: Option<ExtentSettings>,
        clock: Arc<dyn Clock>,
        wake: Wake,
    ) {
        let host = &self.host;
        let tier = &host.identities[TIER.position()];
        let settings = settings.filter(|_| host.rooms.len() > 1);
        let extents = settings.map(|settings| {
            let of_tier = tier.spec().capacity.0;
            let of_device = tier.driver().space().map_or(of_tier, |space| space.total_bytes);
            let all = of_tier.min(of_device).max(settings.extent_bytes);
            let capacity_bytes = settings.capacity_bytes.unwrap_or(all).min(all);
            let plan = ExtentPlan::new(capacity_bytes, settings.extent_bytes);
            let cache = Extents::new(plan, Arc::clone(tier), clock, wake);
            HostExtents { cache, asked: Mutex::default() }
        });
        let changing = host.changing.lock();
        if host.extents.set(extents).is_ok()
            && let Some(changing) = changing.as_ref()
        {
            host.begin_extents(&changing.home);
        }
    }

    /// Does what there is to do for extents, a bounded part of it; true where there is more.
    pub fn tend_extents(&self) -> bool {
        let host = &self.host;
        let Some(extents) = host.kept_extents() else { return false };
        host.look_at_asked(extents);
        (0..STEPS_MAX).all(|_| extents.cache.step(host.extent_room(extents, 0)))
    }

    /// A second has passed: what readers have filled in is written, although it is little.
    pub fn write_gathered_extents(&self) {
        if let Some(extents) = self.host.kept_extents() {
            extents.cache.write_gathered(self.host.extent_room(extents, 0));
        }
    }

    /// What the cache of extents did; none where there is none.
    pub fn extent_counts(&self) -> Option<ExtentCounts> {
        self.host.kept_extents().map(|extents| extents.cache.counts())
    }
}

impl NamedFile {
    /// Extents of it may be kept.
    pub fn keeps_extents(&self) -> bool {
        self.known().is_some()
    }

    /// Reads bytes at `offset` from extents, if all of them are there. `epoch` is that of the place
    /// which the host has open. Where bytes are wanted, they contain those that were asked for:
    /// the host reads them in place of these, and gives them to [`NamedFile::fill`].
    pub fn read_cached(self: &Arc<Self>, epoch: u64, offset: u64, to: &mut [u8]) -> Cached {
        let Some(known) = self.known() else { return Cached::Missed(None) };
        let Some(extents) = self.host().kept_extents() else { return Cached::Missed(None) };
        if self.served_by() == TIER.position() {
            return Cached::Missed(None);
        }
        let identity = known.identity.load();
        let Some(file) = &**identity else {
            if !known.is_asked.swap(true, AcqRel) {
                let file = Arc::downgrade(self);
                extents.asked.lock().push(Asked { file, seen: None });
                extents.cache.wake();
            }
            return Cached::Missed(None);
        };
        match extents.cache.read(file, offset, to) {
            // What the host has open may be older.
            Cached::Missed(Some(_)) if self.epoch().load(Acquire) != epoch => Cached::Missed(None),
            cached => cached,
        }
    }

    /// Gives what [`NamedFile::read_cached`] wanted, as it was read at the place of the same epoch;
    /// taken, or dropped.
    pub fn fill(&self, epoch: u64, wanted: Wanted, bytes: &[u8]) {
        let (Some(known), Some(extents)) = (self.known(), self.host().kept_extents()) else {
            return;
        };
        let identity = known.identity.load();
        if let Some(file) = &**identity
            && self.epoch().load(Acquire) == epoch
        {
            extents.cache.fill(file, wanted, bytes);
        }
    }
}

impl Host {
    fn kept_extents(&self) -> Option<&HostExtents> {
        self.extents.get()?.as_ref()
    }

    /// What a new open file has of the cache.
    pub(super) fn unknown_file(&self) -> Option<Known> {
        self.kept_extents().map(|_| Known::not())
    }

    /// The directory is this process's from now on.
    pub(super) fn begin_extents(&self, home: &crate::tiered_files::Home) {
        match self.extents.get() {
            None => {}
            Some(None) => delete_files(&**self.identities[TIER.position()].driver()),
            Some(Some(extents)) => {
                extents.cache.begin(home.database, home.instance, home.generation);
            }
        }
    }

    /// Bytes that the host's files, and so many more, leave to extents: of the tier, and of its
    /// device, which may have less free than the tier was given.
    fn extent_room(&self, extents: &HostExtents, more_bytes: u64) -> u64 {
        let states = self.tier_states();
        let state = &states[TIER.position()];
        let percent = self.settings().thresholds.upper_percent;
        // What the host wants free of its tier it need not want of a device that it shares.
        let percent_of_device = Thresholds::default().upper_percent;
        let limit = left_free(state.capacity_bytes, percent);
        let of_tier = limit.saturating_sub(state.used_bytes);
        let of_device = match self.identities[TIER.position()].driver().space() {
            Ok(Space { total_bytes, free_bytes }) => {
                let kept_free = total_bytes - left_free(total_bytes, percent_of_device);
                extents.cache.bytes().saturating_add(free_bytes).saturating_sub(kept_free)
            }
            Err(_) => of_tier,
        };
        of_tier.min(of_device).saturating_sub(more_bytes)
    }

    /// Lets extents go where a file of so many bytes needs their room.
    pub(super) fn extents_give_way(&self, room: TierIndex, bytes: u64) {
        if let Some(extents) = self.kept_extents().filter(|_| room == TIER) {
            extents.cache.give_way(self.extent_room(extents, bytes));
        }
    }

    /// Lets all extents go, because the device of their tier is full; false if there were none.
    pub(super) fn drop_extents(&self, room: TierIndex) -> bool {
        self.kept_extents().filter(|_| room == TIER).is_some_and(|extents| extents.cache.clear())
    }

    /// Gives a file that is about to be written another stamp, where there may be extents of it:
    /// an earlier opening may have kept some although this one keeps none.
    pub(super) fn restamp(&self, place: &Place) -> Result<()> {
        if place.room == TIER {
            return Ok(());
        }
        let file = self.room(place).tier.driver().open(&place.file)?;
        file.touch()?;
        sync_site("names/restamp", || file.sync_stamp())
    }

    fn look_at_asked(&self, extents: &HostExtents) {
        let asked = std::mem::take(&mut *extents.asked.lock());
        if asked.is_empty() {
            return;
        }
        let instance = self.changing.lock().as_ref().map(|changing| changing.home.instance);
        let Some(instance) = instance else { return extents.asked.lock().extend(asked) };
        for mut one in asked {
            let Some(file) = one.file.upgrade() else { continue };
            match self.look(&file, &mut one.seen, instance, extents.cache.now_ns()) {
                Ok(true) => {}
                Ok(false) => extents.asked.lock().push(one),
                Err(error) => {
                    tracing::debug!(%error, "a file has no extents for now");
                    if let Some(known) = file.known() {
                        known.is_asked.store(false, Release);
                    }
                }
            }
        }
    }

    /// Looks at a file that is not known; true where that was the last look.
    fn look(
        &self,
        file: &NamedFile,
        seen: &mut Option<Seen>,
        instance: InstanceId,
        now_ns: u64,
    ) -> Result<bool> {
        let Some(known) = file.known() else { return Ok(true) };
        let turn = *known.turns.lock();
        let is_whole = {
            let listing = self.listing.lock();
            let Some(name) = listing.name_of(file) else { return Ok(true) };
            listing.get(&name)?.is_whole()
        };
        let (_, place) = file.location();
        if !is_whole {
            *seen = None;
            return Ok(false);
        }
        let driver = self.room(&place).tier.driver();
        let handle = driver.open_to_read(&place.file)?;
        let Some(stamp) = handle.stamp()? else { return Ok(true) };
        match *seen {
            Some(before) if before.stamp == stamp && before.turn == turn => {
                if now_ns.saturating_sub(before.at_ns) < SETTLED_NS {
                    return Ok(false);
                }
            }
            _ => {
                sync_site("names/extents", || handle.sync_stamp())?;
                *seen = Some(Seen { stamp, at_ns: now_ns, turn });
                return Ok(false);
            }
        }
        let turns = known.turns.lock();
        if *turns == turn {
            let file = ExtentFile::new(instance, place.room.0, &place.file, stamp);
            known.identity.store(Arc::new(Some(file)));
        } else {
            known.is_asked.store(false, Relaxed);
        }
        Ok(true)
    }
}
