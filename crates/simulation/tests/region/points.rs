//! Crash points of a store with a region of persistent memory: the calls of devices, and the fences
//! of the region. At each the devices have what a crash leaves of them then, and so has the region.
//!
//! ```text
//!   a call has changed a device   devices.rs tells its watcher   units in flight survive, or not
//!   a fence comes                 pmem/src/shadow.rs tells       lines that were flushed, too
//! ```
//! 1. An image is checked with what is known at that very moment: a batch whose call has not
//!    returned may be there or not.
//! 2. The process may end instead: then everything is there that was stored.
//! 3. Where the region is said to be lost there is none in the image. What then is there has no
//!    hole, and with a log beside the region nothing is missing.

use crate::regions::ShadowRegions;
use crate::{REGION, key, machine, settings};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, ErrorKind, PersistentMemory, Preset, RegionDriver, Regions, Result, Settings,
};
use thermocline_device::Result as DeviceResult;
use thermocline_foundation::random::Random;
use thermocline_pmem::shadow::{FenceWatcher, Model};
use thermocline_pmem::{Circumstances, Medium, RegionIdentity};
use thermocline_simulation::devices::{CallKind, Devices, Loss, Watcher, World};
use thermocline_simulation::history::HOME;
use thermocline_simulation::machine::Machine;

/// All records.
pub type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the writer knows: the states after each batch, of which the last may not be acknowledged.
#[derive(Debug, Default)]
pub struct Known {
    pub states: Vec<State>,
    pub acknowledged: usize,
    /// What the history is at.
    pub doing: &'static str,
    pub fault: Option<String>,
    pub images: u64,
    /// Fences that were tried, by what the history was at.
    pub at_fences: BTreeMap<&'static str, u64>,
}

impl Known {
    /// The empty state, which is acknowledged.
    pub fn new() -> Self {
        Self { states: vec![State::new()], ..Self::default() }
    }
}

/// How many crash points are tried, and what is lost.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// One call of a device in so many.
    pub calls_one_in: u64,
    /// One fence in so many.
    pub fences_one_in: u64,
    /// The region is lost with each image.
    pub loses_region: bool,
}

/// Tries some of the crash points.
#[derive(Debug)]
pub struct Crashes {
    pub regions: Arc<ShadowRegions>,
    pub media: Circumstances,
    pub known: Arc<Mutex<Known>>,
    pub effort: Effort,
    of_calls: Mutex<Random>,
    of_fences: Mutex<Random>,
}

impl Crashes {
    pub fn new(
        regions: &Arc<ShadowRegions>,
        media: Circumstances,
        known: &Arc<Mutex<Known>>,
        effort: Effort,
        seed: u64,
    ) -> Self {
        let (regions, known) = (Arc::clone(regions), Arc::clone(known));
        let (of_calls, of_fences) = (Random::new(seed), Random::new(!seed));
        let (of_calls, of_fences) = (Mutex::new(of_calls), Mutex::new(of_fences));
        Self { regions, media, known, effort, of_calls, of_fences }
    }

    /// Draws whether this point is tried, and tries it; whether it did.
    fn try_point(&self, devices: &Devices, random: &Mutex<Random>, one_in: u64) -> bool {
        let (seed, loss, is_tried) = {
            let mut random = random.lock();
            (random.next_u64(), random.below(3), random.below(one_in) == 0)
        };
        if !is_tried || self.known.lock().fault.is_some() {
            return false;
        }
        let (mut random, world) = (Random::new(seed), devices.world());
        let world = match loss {
            0 => world.after(Loss::None),
            1 => world.after(Loss::All),
            _ => {
                let flags: Vec<_> = world.units().iter().map(|_| random.below(2) == 0).collect();
                world.after(Loss::Kept(&flags))
            }
        };
        let now = match loss {
            0 => self.media,
            _ if self.media.is_synchronous => self.media,
            _ => Circumstances { boot: [2; 16], ..self.media },
        };
        let is_there = self.regions.has(REGION) && !self.effort.loses_region;
        // The end of the process leaves all that was stored.
        let image = is_there.then(|| match loss {
            0 => self.regions.stored(REGION),
            _ if self.media.is_synchronous => self.image(seed),
            _ => self.pages(seed),
        });
        let fault = self.check(world, image.as_deref(), now, seed);
        let mut known = self.known.lock();
        known.images += 1;
        known.fault = fault.map(|fault| {
            format!("while it is at {}, loss {loss}, seed {seed}: {fault}", known.doing)
        });
        true
    }

    /// One of the first images that a power cut could leave.
    fn image(&self, seed: u64) -> Vec<u64> {
        let crash = self.regions.shadow(REGION).last();
        let model = if seed.is_multiple_of(2) { Model::X86 } else { Model::Words };
        let (mut chosen, mut left) = (Vec::new(), 1 + seed % 4);
        crash.images(model, 4, seed, |image| {
            if left > 0 {
                chosen.clear();
                chosen.extend_from_slice(image);
            }
            left = left.saturating_sub(1);
        });
        chosen
    }

    /// What a file has after a loss of power: pages of now and of when it was made, but for its
    /// identity. What was closed was synced before.
    fn pages(&self, seed: u64) -> Vec<u64> {
        let mut image = self.regions.stored(REGION);
        let identity = RegionIdentity::read(&Medium::shadowed(&image));
        let mut random = Random::new(seed);
        if !identity.is_ok_and(|identity| identity.is_clean) {
            let pages = image[1024..].chunks_mut(512);
            pages.filter(|_| random.below(2) == 0).for_each(|page| page.fill(0));
        }
        image
    }

    /// What is wrong with what a crash left.
    fn check(
        &self,
        world: World,
        image: Option<&[u64]>,
        now: Circumstances,
        seed: u64,
    ) -> Option<String> {
        let with = |image| ShadowRegions::with(REGION, image, now);
        let regions = Arc::new(image.map_or_else(|| ShadowRegions::new(now), with));
        let machine = machine(world, regions, seed);
        if self.effort.loses_region
            && let Err(fault) = replace_region(&machine)
        {
            return Some(fault);
        }
        let db = match machine.open() {
            Ok(db) => db,
            Err(error) => return Some(format!("refused: {error}")),
        };
        let found: State = db.scan().into_iter().map(Result::unwrap).map(owned).collect();
        let missed = missed(&db, &found);
        machine.kill(Some(db));
        if missed.is_some() {
            return missed;
        }
        let known = self.known.lock();
        // Memtables are lost with the region that had them.
        let has_lost_some = self.effort.loses_region && self.media.is_synchronous;
        let least = if has_lost_some { 0 } else { known.acknowledged };
        let is_right = known.states[least..].contains(&found);
        (!is_right).then(|| {
            let at = known.states.iter().position(|state| *state == found);
            format!("{} batches are acknowledged, the state is that of {at:?}", known.acknowledged)
        })
    }
}

/// The region is gone: the store says so, and gets another one.
fn replace_region(machine: &Machine) -> Result<(), String> {
    match machine.open() {
        Err(error) if error.kind() == ErrorKind::Tier => {}
        Err(error) => return Err(format!("without its region: {error}")),
        Ok(db) => {
            machine.kill(Some(db));
            return Err("it opens without its region".to_owned());
        }
    }
    let other = PersistentMemory::new("/pmem/other", ByteSize::mib(16));
    let named =
        Settings { tiers: Vec::new(), persistent_memory: Some(other), ..settings(Preset::Indexed) };
    let rebuilt = machine.environment.rebuild_index(Path::new(HOME), Some(&named));
    rebuilt.map(drop).map_err(|error| format!("the index is not made anew: {error}"))
}

/// A key that a look-up answers otherwise than the scan that found these records.
fn missed(db: &Db, found: &State) -> Option<String> {
    let differs = |key: &Vec<u8>| {
        let answer = db.get(key);
        let is_right = answer
            .as_ref()
            .is_ok_and(|answer| answer.as_deref() == found.get(key).map(Vec::as_slice));
        (!is_right).then(|| format!("{:?}: {answer:?}", String::from_utf8_lossy(key)))
    };
    (0..crate::KEYS).map(key).find_map(|key| differs(&key))
}

pub fn owned((key, value): (impl AsRef<[u8]>, impl AsRef<[u8]>)) -> (Vec<u8>, Vec<u8>) {
    (key.as_ref().to_vec(), value.as_ref().to_vec())
}

impl Watcher for Crashes {
    fn changed(&self, devices: &Devices, _: u64, _: CallKind) {
        self.try_point(devices, &self.of_calls, self.effort.calls_one_in);
    }
}

/// Tries some of the fences.
#[derive(Debug)]
pub struct Fences {
    pub crashes: Arc<Crashes>,
    pub devices: Devices,
}

impl FenceWatcher for Fences {
    fn fence_comes(&self) {
        let Self { crashes, devices } = self;
        if crashes.try_point(devices, &crashes.of_fences, crashes.effort.fences_one_in) {
            let mut known = crashes.known.lock();
            let doing = known.doing;
            *known.at_fences.entry(doing).or_default() += 1;
        }
    }
}

/// Regions whose fences are told, whenever they are opened.
#[derive(Debug)]
pub struct WatchedRegions {
    regions: Arc<ShadowRegions>,
    watcher: Mutex<Option<Arc<dyn FenceWatcher>>>,
}

impl WatchedRegions {
    pub fn new(regions: &Arc<ShadowRegions>) -> Self {
        Self { regions: Arc::clone(regions), watcher: Mutex::default() }
    }

    /// From now on `watcher` is told; none: nothing is.
    pub fn watch(&self, watcher: Option<Arc<dyn FenceWatcher>>) {
        self.watcher.lock().clone_from(&watcher);
        if self.regions.has(REGION) {
            self.regions.shadow(REGION).watch(watcher);
        }
    }

    fn begin(&self) {
        let watcher = self.watcher.lock().clone();
        self.regions.shadow(REGION).watch(watcher);
    }
}

impl Regions for WatchedRegions {
    fn create(
        &self,
        path: &Path,
        bytes: u64,
        driver: RegionDriver,
    ) -> DeviceResult<(Medium, Circumstances)> {
        self.regions.create(path, bytes, driver).inspect(|_| self.begin())
    }

    fn open(&self, path: &Path, driver: RegionDriver) -> DeviceResult<(Medium, Circumstances)> {
        self.regions.open(path, driver).inspect(|_| self.begin())
    }

    fn remove(&self, path: &Path) -> DeviceResult<()> {
        self.regions.remove(path)
    }
}
