//! Power cuts: the store on two small ext4 file systems, both cut off at a random moment, mounted
//! again, and compared with what it had promised.
//!
//! ```text
//!   round   mount -> open, check -> (close -> (life of a child, killed)) -> life -> cut both
//!           -> unmount
//!   epoch   some rounds on one store, which its seed describes; then a new one
//! ```
//! Whether the store is closed between check and life, and so whether the cut may fall into an
//! opening (a recovery of a recovery), is drawn in each round. So is whether a child is killed
//! first: the store is then opened on what only the page cache has, and must not act upon what the
//! cut can take back. So is which side is cut first: the
//! other one goes on for some microseconds, as with two disks on two cables.

use crate::block_device::{BlockDevice, Setup};
use crate::history::Model;
use crate::kill::{Aim, run_child};
use crate::ledger::{Bounds, Ledger, Phase};
use crate::life::{self, Epoch};
use crate::oracle;
use crate::report::{Failure, Report, Run};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use thermocline::Db;
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock, threads};

/// Rounds of an epoch.
pub const EPOCH_ROUNDS: u64 = 25;
const FAST_BYTES: u64 = 64 << 20;
const SLOW_BYTES: u64 = 96 << 20;
/// How long an opening, and a phase, are waited for before the power goes anyway.
const OPENING_WAIT: Duration = Duration::from_secs(20);
const PHASE_WAIT: Duration = Duration::from_millis(200);
/// A store that has not given up so long after the cut hangs.
const GIVE_UP: Duration = Duration::from_secs(120);

/// Why a round did not end well.
enum Trouble {
    Machinery(Setup),
    Store(String),
}

impl From<Setup> for Trouble {
    fn from(setup: Setup) -> Self {
        Self::Machinery(setup)
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Store(text)
    }
}

/// The two file systems and what is known of the store on them.
struct Bench {
    directory: PathBuf,
    fast: BlockDevice,
    slow: BlockDevice,
    epoch: Epoch,
    models: Vec<Model>,
    bounds: Vec<Bounds>,
}

impl Bench {
    fn new(directory: &Path) -> Result<Self, Setup> {
        let fast = BlockDevice::attach(directory, "fast", FAST_BYTES)?;
        let slow = BlockDevice::attach(directory, "slow", SLOW_BYTES)?;
        let epoch = Epoch::new(0);
        let directory = directory.to_owned();
        Ok(Self { directory, fast, slow, epoch, models: Vec::new(), bounds: Vec::new() })
    }

    /// Empty file systems and a new history.
    fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), Setup> {
        self.epoch = epoch;
        self.forget();
        self.fast.format()?;
        self.slow.format()
    }

    fn forget(&mut self) {
        let writers = 0..self.epoch.writers;
        self.models = writers.clone().map(|it| Model::new(self.epoch.history, it)).collect();
        self.bounds = writers.map(|_| Bounds { at_least: 0, at_most: 0 }).collect();
    }

    fn open(&self, opening: u64) -> Result<Db, String> {
        life::open(&self.epoch, self.fast.path(), self.slow.path(), opening)
            .map_err(|error| format!("opening: {error}"))
    }

    /// Opens the store after a cut and compares it; none where it was cut while being made.
    fn reopen(&mut self, random: &mut Random) -> Result<Option<Db>, Trouble> {
        let home = self.fast.path().join("home");
        if !Db::exists(&home).map_err(|error| error.to_string())? {
            if self.bounds.iter().any(|bounds| bounds.at_least > 0) {
                return Err(Trouble::Store("the database is gone".to_owned()));
            }
            return Ok(None);
        }
        let db = self.open(random.next_u64())?;
        oracle::check(&db, &mut self.models, &self.bounds, random)?;
        if random.below(4) == 0 {
            oracle::check_tidy(&db, self.fast.path(), self.slow.path())?;
        }
        Ok(Some(db))
    }

    /// One round; returns what was going on when the power went, and how many batches were lost
    /// that had been acknowledged and not promised.
    fn round(&mut self, seed: u64, report: &mut Report) -> Result<(), Trouble> {
        let mut random = Random::new(seed);
        self.fast.mount()?;
        self.slow.mount()?;
        let acknowledged: u64 = self.bounds.iter().map(|bounds| bounds.at_most).sum();
        let mut reopened = self.reopen(&mut random)?;
        let exists = reopened.is_some();
        if !exists {
            // Cut while it was being made: what is there must not be in the way.
            self.forget();
        }
        let found: u64 = self.models.iter().map(|model| model.stamp).sum();
        report.lost += acknowledged.saturating_sub(found);
        if random.below(2) == 0
            && let Some(db) = reopened.take()
        {
            report.migrated += life::moved(&db);
            db.close().map_err(|error| format!("closing: {error}"))?;
        }
        let stamps: Vec<_> = self.models.iter().map(|model| model.stamp).collect();
        let mut ledger = Ledger::new(&stamps, false);
        if exists && reopened.is_none() && random.below(2) == 0 {
            let aim = Aim::draw(&mut random);
            let heard = run_child(&self.directory, &self.epoch, &stamps, aim, &mut random)?;
            ledger = Ledger::after_kill(&heard.bounds, &heard.promised);
            report.killed_before += 1;
        }
        let ledger = Arc::new(ledger);
        let ended = self.live_and_cut(reopened, &ledger, &mut random)?;
        report.count(ledger.phase(), self.models.iter().map(|m| m.stamp).sum(), &ledger);
        self.bounds = ledger.bounds();
        self.fast.unmount()?;
        self.slow.unmount()?;
        ended.map_or(Ok(()), |failure| Err(Trouble::Store(failure)))
    }

    /// Runs the store on a thread and cuts its power; returns a failure that came before.
    fn live_and_cut(
        &self,
        reopened: Option<Db>,
        ledger: &Arc<Ledger>,
        random: &mut Random,
    ) -> Result<Option<String>, Trouble> {
        let mut switches = [self.fast.switch()?, self.slow.switch()?];
        if random.below(2) == 0 {
            switches.reverse();
        }
        let (fast, slow) = (self.fast.path().to_owned(), self.slow.path().to_owned());
        let (epoch, seed, noted) = (self.epoch.clone(), random.next_u64(), Arc::clone(ledger));
        let life = threads::spawn("life", move || {
            let opened = match reopened {
                Some(db) => Ok(db),
                None => life::open(&epoch, &fast, &slow, seed),
            };
            match opened {
                // Dropping the store closes it, which fails without power, as it should.
                Ok(db) => life::live(&db, &epoch, &noted, seed),
                Err(error) => {
                    let failed = format!("opening before the cut: {error}");
                    (!noted.is_cut.load(SeqCst)).then_some(failed)
                }
            }
        });
        let life = life.map_err(|error| Setup(format!("cannot start a thread: {error}")))?;
        let clock = SystemClock::new();
        let waits = |until: &dyn Fn() -> bool, most: Duration| {
            let from_ns = clock.now_ns();
            while !until()
                && !life.is_finished()
                && clock.now_ns() - from_ns < most.as_nanos() as u64
            {
                clock.sleep(Duration::from_micros(50));
            }
        };
        let aim = [Phase::Flush, Phase::Compaction, Phase::Other][random.below(3) as usize];
        if random.below(4) > 0 {
            // However slow the machine is: without this a busy one would only see openings.
            waits(&|| ledger.is_open.load(SeqCst), OPENING_WAIT);
        }
        // Log-uniform, from 60 microseconds to 120 milliseconds: openings are short, and a full
        // level 0 takes a while.
        clock.sleep(Duration::from_micros(60 << random.below(12)));
        if aim != Phase::Other {
            waits(&|| ledger.phase() == aim, PHASE_WAIT);
        }
        let bits = random.below(13);
        clock.sleep(Duration::from_micros(random.below(1 << bits)));
        ledger.is_cut.store(true, SeqCst);
        for switch in &switches {
            switch.cut().map_err(|error| Setup(error.to_string()))?;
        }
        drop(switches);
        ledger.stop.store(true, SeqCst);
        let cut_ns = clock.now_ns();
        while !life.is_finished() {
            if clock.now_ns() - cut_ns > GIVE_UP.as_nanos() as u64 {
                return Err(Trouble::Store("the store hangs since the power went".to_owned()));
            }
            clock.sleep(Duration::from_micros(200));
        }
        let ended = life.join();
        ended.map_err(|_| Trouble::Store("a thread of the store panicked".to_owned()))
    }
}

/// Runs the rounds; stops at the first failure.
pub fn run(run: &Run) -> Result<Report, Setup> {
    let mut report = run.report("power");
    let mut bench = Bench::new(&run.directory)?;
    for round in run.first..run.first + run.rounds {
        let epoch = round / EPOCH_ROUNDS;
        let ended = (|| {
            if round == run.first || round.is_multiple_of(EPOCH_ROUNDS) {
                let epoch = Epoch::new(Epoch::seed_of(run.seed, epoch));
                bench.begin_epoch(epoch.asynchronous(run.asynchronous))?;
            }
            bench.round(mix(run.seed) ^ mix(round), &mut report)
        })();
        match ended {
            Ok(()) => run.advance(&mut report),
            Err(Trouble::Machinery(setup)) => return Err(setup),
            Err(Trouble::Store(text)) => {
                report.failure = Some(Failure::new(run, round, epoch * EPOCH_ROUNDS, text));
                break;
            }
        }
    }
    Ok(report)
}
