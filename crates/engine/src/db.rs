//! The database as its users hold it: opening and closing, and every operation on records.
//!
//! The one place where the parts are wired together: devices, namespace, cache, manifest, logs,
//! memtables and background jobs become an engine here, and nowhere else.

use crate::background::{Background, Progress, table_options_of};
use crate::batch::{WriteBatch, check_sizes};
use crate::builder::Builder;
use crate::compaction::pacing::Pacing;
use crate::compaction::tempo::Tempo;
use crate::error::{Error, ErrorKind, Latch, Result};
use crate::front::memtable::Memtable;
use crate::front::slabs::FastTier;
use crate::front::slabs::packing::packing_is_named;
use crate::ingest::Ingest;
use crate::iterator::{Cursor, Records, ScanRange};
use crate::jobs::{Jobs, Planner, Workers};
use crate::manifest::{Edit, Manifest};
use crate::recovery::{
    Replay, Replayed, Restored, numbers_of, reconcile, require_durable, require_floor, restore,
};
use crate::settings::{Durability, Preset, Settings};
use crate::snapshot::{Snapshot as RegisteredSnapshot, Snapshots};
use crate::state::{Engine, LogPool, ReadState, TableState, full_state};
use crate::stats::Stats;
use crate::table_set::levels::Levels;
use crate::table_set::table::{Graveyard, TableStore};
use crate::totals::{Metrics, Totals};
use crate::verify::VerifyReport;
use crate::write_path::{Leader, LogTail, WriteQueue};
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{
    Devices, FileKind, Origin, Placement, SystemDevices, TierSpec, TieredFiles,
};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64};
use thermocline_foundation::sync::{ArcSwap, Condvar, Mutex};
use thermocline_foundation::{
    ByteSize, Clock, FileNumber, Planted, Sequence, SystemClock, planted,
};
use thermocline_slab::LiveSlots;
use thermocline_table::BlockCache;

/// The file of settings in a database's home.
pub(crate) const SETTINGS_NAME: &str = "settings.toml";

/// An open database. Clones share it; the last one to go closes it.
#[derive(Clone, Debug)]
pub struct Db {
    inner: Arc<Open>,
}

/// What ends when the last handle goes.
#[derive(Debug)]
struct Open {
    engine: Arc<Engine>,
    /// Keeps the planner alive, which the workers hold weakly.
    _planner: Arc<dyn Planner>,
    devices: Arc<dyn Devices>,
    closed: AtomicBool,
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

    /// Opens the database at `home` with the settings it keeps.
    pub fn open(&self, home: &Path) -> Result<Db> {
        self.open_changed(home, |settings| settings)
    }

    /// As [`Db::open_with`]: with other settings, which are kept from then on.
    pub fn open_with(&self, home: &Path, settings: &Settings) -> Result<Db> {
        self.open_changed(home, |_| settings.clone())
    }

    fn open_changed(&self, home: &Path, change: impl FnOnce(Settings) -> Settings) -> Result<Db> {
        let text = TieredFiles::read_home_file(&*self.devices, home, SETTINGS_NAME)?;
        let origin = home.join(SETTINGS_NAME);
        let read = text.as_ref().map(|text| Settings::from_toml(text, &origin));
        let mut kept = read.transpose()?.unwrap_or_default();
        // DATABASE has the tiers; a crash can come between two files that both have them.
        if !std::mem::take(&mut kept.tiers).is_empty() {
            let file = origin.display();
            tracing::warn!(%file, "the tiers in it are ignored; name tiers when opening");
        }
        let mut settings = change(kept.clone());
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
            false,
        )?;
        let changed = settings != kept || !packing_is_named(&settings, text.as_deref());
        let changed = changed.then(|| settings.to_kept_toml()).transpose()?;
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
        let (clock, workers) = (&*self.clock, &self.workers);
        let fast = FastTier::of_preset(&store, &settings, &mut restored, clock, workers)?;
        changed.map_or(Ok(()), |text| files.write_home_file(SETTINGS_NAME, &text))?;
        let logs = numbers_of(files, |kind| kind == FileKind::Log);
        require_floor(&logs, restored.log_floor)?;
        let live: Vec<_> =
            logs.iter().copied().filter(|number| *number >= restored.log_floor).collect();
        let replay = Replay {
            files,
            options: table_options_of(&settings, 0),
            memtable_bytes: fast.is_none().then(|| settings.division().memtable_bytes),
        };
        let mut replayed = replay.run(&live, restored.last_sequence)?;
        require_durable(&replayed, restored.durable_sequence)?;
        let engine = self.assemble(store, fast, settings, placement, restored, &replayed)?;
        let engine = Arc::new(engine);
        let edit = Edit {
            added: std::mem::take(&mut replayed.added).into_iter().map(|meta| (0, meta)).collect(),
            log_floor: Some(engine.leader.lock().log.number),
            ..Edit::default()
        };
        if planted(Planted::RecoveryDeletesLogsFirst) {
            files.delete_files(&logs)?;
        }
        engine.settle_replayed(&live, replayed.memtable.take().unwrap_or_default(), edit)?;
        if !planted(Planted::RecoveryDeletesLogsFirst) {
            files.delete_files(&logs)?;
        }
        let planner: Arc<dyn Planner> = Arc::new(Background(Arc::clone(&engine)));
        engine.jobs.start(&planner, engine.settings.background_threads)?;
        let devices = Arc::clone(&self.devices);
        let open = Open { engine, _planner: planner, devices, closed: AtomicBool::new(false) };
        Ok(Db { inner: Arc::new(open) })
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
        let log = crate::state::make_log(&files, &settings, None, Origin::Recovery)?;
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

impl Db {
    /// Settings put together call by call, then a database.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// There is a database at `home`.
    pub fn exists(home: impl AsRef<Path>) -> Result<bool> {
        Environment::default().exists(home.as_ref())
    }

    /// Makes a database at `home`; an error of kind `AlreadyExists` where there is one.
    pub fn create(home: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        Environment::default().create(home.as_ref(), settings)
    }

    /// Opens the database at `home` with the tiers and settings it keeps; an error of kind
    /// `NotFound` where there is none.
    pub fn open(home: impl AsRef<Path>) -> Result<Self> {
        Environment::default().open(home.as_ref())
    }

    /// As [`Db::open`] with other settings. Tiers may be left empty, or name the same tiers at
    /// other paths; where no preset is named, the database goes on with its own.
    pub fn open_with(home: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        Environment::default().open_with(home.as_ref(), settings)
    }

    /// Opens the database at `home`, making it where there is none.
    pub fn open_or_create(home: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        Environment::default().open_or_create(home.as_ref(), settings)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// The value of `key`, sharing the memory of the block or memtable it lies in.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.engine().get(key.as_ref(), None)
    }

    /// The values of `keys` in their order, as of one moment. What must be read from tables is read
    /// in batches, on all tiers at once.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        self.engine().multi_get(&keys, None)
    }

    /// Sets `key` to `value` with the durability of the settings. Keys have up to 64 KiB, values up
    /// to 256 MiB.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_sizes(key, value.len())?;
        let mut batch = WriteBatch::with_room(key.len() + value.len());
        batch.put(key, value);
        self.write(batch)
    }

    /// Removes `key`; removing what is not there is no error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        let mut batch = WriteBatch::with_room(key.len().min(crate::KEY_BYTES_MAX));
        batch.delete(key);
        self.write(batch)
    }

    /// Applies a batch, all of it or nothing, with the durability of the settings.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, self.engine().settings.durability)
    }

    /// Applies a batch with a durability of its own.
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let (encoded, count) = batch.freeze()?;
        if count == 0 {
            return Ok(());
        }
        self.engine().write(encoded, count, durability)
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.engine().sync()
    }

    /// A scan over all records, to be narrowed down: `db.scan().prefix("user/").limit(10)`.
    pub fn scan(&self) -> Scan {
        Scan::new(Arc::clone(self.engine()), None)
    }

    /// A cursor over all records, as of now.
    pub fn cursor(&self) -> Cursor {
        let engine = self.engine();
        engine.cursor(&ScanRange::all(), engine.snapshot(), 0)
    }

    /// The database as of now, for as long as it is held.
    pub fn snapshot(&self) -> Snapshot {
        let engine = Arc::clone(self.engine());
        let registered = engine.snapshot();
        Snapshot { engine, registered }
    }

    /// Writes everything in memory to tables.
    pub fn flush(&self) -> Result<()> {
        self.engine().flush()
    }

    /// Merges the records of `from..=to` (none: open) into the deepest level in use, dropping what
    /// nobody can see.
    pub fn compact_range(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        self.engine().compact_range(from, to, progress)
    }

    /// Waits until background work has nothing left to do; an error where it ended before that.
    pub fn settle(&self) -> Result<()> {
        self.engine().settle()
    }

    /// Makes `dir` a database of its own with the records of now. Tables are linked where `dir` is
    /// on the file system of their tier, and copied elsewhere.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.engine().checkpoint(&*self.inner.devices, dir.as_ref())
    }

    /// Begins a bulk load of records in ascending key order, past log and memtable.
    pub fn ingest(&self) -> Ingest {
        Ingest::new(Arc::clone(self.engine()))
    }

    /// Reads every byte of the database and checks it.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.engine().verify(progress)
    }

    /// The state of the database.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.engine().settings
    }

    /// Closes the database and says whether all went well. Other handles to it fail to write from
    /// then on; dropping the last handle closes too, but can only log an error.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl Open {
    fn close(&self) -> Result<()> {
        if self.closed.swap(true, thermocline_foundation::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        let engine = &self.engine;
        let healthy = engine.latch.check();
        let kept = healthy.and_then(|()| engine.keep_totals());
        // Sends away whoever waits for background work, which is about to end.
        engine.fail(&Error::new(ErrorKind::ReadOnly, "the database is closed"));
        engine.jobs.stop();
        let sealed = kept.and_then(|()| engine.seal_logs());
        let manifest = engine.tables.lock().manifest.extent();
        engine.files.close(&[(FileKind::Manifest, manifest)])?;
        sealed
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the database failed");
        }
    }
}

/// The database as of one moment. Holding it keeps compactions from dropping versions that it sees.
#[derive(Clone, Debug)]
pub struct Snapshot {
    engine: Arc<Engine>,
    registered: RegisteredSnapshot,
}

impl Snapshot {
    /// The newest sequence that the snapshot sees.
    pub fn sequence(&self) -> Sequence {
        self.registered.sequence()
    }

    /// The value of `key` at that moment.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let newest = planted(Planted::SnapshotReadsNewest);
        self.engine.get(key.as_ref(), (!newest).then(|| self.sequence()))
    }

    /// The values of `keys` at that moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        self.engine.multi_get(&keys, Some(self.sequence()))
    }

    /// A scan of that moment.
    pub fn scan(&self) -> Scan {
        Scan::new(Arc::clone(&self.engine), Some(self.registered.clone()))
    }

    /// A cursor over that moment.
    pub fn cursor(&self) -> Cursor {
        self.engine.cursor(&ScanRange::all(), self.registered.clone(), 0)
    }
}

/// Bytes that a record is taken to have when a limit sizes the first read of a scan.
const RECORD_BYTES_GUESS: u64 = 1 << 10;
/// First read of a scan at most, in bytes; read-ahead grows from there.
const FIRST_READ_BYTES_MAX: u64 = 256 << 10;

/// A scan being described; iterate over it to run it.
#[derive(Debug)]
pub struct Scan {
    engine: Arc<Engine>,
    snapshot: Option<RegisteredSnapshot>,
    range: ScanRange,
    reverse: bool,
    limit: u64,
}

impl Scan {
    fn new(engine: Arc<Engine>, snapshot: Option<RegisteredSnapshot>) -> Self {
        Self { engine, snapshot, range: ScanRange::all(), reverse: false, limit: u64::MAX }
    }

    /// Only keys in `range`, such as `b"a".to_vec()..b"b".to_vec()`.
    pub fn range(mut self, range: impl RangeBounds<Vec<u8>>) -> Self {
        self.range =
            ScanRange { from: range.start_bound().cloned(), to: range.end_bound().cloned() };
        self
    }

    /// Only keys at or after `key`.
    pub fn from(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.range.from = Bound::Included(key.into());
        self
    }

    /// Only keys before `key`.
    pub fn to(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.range.to = Bound::Excluded(key.into());
        self
    }

    /// Only keys that begin with `prefix`; narrows down what was said before.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.range = self.range.with_prefix(prefix.as_ref());
        self
    }

    /// Largest key first.
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// At most `records`. Also sizes the first read.
    pub fn limit(mut self, records: u64) -> Self {
        self.limit = records;
        self
    }
}

impl IntoIterator for Scan {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        let snapshot = self.snapshot.unwrap_or_else(|| self.engine.snapshot());
        let expected = match self.limit {
            u64::MAX => 0,
            limit => limit.saturating_mul(RECORD_BYTES_GUESS).min(FIRST_READ_BYTES_MAX),
        };
        let cursor = self.engine.cursor(&self.range, snapshot, expected as u32);
        Records::new(cursor, self.range, self.reverse, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_device::MemoryDevices;

    /// A background job prepares the next log. A writer who needs one meanwhile makes none of its
    /// own, which would have a number on the wrong side of the other's.
    #[test]
    fn a_writer_waits_for_the_log_that_is_being_prepared() {
        let environment =
            Environment { devices: Arc::new(MemoryDevices::new()), ..Environment::default() };
        let tier = crate::Tier::new("/tier", ByteSize::mib(256)).driver("memory");
        let settings =
            Settings { tiers: vec![tier], memory: ByteSize::mib(8), ..Default::default() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        let engine = db.engine();
        // The background is kept from preparing logs; this thread does that instead.
        loop {
            let mut logs = engine.logs.lock();
            if !logs.making {
                logs.making = true;
                logs.ready = None;
                break;
            }
        }
        db.put("first", "in the log made at the start").unwrap();
        let logs = || {
            let files = engine.files.files().into_iter();
            files.filter(|file| file.kind == FileKind::Log).map(|file| file.number)
        };
        let before = logs().max();
        let rotating = Arc::clone(engine);
        let rotate = move || rotating.rotate(&mut rotating.leader.lock());
        let writer = thermocline_foundation::threads::spawn("writer", rotate).unwrap();
        engine.prepare_log().unwrap();
        writer.join().unwrap().unwrap();
        let next = logs().filter(|number| Some(*number) > before).min();
        assert_eq!(Some(engine.leader.lock().log.number), next);
    }
}
