//! Lives of the stress test on one database: each begins with the comparison of all keys, works,
//! and is ended by a kill, or by a kill and a loss of power.
//!
//! ```text
//!   round   start -> wait for what is aimed at -> kill (-> cut both -> unmount -> mount)
//!           -> look at links
//! ```
//! Power goes the moment the process is killed: an `fsync` that is under way then may still report
//! success (docs/decisions/0023-crash-tests.md), which a process that goes on would take for a
//! promise. No thread of a killed process comes back from its call.

use super::directories::{self, Found};
use super::ends;
use super::stress::{self, Epoch, Stage, Stress, complains, last_words};
use super::{Ending, Report};
use crate::block_device::{BlockDevice, Setup};
use crate::report::Run;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock};

/// Lives of a database.
pub const EPOCH_ROUNDS: u64 = 25;
/// How long a life may take to say that it works. With 30 open files it opens a table for most of
/// the 67,500 keys that it compares first, and its listener sleeps at some of these openings:
/// minutes on a machine that does other things.
const OPENING_WAIT: Duration = Duration::from_secs(1200);
const FAST_BYTES: u64 = 64 << 20;
const SLOW_BYTES: u64 = 512 << 20;

/// Why a round did not end well.
pub enum Trouble {
    Machinery(Setup),
    Host(String),
}

impl From<Setup> for Trouble {
    fn from(setup: Setup) -> Self {
        Self::Machinery(setup)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Machinery(Setup(error.to_string()))
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Host(text)
    }
}

/// What the two tiers are on.
enum Media {
    /// Directories of one file system.
    Folders,
    /// A file system each, fast and slow.
    Devices(Box<[BlockDevice; 2]>),
}

/// A database and what it lies on.
pub struct Bench {
    pub stress: Stress,
    pub directory: PathBuf,
    media: Media,
    pub ending: Ending,
    epoch: Epoch,
}

impl Bench {
    pub fn new(stress: Stress, directory: &Path, ending: Ending) -> Result<Self, Setup> {
        let media = match ending {
            Ending::Kill => Media::Folders,
            Ending::PowerCut => Media::Devices(Box::new([
                BlockDevice::attach(directory, "fast", FAST_BYTES)?,
                BlockDevice::attach(directory, "slow", SLOW_BYTES)?,
            ])),
        };
        let (directory, epoch) = (directory.to_owned(), Epoch::draw(0));
        Ok(Self { stress, directory, media, ending, epoch })
    }

    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    pub fn fast(&self) -> PathBuf {
        self.directory.join("fast")
    }

    /// Empty tiers, and no expected values.
    fn begin(&mut self, epoch: Epoch) -> Result<(), Trouble> {
        self.epoch = epoch;
        match &self.media {
            Media::Folders => {
                for tier in [self.fast(), self.directory.join("slow")] {
                    renew(&tier)?;
                }
            }
            Media::Devices(devices) => {
                devices.iter().try_for_each(BlockDevice::format)?;
                devices.iter().try_for_each(BlockDevice::mount)?;
            }
        }
        Ok(renew(&self.stress.expected)?)
    }

    /// One life, and the database's end where it was the last one.
    pub fn round(&mut self, run: &Run, round: u64, report: &mut Report) -> Result<(), Trouble> {
        if round == run.first || round.is_multiple_of(EPOCH_ROUNDS) {
            let epoch = Epoch::draw(mix(run.seed ^ mix(round / EPOCH_ROUNDS)));
            self.begin(epoch)?;
        }
        let mut random = Random::new(mix(run.seed) ^ mix(round));
        self.life(&mut random, report)?;
        let is_last = round + 1 == run.first + run.rounds;
        if is_last || (round + 1).is_multiple_of(EPOCH_ROUNDS) {
            ends::end(self, report)?;
            self.unmounted()?;
        }
        Ok(())
    }

    fn life(&self, random: &mut Random, report: &mut Report) -> Result<(), Trouble> {
        let uri = stress::tiers(&self.fast(), random);
        let words = self.epoch.life(random, self.ending == Ending::PowerCut);
        let mut child = self.stress.start(Some(&uri), &words)?;
        let waited = self.wait(&mut child, random);
        child.kill()?;
        if waited.is_ok() {
            self.cut(random)?;
        }
        let status = child.wait()?;
        let said = self.stress.said();
        waited.map_err(|why| format!("{why} ({status}): {}", last_words(&said)))?;
        if complains(&said) {
            return Err(Trouble::Host(format!("it complained: {}", last_words(&said))));
        }
        let stage = Stage::of(&said);
        report.verified += u64::from(stage > Stage::Opening);
        report.in_opening += u64::from(stage == Stage::Opening);
        let found = self.found_after(report)?;
        report.with_strays += u64::from(found.strays() > 0);
        Ok(())
    }

    /// What the life left. After a loss of power a link may lead nowhere until the next opening.
    fn found_after(&self, report: &mut Report) -> Result<Found, Trouble> {
        self.mounted_again()?;
        let found = directories::look(&self.stress.db, &self.fast())?;
        if self.ending == Ending::Kill {
            report.links += found.links;
            if !found.dangling.is_empty() {
                let text = format!("after the kill links lead nowhere: {:?}", found.dangling);
                return Err(Trouble::Host(text));
            }
        }
        Ok(found)
    }

    /// Waits for the moment that is drawn; why the life may not be ended there.
    fn wait(&self, child: &mut Child, random: &mut Random) -> Result<(), String> {
        let clock = SystemClock::new();
        let log_uniform = |random: &mut Random, bits| {
            let bits = random.below(bits);
            Duration::from_micros(random.below(1 << bits))
        };
        if random.below(5) == 0 {
            // In the opening, as a rule: 0.3 s at most.
            clock.sleep(log_uniform(random, 18));
        } else {
            while Stage::of(&self.stress.said()) < Stage::Working {
                self.lives(child)?;
                if clock.now_ns() > OPENING_WAIT.as_nanos() as u64 {
                    return Err("it does not come to its work".to_owned());
                }
                clock.sleep(Duration::from_millis(2));
            }
            // Half of the lives are long enough for some compactions and moves: 4 s at most.
            let short = log_uniform(random, 22);
            let long = Duration::from_millis(random.below(2500));
            clock.sleep(if random.below(2) == 0 { short } else { long });
        }
        self.lives(child)
    }

    /// It has not ended by itself.
    fn lives(&self, child: &mut Child) -> Result<(), String> {
        match child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("it ended by itself".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Cuts the power of both tiers, where the run does so, one of them some time after the other.
    fn cut(&self, random: &mut Random) -> Result<(), Setup> {
        let Media::Devices(devices) = &self.media else { return Ok(()) };
        let [fast, slow] = &**devices;
        let mut switches = [fast.switch()?, slow.switch()?];
        if random.below(2) == 0 {
            switches.reverse();
        }
        let bits = random.below(12);
        let between = Duration::from_micros(random.below(1 << bits));
        for (number, switch) in switches.iter().enumerate() {
            if number > 0 {
                SystemClock::new().sleep(between);
            }
            switch.cut().map_err(|error| Setup(error.to_string()))?;
        }
        Ok(())
    }

    fn mounted_again(&self) -> Result<(), Setup> {
        self.unmounted()?;
        let Media::Devices(devices) = &self.media else { return Ok(()) };
        devices.iter().try_for_each(BlockDevice::mount)
    }

    fn unmounted(&self) -> Result<(), Setup> {
        let Media::Devices(devices) = &self.media else { return Ok(()) };
        devices.iter().try_for_each(BlockDevice::unmount)
    }

    /// The fast tier is away while `work` runs.
    pub fn without_fast<T>(&self, work: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
        match &self.media {
            Media::Folders => {
                let away = self.directory.join("fast.away");
                std::fs::rename(self.fast(), &away)?;
                let done = work();
                std::fs::rename(&away, self.fast())?;
                done
            }
            Media::Devices(devices) => {
                devices[0].unmount()?;
                let done = work();
                devices[0].mount()?;
                done
            }
        }
    }

    /// Copies what a failure left to where it stays: devices go with this value.
    pub fn keep(&self) {
        if let Media::Folders = self.media {
            return;
        }
        let kept = self.directory.join("kept");
        let copy = || {
            self.mounted_again()?;
            let mut copy = Command::new("cp");
            copy.arg("-a").args([self.fast(), self.directory.join("slow")]).arg(&kept);
            let made = std::fs::create_dir_all(&kept).and_then(|()| copy.status());
            made.map_err(|error| Setup(format!("{}: {error}", kept.display())))
        };
        if let Err(Setup(error)) = copy() {
            eprintln!("torture plugin: what failed is not kept: {error}");
        }
    }
}

/// Makes an empty directory in place of what is there.
fn renew(path: &Path) -> std::io::Result<()> {
    if path.exists() {
        std::fs::remove_dir_all(path)?;
    }
    std::fs::create_dir_all(path)
}
