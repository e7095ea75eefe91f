//! What a database stands on, and its opening.
//!
//! The one place where the parts are wired together: devices, namespace, cache, manifest, logs,
//! memtables and background jobs become an engine here, and nowhere else. What is done to the files
//! meanwhile is in `engine/restore.rs`. An opening for reading only differs in the parts that it is
//! put together from: its log, its replayed records and a manifest that must be made are in memory,
//! and the latch is set before the first write.

use crate::db::Db;
use crate::engine::Engine;
use crate::engine::background::Background;
use crate::engine::restore::{
    numbers_of, remove_leftovers, replay_in_memory, replay_logs, require_durable, require_files,
    require_floor, restore,
};
use crate::error::{Error, ErrorKind, Result};
use crate::front::Front;
use crate::front::Logged;
use crate::front::log_pool::{LogPool, log_in_memory, make_log};
use crate::front::replay::Replayed;
use crate::generations::log_file::LogFile;
use crate::generations::memtable::Memtable;
use crate::jobs::{Jobs, Planner, Workers};
use crate::layout::OpenedLayout;
use crate::layout::hybrid::records::packing::packing_is_named;
use crate::read::Reader;
use crate::settings::{Preset, SETTINGS_NAME, Settings};
use crate::shared::Shared;
use crate::table_set::TableSet;
use crate::table_set::claims::Claims;
use crate::table_set::restored::Restored;
use crate::table_set::table::{ObsoleteFiles, TableStore};
use crate::versions::{Version, Versions};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{
    Devices, FileKind, Origin, Placement, SystemDevices, TierSpec, TieredFiles,
};
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::{ByteSize, Clock, FileNumber, Sequence, SystemClock};
use thermocline_table::BlockCache;

/// What a database is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Access {
    /// What the files were opened for.
    fn of(files: &TieredFiles) -> Self {
        if files.is_read_only() { Self::Read } else { Self::Write }
    }
}

fn settings_are_missing(home: &Path) -> Error {
    let text = format!(
        "{} is missing: put it back from a backup or a checkpoint, or open the database with \
         settings that name its preset (Db::open_with, --config)",
        home.join(SETTINGS_NAME).display()
    );
    Error::new(ErrorKind::NotFound, text)
}

/// What a database stands on: replaced in tests and simulations.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Where homes and tiers are.
    pub devices: Arc<dyn Devices>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Who does the background work.
    pub workers: Workers,
}

impl Default for Environment {
    /// This machine.
    fn default() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let devices = Arc::new(SystemDevices::new(Arc::clone(&clock)));
        Self { devices, clock, workers: Workers::Threads }
    }
}

impl Environment {
    /// There is a database at `home`.
    pub fn exists(&self, home: &Path) -> Result<bool> {
        Ok(TieredFiles::exists(&*self.devices, home)?)
    }

    /// Makes a database at `home`. Leaves nothing behind when it fails.
    pub fn create(&self, home: &Path, settings: &Settings) -> Result<Db> {
        settings.check()?;
        let mut settings = settings.clone();
        let tiers = self.tiers(home, &mut settings)?;
        settings.preset = Some(settings.preset());
        let placement = settings.placement();
        let kept = settings.to_kept_toml()?;
        let texts = [(SETTINGS_NAME, &kept[..])];
        let (devices, policy) = (&*self.devices, Arc::clone(&placement));
        let files = TieredFiles::create_with_texts(devices, home, &tiers, policy, &texts)?;
        let files = Arc::new(files);
        self.start(&files, settings, placement, None).inspect_err(|_| {
            // The namespace exists but holds nothing; a second attempt must find a clean place.
            if let Err(error) = files.abandon(&*self.devices) {
                tracing::warn!(%error, "a half-made database could not be removed");
            }
        })
    }

    /// Opens the database at `home` with the settings it keeps. Where no tier has room for what its
    /// logs have it can be read, and its statistics say why it is read-only.
    pub fn open(&self, home: &Path) -> Result<Db> {
        self.open_as(home, None, Access::Write)
    }

    /// As [`Db::open_with`]: with other settings, which are kept from then on.
    pub fn open_with(&self, home: &Path, settings: &Settings) -> Result<Db> {
        self.open_as(home, Some(settings), Access::Write)
    }

    /// As [`Db::open_read_only`].
    pub fn open_read_only(&self, home: &Path) -> Result<Db> {
        self.open_as(home, None, Access::Read)
    }

    /// As [`Db::open_read_only`] with other settings, which hold for this opening: where tiers are
    /// mounted elsewhere, or memory is scarce.
    pub fn open_read_only_with(&self, home: &Path, settings: &Settings) -> Result<Db> {
        self.open_as(home, Some(settings), Access::Read)
    }

    /// As [`Db::kept_settings`].
    pub fn kept_settings(&self, home: &Path) -> Result<Settings> {
        let (kept, _) = self.read_settings(home)?;
        kept.ok_or_else(|| settings_are_missing(home))
    }

    /// The settings that the database at `home` keeps, and the text that they were read from; none
    /// where the file is gone.
    fn read_settings(&self, home: &Path) -> Result<(Option<Settings>, Option<String>)> {
        let text = TieredFiles::read_home_file(&*self.devices, home, SETTINGS_NAME)?;
        let origin = home.join(SETTINGS_NAME);
        let read = text.as_ref().map(|text| Settings::from_toml(text, &origin));
        let mut kept = read.transpose()?;
        // DATABASE has the tiers; a crash can come between two files that both have them.
        if kept.as_mut().is_some_and(|kept| !std::mem::take(&mut kept.tiers).is_empty()) {
            let file = origin.display();
            tracing::warn!(%file, "the tiers in it are ignored; name tiers when opening");
        }
        Ok((kept, text))
    }

    fn open_as(&self, home: &Path, given: Option<&Settings>, access: Access) -> Result<Db> {
        let (kept, text) = self.read_settings(home)?;
        let is_guessed = kept.is_none() && given.is_none_or(|given| given.preset.is_none());
        let kept = kept.unwrap_or_default();
        let mut settings = given.unwrap_or(&kept).clone();
        settings.preset = Some(settings.preset_over(&kept));
        settings.check()?;
        let moved = (!settings.tiers.is_empty()).then(|| settings.tier_specs());
        settings.tiers.clear();
        let placement = settings.placement();
        let files = TieredFiles::open(
            &*self.devices,
            home,
            moved.as_deref(),
            Arc::clone(&placement),
            access == Access::Read,
        )?;
        if is_guessed && !numbers_of(&files, |kind| kind == FileKind::Slab).is_empty() {
            // What is guessed is the preset of old, which leaves slabs unread.
            return Err(settings_are_missing(home));
        }
        let changed = settings != kept || !packing_is_named(&settings, text.as_deref());
        let changed =
            (changed && access == Access::Write).then(|| settings.to_kept_toml()).transpose()?;
        let specs = files.tiers().iter().map(|tier| tier.spec());
        settings.tiers = specs
            .map(|spec| crate::Tier::new(&spec.path, spec.capacity).driver(&spec.driver))
            .collect();
        self.start(&Arc::new(files), settings, placement, changed)
    }

    /// Opens the database at `home`, making it where there is none.
    pub fn open_or_create(&self, home: &Path, settings: &Settings) -> Result<Db> {
        if self.exists(home)? {
            self.open_with(home, settings)
        } else {
            self.create(home, settings)
        }
    }

    /// The tiers asked for, or one in the home that may fill its disk.
    fn tiers(&self, home: &Path, settings: &mut Settings) -> Result<Vec<TierSpec>> {
        if settings.tiers.is_empty() {
            settings.tiers = vec![crate::Tier::new(home.join("tier-0"), ByteSize(1 << 60))];
        }
        Ok(settings.tier_specs())
    }

    /// From an open namespace to a running engine; `changed` settings are kept unless refused.
    fn start(
        &self,
        files: &Arc<TieredFiles>,
        settings: Settings,
        placement: Arc<dyn Placement>,
        changed: Option<String>,
    ) -> Result<Db> {
        let cache = Arc::new(BlockCache::new(settings.division().cache_bytes));
        let store = Arc::new(TableStore {
            files: Arc::clone(files),
            cache: Arc::clone(&cache),
            obsolete: ObsoleteFiles::default(),
            jobs: Arc::new(Jobs::new(&self.workers)),
        });
        let access = Access::of(files);
        let mut restored = match (restore(&store)?, access) {
            (Some(restored), _) => restored,
            (None, Access::Read) => Restored::in_memory(files)?,
            (None, Access::Write) => Restored::new(files)?,
        };
        if settings.preset() == Preset::Hybrid {
            restored.manifest.keep_short(settings.manifest_bytes());
            files.set_map_compact_bytes_min(settings.map_bytes());
        }
        require_files(&store, &restored)?;
        if access == Access::Write {
            remove_leftovers(&store, &restored)?;
        }
        let (clock, jobs) = (Arc::clone(&self.clock), Arc::clone(&store.jobs));
        let totals_before = std::mem::take(&mut restored.totals);
        let files = Arc::clone(files);
        let shared = Shared::new(settings, clock, files, placement, cache, jobs, totals_before);
        let shared = Arc::new(shared);
        let layout = OpenedLayout::open(&shared, &mut restored)?;
        let files = &shared.files;
        changed.map_or(Ok(()), |text| files.write_home_file(SETTINGS_NAME, &text))?;
        let logs = numbers_of(files, |kind| kind == FileKind::Log);
        require_floor(&logs, restored.log_floor)?;
        let live: Vec<_> =
            logs.iter().copied().filter(|number| *number >= restored.log_floor).collect();
        let opened = Opened { shared, store, layout, restored };
        let (engine, is_written) = match access {
            Access::Read => (opened.into_read(&live)?, false),
            Access::Write => opened.into_written(&logs, &live)?,
        };
        let engine = Arc::new(engine);
        let shared = &engine.shared;
        let planner: Arc<dyn Planner> = Arc::new(Background(Arc::clone(&engine)));
        shared.jobs.start(&planner, shared.settings.background_threads)?;
        Ok(Db::of(engine, planner, &self.devices, is_written))
    }
}

/// What an opening has before the logs are replayed.
struct Opened {
    shared: Arc<Shared>,
    store: Arc<TableStore>,
    layout: OpenedLayout,
    restored: Restored,
}

impl Opened {
    /// The engine of a store that is written, and whether it may be: there may be no room for what
    /// `live`, those of `logs` from the floor on, have.
    fn into_written(self, logs: &[FileNumber], live: &[FileNumber]) -> Result<(Engine, bool)> {
        let (shared, restored) = (&self.shared, &self.restored);
        let recovered = replay_logs(shared, &self.layout, live, restored.last_sequence)?;
        require_durable(&recovered.replayed, restored.durable_sequence)?;
        let log = make_log(&shared.files, &shared.settings, None, Origin::Recovery)?;
        let engine = self.assemble(&recovered.replayed, log);
        let is_written = engine.settle_logs(recovered, logs, live)?;
        Ok((engine, is_written))
    }

    /// The engine of a store that is only read: what the logs `live` have stays in memory, and so
    /// does the log that nothing is written to.
    fn into_read(self, live: &[FileNumber]) -> Result<Engine> {
        let (shared, restored) = (&self.shared, &self.restored);
        let replayed = replay_in_memory(shared, live, restored.last_sequence)?;
        require_durable(&replayed, restored.durable_sequence)?;
        let log = log_in_memory(&shared.files, &shared.settings)?;
        shared.latch.set_opened_read_only(shared.files.home());
        let engine = self.assemble(&replayed, log);
        engine.versions.replace_active(replayed.memtable.unwrap_or_default());
        Ok(engine)
    }

    /// Puts the parts together, with what the logs had `replayed`; `log` is for the next record.
    fn assemble(self, replayed: &Replayed, log: Arc<LogFile>) -> Engine {
        let Self { shared, store, layout, restored } = self;
        let last_sequence = replayed.last_sequence;
        let version = Version {
            active: Arc::new(Memtable::new()),
            frozen: Vec::new(),
            levels: Arc::new(restored.levels),
            ended_load: Sequence::ZERO,
        };
        shared.begin();
        let log_pool = Arc::new(LogPool::new(Arc::clone(&shared)));
        let tables = TableSet {
            manifest: restored.manifest,
            claims: Claims::default(),
            log_floor: restored.log_floor,
            last_sequence,
            durable_sequence: restored.durable_sequence,
        };
        let followers = vec![layout.follower(), Arc::clone(&log_pool) as _];
        let versions = Versions::new(Arc::clone(&shared), store, version, tables, followers);
        let versions = Arc::new(versions);
        let layout = layout.over(&shared, &versions);
        let reader = Reader {
            shared: Arc::clone(&shared),
            versions: Arc::clone(&versions),
            layout: layout.clone(),
        };
        let front = Logged::new(&shared, &versions, log_pool, log);
        let engine = Engine {
            shared,
            versions,
            layout,
            reader: Arc::new(reader),
            front: Front::with_log(front),
            mended: replayed.mended.clone(),
            migrating: AtomicBool::new(false),
        };
        engine.versions.levels_changed(&engine.versions.tables());
        engine
    }
}
