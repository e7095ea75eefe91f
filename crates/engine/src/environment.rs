//! What a database stands on, and its opening.
//!
//! The one place where the parts are wired together: devices, namespace, cache, manifest, logs,
//! memtables and background jobs become an engine here, and nowhere else. What is done to the files
//! meanwhile is in `recovery.rs`.

use crate::background::{Background, table_options_of};
use crate::compaction::pacing::Pacing;
use crate::compaction::tempo::Tempo;
use crate::db::Db;
use crate::error::{Error, ErrorKind, Latch, Result};
use crate::front::memtable::Memtable;
use crate::front::slabs::FastTier;
use crate::front::slabs::packing::packing_is_named;
use crate::jobs::{Jobs, Planner, Workers};
use crate::make_log::make_log;
use crate::manifest::Manifest;
use crate::recovery::{
    Replay, Replayed, Restored, numbers_of, reconcile, require_durable, require_floor, restore,
};
use crate::settings::{Preset, Settings};
use crate::snapshot::Snapshots;
use crate::state::{Engine, LogPool, ReadState, TableState, full_state};
use crate::table_set::levels::Levels;
use crate::table_set::table::{Graveyard, TableStore};
use crate::totals::{Metrics, Totals};
use crate::write_path::{Leader, LogTail, WriteQueue};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{
    Devices, FileKind, Origin, Placement, SystemDevices, TierSpec, TieredFiles,
};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64};
use thermocline_foundation::sync::{ArcSwap, Condvar, Mutex};
use thermocline_foundation::{ByteSize, Clock, FileNumber, Sequence, SystemClock};
use thermocline_slab::LiveSlots;
use thermocline_table::BlockCache;

/// The file of settings in a database's home.
pub(crate) const SETTINGS_NAME: &str = "settings.toml";

/// What a database is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
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
            cache,
            graveyard: Graveyard::default(),
            jobs: Arc::new(Jobs::new(&self.workers)),
        });
        let mut restored = match restore(&store)? {
            Some(restored) => restored,
            None => {
                let (levels, slots) = (Levels::default(), LiveSlots::default());
                let state = full_state(&levels, &slots, FileNumber(0), Sequence::ZERO);
                Restored {
                    manifest: Manifest::create(files, &state, Origin::Foreground)?,
                    levels,
                    slots,
                    log_floor: FileNumber(0),
                    last_sequence: Sequence::ZERO,
                    totals: Totals::default(),
                    durable_sequence: Sequence::ZERO,
                }
            }
        };
        if settings.preset() == Preset::Hybrid {
            restored.manifest.keep_short(settings.manifest_bytes());
            files.set_map_compact_bytes_min(settings.map_bytes());
        }
        reconcile(&store, &restored.levels, &restored.slots)?;
        let (clock, workers) = (&self.clock, &self.workers);
        let fast = FastTier::of_preset(&store, &settings, &mut restored, clock, workers)?;
        changed.map_or(Ok(()), |text| files.write_home_file(SETTINGS_NAME, &text))?;
        let logs = numbers_of(files, |kind| kind == FileKind::Log);
        require_floor(&logs, restored.log_floor)?;
        let live: Vec<_> =
            logs.iter().copied().filter(|number| *number >= restored.log_floor).collect();
        let replay = Replay {
            files,
            options: table_options_of(&settings, 0),
            memtable_bytes: (fast.is_none() && !files.is_read_only())
                .then(|| settings.division().memtable_bytes),
        };
        let replayed = replay.run(&live, restored.last_sequence)?;
        require_durable(&replayed, restored.durable_sequence)?;
        let engine = self.assemble(store, fast, settings, placement, restored, &replayed)?;
        let engine = Arc::new(engine);
        let is_written = engine.settle_logs(replayed, &logs, &live)?;
        let planner: Arc<dyn Planner> = Arc::new(Background(Arc::clone(&engine)));
        engine.jobs.start(&planner, engine.settings.background_threads)?;
        Ok(Db::of(engine, planner, &self.devices, is_written))
    }

    fn assemble(
        &self,
        store: Arc<TableStore>,
        fast: Option<FastTier>,
        settings: Settings,
        placement: Arc<dyn Placement>,
        restored: Restored,
        replayed: &Replayed,
    ) -> Result<Engine> {
        let last_sequence = replayed.last_sequence;
        let memtable = Arc::new(Memtable::new());
        let levels = Arc::new(restored.levels);
        let read_state = ReadState {
            active: Arc::clone(&memtable),
            frozen: Vec::new(),
            levels: Arc::clone(&levels),
            ended_load: Sequence::ZERO,
        };
        let (slowdown, stop) = (settings.level0_slowdown, settings.level0_stop);
        let delay_max = settings.delay_max.0;
        let pacing = Pacing::new(Arc::clone(&self.clock), slowdown, stop, delay_max);
        let files = Arc::clone(&store.files);
        let log = make_log(&files, &settings, None, Origin::Recovery)?;
        let jobs = Arc::clone(&store.jobs);
        let tail = LogTail::new(Arc::clone(&log));
        let engine = Engine {
            settings,
            clock: Arc::clone(&self.clock),
            files,
            store,
            fast,
            placement,
            read_state: ArcSwap::from_pointee(read_state),
            switching: Mutex::new(()),
            visible: AtomicU64::new(last_sequence.0),
            snapshots: Arc::new(Snapshots::default()),
            latch: Latch::default(),
            jobs,
            pacing,
            tempo: Tempo::new(Arc::clone(&self.clock)),
            metrics: Metrics::opened_at(self.clock.now_ns()),
            totals_before: restored.totals,
            queue: WriteQueue::default(),
            leader: Mutex::new(Leader { last_sequence, memtable, log }),
            tail: Mutex::new(tail),
            logs: Mutex::new(LogPool::new()),
            tables: Mutex::new(TableState {
                manifest: restored.manifest,
                claims: Vec::new(),
                slots: restored.slots,
                ranges: Vec::new(),
                claimants: 0,
                log_floor: restored.log_floor,
                last_sequence,
                durable_sequence: restored.durable_sequence,
            }),
            room: Condvar::new(),
            unsynced_bytes: AtomicU64::new(0),
            sync_wanted: AtomicBool::new(false),
            placement_changed: AtomicBool::new(true),
            migrating: AtomicBool::new(false),
        };
        engine.levels_changed(&levels);
        Ok(engine)
    }
}
