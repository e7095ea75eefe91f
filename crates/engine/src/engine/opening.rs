//! The parts of a store put together: devices, namespace, cache, manifest, logs, memtables and
//! background jobs become an engine here, and nowhere else.
//!
//! [`start`] is the table of what is made in which order; what is done to the files meanwhile is in
//! `restore.rs`. An opening for reading only differs in the parts that it is put together from: its
//! log, its replayed records and a manifest that must be made are in memory, and the latch is set
//! before the first write.
//!
//! Threads: the one that opens; the workers begin last.

use super::background::Background;
use super::migration::Migrations;
use super::open_files;
use super::opened_files::{Access, OpenedFiles, open_with_region};
use super::restore::{
    numbers_of, remove_leftovers, replay_in_memory, replay_logs, require_durable, require_files,
    require_floor, restore,
};
use super::small_devices;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::error::Result;
use crate::fast_cache::FastCache;
use crate::front::Front;
use crate::front::Logged;
use crate::front::log_pool::{LogPool, log_in_memory, make_log};
use crate::front::persistent::leaving::Leaving;
use crate::front::persistent::opening::{
    IndexUse, OpenedRegion, abandon as abandon_region, open as open_region,
};
use crate::front::persistent::{Arenas, Persistent};
use crate::front::replay::Replayed;
use crate::generations::log_file::LogFile;
use crate::generations::memtable::Memtable;
use crate::jobs::{Jobs, Lane, Planner};
use crate::layout::OpenedLayout;
use crate::locator::index::require_known;
use crate::read::Reader;
use crate::requests::Requests;
use crate::settings::{SETTINGS_NAME, Settings, Tier};
use crate::shared::Shared;
use crate::table_set::TableSet;
use crate::table_set::claims::Claims;
use crate::table_set::restored::Restored;
use crate::table_set::table::{ObsoleteFiles, TableStore};
use crate::transaction::Locks;
use crate::versions::{Version, Versions};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{CAPACITY_OF_DEVICE, FileKind, Origin, TierSpec, TieredFiles};
use thermocline_foundation::{ByteSize, FileNumber, Sequence};
use thermocline_pmem::Arena;
use thermocline_table::BlockCache;

/// Lanes with a worker of their own, the last where there is an index.
const LANES: [Lane; 3] = [Lane::Flush, Lane::Upkeep, Lane::Index];

/// An open store: what its first handle holds.
pub(crate) struct Opened {
    pub engine: Arc<Engine>,
    /// To be kept: the workers hold it weakly.
    pub planner: Arc<dyn Planner>,
    /// Not where it was opened for reading only, or no tier had room for what the logs had.
    pub is_written: bool,
}

/// Makes a store at `home`. Leaves nothing behind when it fails.
pub(crate) fn create(
    environment: &Environment,
    home: &Path,
    settings: &Settings,
) -> Result<Opened> {
    let mut settings = settings.clone();
    let tiers = tiers(home, &mut settings);
    settings.preset = Some(settings.preset());
    settings.check()?;
    settings.check_capacities()?;
    let placement = settings.placement_policy();
    let kept = settings.to_kept_toml()?;
    let texts = [(SETTINGS_NAME, &kept[..])];
    let (devices, policy) = (&*environment.devices, Arc::clone(&placement));
    let files = TieredFiles::create_with_texts(devices, home, &tiers, policy, &texts)?;
    let files = Arc::new(files);
    let opened = OpenedFiles {
        files: Arc::clone(&files),
        settings,
        placement,
        changed: None,
        before: None,
        new_region: None,
    };
    start(environment, opened, IndexUse::Keep).inspect_err(|_| {
        // The namespace exists but holds nothing; a second attempt must find a clean place.
        abandon_region(environment, &files);
        if let Err(error) = files.abandon(&*environment.devices) {
            tracing::warn!(%error, "a half-made database could not be removed");
        }
    })
}

/// The tiers asked for, or one in the home that may fill its disk.
fn tiers(home: &Path, settings: &mut Settings) -> Vec<TierSpec> {
    if settings.tiers.is_empty() {
        settings.tiers = vec![Tier::new(home.join("tier-0"), ByteSize(CAPACITY_OF_DEVICE))];
    }
    settings.tier_specs()
}

/// Opens the store at `home` with the settings `given`, or those that it keeps.
pub(crate) fn open(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
) -> Result<Opened> {
    let opened = open_with_region(environment, home, given, access)?;
    start(environment, opened, IndexUse::Keep)
}

/// As [`open`] for writing, with a new index in the region of persistent memory.
pub(crate) fn open_with_new_index(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
) -> Result<Opened> {
    let opened = open_with_region(environment, home, given, Access::Write)?;
    start(environment, opened, IndexUse::Renew)
}

/// From an open namespace to a running engine, part by part; `changed` settings are kept unless
/// refused.
fn start(environment: &Environment, opened: OpenedFiles, index: IndexUse) -> Result<Opened> {
    let OpenedFiles { files, mut settings, placement, changed, before, new_region } = opened;
    let access = Access::of(&files);
    let mut leaving = Leaving::of(&files, &settings, before);
    if leaving.is_all() {
        settings.persistent_memory = None;
    }
    open_files::bound(&files, &settings)?;
    small_devices::warn(&files);
    let cache = Arc::new(BlockCache::new(settings.division().cache_bytes));
    let jobs = Arc::new(Jobs::new(&environment.workers));
    let store = Arc::new(TableStore {
        files: Arc::clone(&files),
        cache: Arc::clone(&cache),
        obsolete: ObsoleteFiles::default(),
        jobs: Arc::clone(&jobs),
    });
    let mut restored = restored(&store, &settings, access)?;
    let (logs, floor) = (numbers_of(&files, |kind| kind == FileKind::Log), restored.log_floor);
    let require_floor = |arenas: &[FileNumber]| require_floor(&[&logs[..], arenas].concat(), floor);
    let index = if leaving.is_behind() { IndexUse::Renew } else { index };
    let wanted = (&settings, index);
    let mut region =
        open_region(environment, &files, wanted, new_region, &require_floor, &mut leaving)?;
    if let (Some(region), Some(of_settings)) = (&region, &mut settings.persistent_memory) {
        of_settings.is_beside_log = region.is_beside_log;
    }
    require_known(&leaving.tables_of_index(), &restored.levels)?;
    require_floor(&region.iter().flat_map(OpenedRegion::numbers).collect::<Vec<_>>())?;
    if let Some(region) = &mut region {
        region.keep_from(floor, access == Access::Write);
    }
    let totals_before = std::mem::take(&mut restored.totals);
    let shared = Shared::new(settings, environment, files, placement, cache, jobs, totals_before);
    let shared = Arc::new(shared);
    let tree = region.as_mut().and_then(|region| region.tree.take());
    let layout = OpenedLayout::open(&shared, &mut restored, tree)?;
    changed.map_or(Ok(()), |text| shared.files.write_home_file(SETTINGS_NAME, &text))?;
    leaving.give_up_index()?;
    let from_floor = logs.iter().copied().filter(|number| *number >= restored.log_floor);
    let live: Vec<_> = from_floor.collect();
    let fast_cache = FastCache::open(&shared, &*environment.devices);
    let parts = Parts { shared, store, layout, fast_cache, restored, region };
    let (engine, is_written) = match access {
        Access::Read => (parts.into_read(&live)?, false),
        Access::Write => parts.into_written(&logs, &live, leaving.is_all())?,
    };
    if is_written {
        leaving.give_up_region(environment, &engine.shared.files)?;
    }
    let engine = Arc::new(engine);
    engine.shared.files.opened();
    engine.versions.tables().manifest.opened();
    let planner: Arc<dyn Planner> = Arc::new(Background(Arc::clone(&engine)));
    let Shared { jobs, settings, .. } = &*engine.shared;
    let own = if engine.layout.locator().begin() { &LANES[..] } else { &LANES[..2] };
    jobs.start(&planner, own, settings.background_threads)?;
    Ok(Opened { engine, planner, is_written })
}

/// What the newest manifest says, or a fresh one, once the files are those that it names.
fn restored(store: &Arc<TableStore>, settings: &Settings, access: Access) -> Result<Restored> {
    let files = &store.files;
    let mut restored = match (restore(store)?, access) {
        (Some(restored), _) => restored,
        (None, Access::Read) => Restored::in_memory(files)?,
        (None, Access::Write) => Restored::new(files)?,
    };
    // What names files and records lies on the fast tier, so it is kept short there.
    restored.manifest.keep_short(settings.manifest_bytes());
    files.set_map_room_bytes(settings.map_bytes());
    require_files(store, &restored)?;
    if access == Access::Write {
        remove_leftovers(store, &restored)?;
    }
    Ok(restored)
}

/// What an opening has before the logs are replayed.
struct Parts {
    shared: Arc<Shared>,
    store: Arc<TableStore>,
    layout: OpenedLayout,
    fast_cache: Option<Arc<FastCache>>,
    restored: Restored,
    region: Option<OpenedRegion>,
}

/// What the next record goes to.
enum Destination {
    /// Beside which a region may hold an index.
    Log(Arc<LogFile>, Option<Arc<Arenas>>),
    Arena(Arc<Arenas>, Arc<Arena>),
}

impl Parts {
    /// The engine of a store that is written, and whether it may be: there may be no room for what
    /// `live`, those of `logs` from the floor on, have. Where the region is left behind, what is
    /// written next goes to a log.
    fn into_written(
        mut self,
        logs: &[FileNumber],
        live: &[FileNumber],
        leaves_region: bool,
    ) -> Result<(Engine, bool)> {
        let mut region = self.region.take();
        let (shared, restored) = (&self.shared, &self.restored);
        let flushed = restored.last_sequence;
        let recovered = replay_logs(shared, &self.layout, live, region.as_ref(), flushed)?;
        require_durable(&recovered.replayed, restored.durable_sequence)?;
        if let Some(region) = &mut region {
            region.free_unused(restored.log_floor);
        }
        let of_store = region.as_ref().filter(|_| !leaves_region);
        let arenas = of_store.map(|region| Arc::new(Arenas::new(shared, region)));
        let has_log = arenas.as_ref().is_none_or(|arenas| arenas.is_beside_log());
        let destination = match arenas {
            Some(arenas) if !has_log => {
                let first = recovered.replayed.last_sequence.next();
                let arena = arenas.make_fitting(first, 0)?;
                Destination::Arena(arenas, arena)
            }
            beside => {
                let Shared { files, settings, .. } = &**shared;
                Destination::Log(make_log(files, settings, None, 0, Origin::Recovery)?, beside)
            }
        };
        let engine = self.assemble(&recovered.replayed, destination);
        let old_arenas = region.map_or(Vec::new(), |region| region.arenas);
        let has_arenas = !old_arenas.is_empty();
        let settled = engine.settle_logs(recovered, logs, live, has_arenas);
        // Openings that fail must not fill a region; a log that stays is in nothing's way.
        let give_up = || {
            if !has_log {
                engine.give_up_generation()
            }
        };
        let is_written = settled.inspect_err(|_| give_up())?;
        if is_written {
            old_arenas.iter().for_each(Arena::free);
        }
        Ok((engine, is_written))
    }

    /// The engine of a store that is only read: what the logs `live` have stays in memory, and so
    /// does the log that nothing is written to.
    fn into_read(self, live: &[FileNumber]) -> Result<Engine> {
        let (shared, restored) = (&self.shared, &self.restored);
        let flushed = restored.last_sequence;
        let replayed = replay_in_memory(shared, live, self.region.as_ref(), flushed)?;
        require_durable(&replayed, restored.durable_sequence)?;
        let log = log_in_memory(&shared.files, &shared.settings)?;
        shared.latch.set_opened_read_only(shared.files.home());
        let engine = self.assemble(&replayed, Destination::Log(log, None));
        engine.versions.replace_active(replayed.memtable.unwrap_or_default());
        Ok(engine)
    }

    /// Puts the parts together, with what the logs had `replayed`; `to` is for the next record.
    fn assemble(self, replayed: &Replayed, to: Destination) -> Engine {
        let Self { shared, store, layout, fast_cache, restored, region: _ } = self;
        let last_sequence = replayed.last_sequence;
        let version = Version {
            active: Arc::new(Memtable::new()),
            frozen: Vec::new(),
            levels: Arc::new(restored.levels),
            ended_load: Sequence::ZERO,
        };
        shared.begin();
        let tables = TableSet {
            manifest: restored.manifest,
            claims: Claims::default(),
            log_floor: restored.log_floor,
            last_sequence,
            durable_sequence: restored.durable_sequence,
        };
        let log_pool = Arc::new(LogPool::new(Arc::clone(&shared)));
        let of_front = match &to {
            Destination::Log(..) => Arc::clone(&log_pool) as _,
            Destination::Arena(arenas, _) => Arc::clone(arenas) as _,
        };
        let mut followers = vec![layout.follower(), of_front];
        followers.extend(fast_cache.iter().map(|cache| Arc::clone(cache) as _));
        let versions = Versions::new(Arc::clone(&shared), store, version, tables, followers);
        let versions = Arc::new(versions);
        let layout = layout.over(&shared, &versions);
        let reader = Arc::new(Reader::new(&shared, &versions, &layout));
        let locks = Arc::new(Locks::new(&shared.clock));
        let front = match to {
            Destination::Log(log, beside) => {
                let logged = Logged::new(&shared, &versions, log_pool, log, &locks, beside);
                Front::with_log(logged)
            }
            Destination::Arena(arenas, arena) => {
                Front::with_region(Persistent::new(&shared, &versions, &arenas, arena, &locks))
            }
        };
        let requests = Requests::new(&shared, &versions, &reader, &locks, &front);
        let migrations = Migrations::new(&shared, &versions);
        let engine = Engine {
            shared,
            versions,
            layout,
            fast_cache,
            reader,
            front,
            requests,
            mended: replayed.mended.clone(),
            migrations: Arc::new(migrations),
            transactions: 0.into(),
            locks,
        };
        engine.versions.levels_changed(&engine.versions.tables());
        engine
    }
}
