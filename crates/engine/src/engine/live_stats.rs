//! Figures of an open store for other processes, in a small file of its home.
//!
//! A store is open for writing in one process at a time, and no other can ask it anything. So it
//! writes its statistics to `live-stats.json` about every `stats_interval`, while there is
//! something to tell. `thermocline stats` reads the file where it finds the store locked.
//!
//! ```text
//!   thread "thermocline-stats":  wait -> anything new? -> stats -> JSON -> other name -> rename
//!                                      -> nothing: sleep until something happens (shared/news.rs)
//!   another process:             LiveStats::read
//! ```
//! See docs/formats/live-stats.md.
//!
//! 1. The store never reads the file. A write that fails costs the figures of that moment and
//!    nothing else; a panic ends the thread, not the store.
//! 2. The file is replaced by a rename and never synced: a reader sees it whole, and after a power
//!    cut it may be torn, old or gone.
//! 3. An opening for writing removes what a killed process left, and a closing removes the file.
//!    So where a process has the store open for writing, the figures are those of that process. An
//!    opening for reading only neither writes nor removes the file.
//! 4. The thread exists only beside other threads of the store. Where background work is stepped
//!    (simulations), no device is asked for anything because of this file.
//!
//! Threads: one writes; `start` and `end` belong to the owner of the store; readers are free.

use crate::engine::Engine;
use crate::engine::activity::ActivityStats;
use crate::engine::stats::Stats;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::front::figures::LogStats;
use crate::requests::report::RequestStats;
use crate::shared::news::News;
use crate::shared::totals::Totals;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thermocline_device::TieredFiles;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::threads::{self, JoinHandle};

/// The file, in the home of the store.
pub(crate) const FILE_NAME: &str = "live-stats.json";

/// The version of the format.
const VERSION: u32 = 3;

/// Statistics of a store that a process has open, as that process wrote them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LiveStats {
    /// Which process wrote them, and when.
    pub live: LiveMark,
    /// The statistics of that moment.
    #[serde(flatten)]
    pub stats: Stats,
}

/// What marks figures of an open store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveMark {
    /// The version of the format.
    pub version: u32,
    /// The process that has the store open.
    pub process: u32,
    /// When it wrote the figures, in seconds since 1970.
    pub written_s: u64,
    /// For how long it had had the store open, in seconds.
    pub open_s: f64,
    /// How often it looks for something to tell, in seconds.
    pub interval_s: f64,
}

#[derive(Deserialize)]
struct VersionOnly {
    live: VersionMark,
}

#[derive(Deserialize)]
struct VersionMark {
    version: u32,
}

impl Stats {
    /// The statistics as indented JSON.
    pub fn to_json(&self) -> Result<String> {
        to_json(self)
    }
}

impl LiveStats {
    /// The figures that the process wrote which has the store at `home` open, on this machine's
    /// devices; see [`LiveStats::read_in`].
    pub fn read(home: impl AsRef<Path>) -> Result<Option<Self>> {
        Self::read_in(&Environment::default(), home.as_ref())
    }

    /// The figures that the process wrote which has the store at `home` open. None where there are
    /// none: no process has the store open for writing, or it has had it for less than
    /// `stats_interval`, or that is 0. What was left by a process that was killed stays until the
    /// next opening for writing, so this alone does not say that the store is open;
    /// [`LiveStats::is_open`] does.
    ///
    /// Errors: `NotFound` where there is no database; `Corrupt` where the file is torn;
    /// `NewerFormat` where another version of this software wrote it.
    pub fn read_in(environment: &Environment, home: &Path) -> Result<Option<Self>> {
        let text = TieredFiles::read_home_file(&*environment.devices, home, FILE_NAME)?;
        text.map(|text| Self::from_json(&text)).transpose()
    }

    /// A process has the store at `home` open for writing. Asking takes a reader's lock for a
    /// moment, so an opening for writing at the same time may be refused: to be asked seldom.
    pub fn is_open(home: impl AsRef<Path>) -> Result<bool> {
        Ok(TieredFiles::is_locked(&*Environment::default().devices, home.as_ref())?)
    }

    /// Reads what [`LiveStats::to_json`] wrote.
    pub fn from_json(text: &str) -> Result<Self> {
        let torn = |error: serde_json::Error| {
            Error::corrupt(format!(
                "{FILE_NAME} is not whole ({error}); it is replaced when the store has something \
                 to tell"
            ))
        };
        let VersionOnly { live: VersionMark { version } } =
            serde_json::from_str(text).map_err(torn)?;
        if version != VERSION {
            let text = format!(
                "{FILE_NAME} has format {version}, this software knows {VERSION}: use the version \
                 that has the store open"
            );
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        serde_json::from_str(text).map_err(torn)
    }

    /// The figures as indented JSON: that of [`Stats::to_json`], and the mark as `live`.
    pub fn to_json(&self) -> Result<String> {
        to_json(self)
    }

    /// How long ago they were written, to the second.
    pub fn age(&self, clock: &dyn Clock) -> Duration {
        // The clock of the wall may have been set back meanwhile.
        Duration::from_secs(clock.wall_s().saturating_sub(self.live.written_s))
    }
}

fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map_err(|error| Error::invalid(format!("cannot write statistics as JSON: {error}")))
}

/// The thread that writes the file of an open store.
#[derive(Debug)]
pub(crate) struct LiveWriter {
    files: Arc<TieredFiles>,
    news: Arc<News>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the file says already.
#[derive(Debug, Default)]
struct Told {
    last: Option<(Totals, ActivityStats, RequestStats, LogStats)>,
    has_failed: bool,
}

impl LiveWriter {
    /// Starts the thread, unless the store is only read, background work is stepped or
    /// `stats_interval` is 0. A store without it works as well, so nothing here is an error.
    pub fn start(engine: &Arc<Engine>) -> Option<Self> {
        let files = Arc::clone(&engine.shared.files);
        let interval = engine.shared.settings.stats_interval.0;
        if files.is_read_only() || interval.is_zero() || engine.shared.jobs.are_stepped() {
            return None;
        }
        let news = Arc::clone(&engine.shared.news);
        let (weak, awaited) = (Arc::downgrade(engine), Arc::clone(&news));
        let body = move || {
            let written = threads::catch_panic(|| write_until_ended(&weak, &awaited, interval));
            if let Err(panic) = written {
                tracing::warn!(%panic, "figures for other processes are written no longer");
            }
        };
        match threads::spawn("thermocline-stats", body) {
            Ok(thread) => Some(Self { files, news, thread: Mutex::new(Some(thread)) }),
            Err(error) => {
                tracing::warn!(%error, "no thread for figures for other processes");
                None
            }
        }
    }

    /// Ends the thread and removes the file.
    pub fn end(&self) {
        self.news.end();
        if let Some(thread) = self.thread.lock().take() {
            // The thread catches what panics in it, so this finds nothing to tell.
            drop(thread.join());
        }
        if let Err(error) = self.files.remove_live_file(FILE_NAME) {
            tracing::warn!(%error, "figures of a closed store stay until the next opening");
        }
    }
}

fn write_until_ended(engine: &Weak<Engine>, news: &News, interval: Duration) {
    let mut told = Told::default();
    let mut is_at_rest = false;
    // The pause also after news: a use at rest is told at once, those after it once an interval.
    while if is_at_rest { news.wait() } else { news.pause(interval) } {
        let Some(engine) = engine.upgrade() else { return };
        news.arm();
        let outcome = told.tell(&engine, interval);
        if let Err(error) = &outcome
            && !told.has_failed
        {
            tracing::warn!(%error, "figures for other processes cannot be written");
        }
        told.has_failed = outcome.is_err();
        is_at_rest = matches!(outcome, Ok(false));
    }
}

impl Told {
    /// Writes the figures if they are not those of the file, and says whether it did.
    fn tell(&mut self, engine: &Engine, interval: Duration) -> Result<bool> {
        let activity = engine.activity(&engine.versions.current());
        let requests = engine.requests.stats();
        // While a write is on its way it grows older, so that is told again each time.
        let log = engine.front.log_stats();
        let now = (engine.versions.totals().without_open_time(), activity, requests, log);
        if self.last.as_ref() == Some(&now) {
            return Ok(false);
        }
        let live = LiveMark {
            version: VERSION,
            process: std::process::id(),
            written_s: engine.shared.clock.wall_s(),
            open_s: engine.shared.open_ns() as f64 / 1e9,
            interval_s: interval.as_secs_f64(),
        };
        let mut text = LiveStats { live, stats: engine.stats() }.to_json()?;
        text.push('\n');
        engine.shared.files.write_live_file(FILE_NAME, &text)?;
        self.last = Some(now);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::hooked::{Call, HookedDevices};
    use crate::support::{hybrid, one_tier, stepped, stepped_environment};
    use crate::{Db, Environment, Settings};
    use std::path::PathBuf;
    use thermocline_device::Devices;

    const INTERVAL: Duration = Duration::from_secs(1);

    /// What is asked of the home's device, and an error for it to give instead.
    #[derive(Debug, Default)]
    struct Watch {
        calls: Mutex<Vec<Call>>,
        fails: Mutex<bool>,
    }

    /// A stepped store whose home is watched.
    fn watched() -> (Db, Environment, Arc<Watch>) {
        let (environment, watch) = (stepped_environment(), Arc::new(Watch::default()));
        let seen = Arc::clone(&watch);
        let hook = Arc::new(move |call, path: &Path, name: &str| {
            if path != Path::new("/home") || !name.starts_with(FILE_NAME) {
                return Ok(());
            }
            seen.calls.lock().push(call);
            if *seen.fails.lock() {
                let kind = thermocline_device::ErrorKind::OutOfSpace;
                return Err(thermocline_device::Error::new(kind, "the home's disk is full"));
            }
            Ok(())
        });
        let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
        let environment = Environment { devices, ..environment };
        let db = environment.create(Path::new("/home"), &one_tier()).unwrap();
        (db, environment, watch)
    }

    fn read(environment: &Environment) -> Result<Option<LiveStats>> {
        LiveStats::read_in(environment, Path::new("/home"))
    }

    #[test]
    fn figures_are_written_when_they_are_new_and_never_synced() {
        let (db, environment, watch) = watched();
        let mut told = Told::default();
        assert!(read(&environment).unwrap().is_none());
        db.put("key", "value").unwrap();
        assert!(told.tell(db.engine(), INTERVAL).unwrap());
        let calls = std::mem::take(&mut *watch.calls.lock());
        for call in [Call::Create, Call::Write, Call::Rename] {
            assert!(calls.contains(&call), "{call:?} is not in {calls:?}");
        }
        assert!(!calls.contains(&Call::Sync), "{calls:?}");
        let live = read(&environment).unwrap().unwrap();
        assert_eq!((live.live.process, live.stats.operations.writes), (std::process::id(), 1));
        assert_eq!(live.live.interval_s, 1.0);
        watch.calls.lock().clear();
        assert!(!told.tell(db.engine(), INTERVAL).unwrap());
        assert_eq!(*watch.calls.lock(), [], "nothing happened");
        db.get("key").unwrap();
        assert!(told.tell(db.engine(), INTERVAL).unwrap());
        assert_eq!(read(&environment).unwrap().unwrap().stats.operations.gets, 1);
        db.close().unwrap();
    }

    #[test]
    fn a_failed_write_leaves_the_store_and_the_next_figures_alone() {
        let (db, environment, watch) = watched();
        let mut told = Told::default();
        db.put("key", "1").unwrap();
        *watch.fails.lock() = true;
        let error = told.tell(db.engine(), INTERVAL).unwrap_err();
        assert!(error.to_string().contains("disk is full"), "{error}");
        db.put("key", "2").unwrap();
        assert_eq!(db.stats().read_only, None);
        *watch.fails.lock() = false;
        assert!(told.tell(db.engine(), INTERVAL).unwrap());
        assert_eq!(read(&environment).unwrap().unwrap().stats.operations.writes, 2);
        db.close().unwrap();
    }

    #[test]
    fn the_next_opening_removes_what_a_killed_process_left() {
        let (db, environment, _) = watched();
        db.put("key", "value").unwrap();
        Told::default().tell(db.engine(), INTERVAL).unwrap();
        db.close().unwrap();
        assert!(read(&environment).unwrap().is_some(), "a stepped store has no thread to end");
        let db = environment.open(Path::new("/home")).unwrap();
        assert!(read(&environment).unwrap().is_none());
        db.close().unwrap();
    }

    #[test]
    fn only_stores_with_threads_of_their_own_and_an_interval_have_the_thread() {
        let db = stepped(&one_tier());
        assert!(LiveWriter::start(db.engine()).is_none());
        db.close().unwrap();
        let off = Settings { stats_interval: crate::Duration::ms(0), ..one_tier() };
        for (settings, is_started) in [(off, false), (one_tier(), true), (hybrid(), true)] {
            let devices: Arc<dyn Devices> = Arc::new(thermocline_device::MemoryDevices::new());
            let environment = Environment { devices, ..Environment::default() };
            let db = environment.create(&PathBuf::from("/home"), &settings).unwrap();
            let second = LiveWriter::start(db.engine());
            assert_eq!(second.is_some(), is_started);
            second.iter().for_each(LiveWriter::end);
            db.close().unwrap();
        }
    }

    #[test]
    fn a_torn_file_is_corrupt_and_one_of_another_version_is_named() {
        let db = stepped(&hybrid());
        let live =
            LiveMark { version: VERSION, process: 7, written_s: 100, open_s: 1.5, interval_s: 1.0 };
        let text = LiveStats { live, stats: db.stats() }.to_json().unwrap();
        let whole = LiveStats::from_json(&text).unwrap();
        assert_eq!(whole.to_json().unwrap(), text);
        for len in 0..text.len() {
            let error = LiveStats::from_json(&text[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{len} bytes");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        let other = text.replacen("\"version\": 3", "\"version\": 4", 1);
        let error = LiveStats::from_json(&other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NewerFormat);
        let clock = crate::support::still_clock::StillClock::default();
        assert_eq!(whole.age(&clock), Duration::ZERO, "a clock that was set back");
        // But for the mark the object is that of the statistics.
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let mut live = json(&text);
        assert!(live.as_object_mut().unwrap().remove("live").is_some());
        assert_eq!(live, json(&db.stats().to_json().unwrap()));
    }
}
