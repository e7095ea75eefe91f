//! Names over links (`device/names`) driven by a model host: each call cut, each call failing in
//! each way that applies to it, tiers that lose power apart.
//!
//! ```text
//!   host.rs     steps of a host from a seed     model.rs      what it may find
//!   images.rs   what crashes leave, opened      beside.rs     writings beside moves and copies
//!   extents.rs  reads that are served           vanishing.rs  a tier that is away for a while
//!   trials.rs   all of it on one seed, and the faults: the suite `names`
//! ```
//! `cargo xtask simulate --suite names --seed S` tries every fault at every call of a history.
//! Tests (`tests/names.rs`) try a seventh of the calls, on each seed others.
//! Everything runs on one thread and follows from the seed.

mod beside;
mod extents;
mod host;
mod images;
mod model;
mod trials;
mod vanishing;

pub use beside::write_beside;
pub use extents::{fill_device, overwrite};
pub use host::Counts;
pub use trials::{Trial, calls_of, faults, run_with_fault, trials};
pub use vanishing::vanish;

use crate::devices::{Devices, World};
use crate::oracle::Violation;
use host::{Host, Stop};
use images::{End, Images, devices, refuses_copy, spec};
use model::Model;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::{
    Devices as _, FileContext, FileInfo, FileKind, Names, Placement, Result, TierIndex, TierState,
};
use thermocline_foundation::FileNumber;
use thermocline_foundation::random::mix;
use thermocline_foundation::threads::catch_panic;

const HOST: &str = "/host/db";
const ELSEWHERE: &str = "/host/elsewhere";
const COPY: &str = "/host/copy";
const FAST: &str = "/mnt/fast/app";
const SLOW: &str = "/mnt/slow/app";

/// Steps of a history.
const STEPS: usize = 42;

/// Logs and upper levels on the fastest tier, the rest on the slowest.
#[derive(Debug)]
struct UpperLevels;

impl Placement for UpperLevels {
    fn name(&self) -> &'static str {
        "upper_levels"
    }

    fn place(&self, context: FileContext, _: u64, tiers: &[TierState]) -> Option<TierIndex> {
        let is_upper = !matches!(context.kind, FileKind::Table { level } if level > 2);
        Some(TierIndex(if is_upper { 0 } else { tiers.len() as u8 - 1 }))
    }

    fn misplaced(&self, _: &[FileInfo], _: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        Vec::new()
    }
}

/// Which tiers a history has: the host's directory may be one of them.
#[derive(Clone, Copy, Debug)]
struct Setting(u64);

impl Setting {
    fn tiers(self) -> Vec<thermocline_device::TierSpec> {
        let paths: &[&str] = match self.0 % 3 {
            0 => &[FAST, SLOW],
            1 => &[FAST, HOST],
            _ => &[FAST, SLOW, HOST],
        };
        paths.iter().map(|path| spec(Path::new(path))).collect()
    }

    fn make(self, devices: &Devices) -> Result<Names> {
        let devices = Arc::new(devices.clone());
        Names::make(devices, Path::new(HOST), &self.tiers(), Arc::new(UpperLevels))
    }

    fn load(self, devices: &Devices) -> Result<Names> {
        Names::load(Arc::new(devices.clone()), Path::new(HOST), None, Arc::new(UpperLevels))
    }

    /// The directories are those of a file system: no alignment, and hard links.
    fn prepare(self, devices: &Devices) {
        for path in devices.world().paths() {
            let device = u64::from(path.starts_with(FAST)) + 2 * u64::from(path.starts_with(SLOW));
            devices.set_shared_device(&path, device);
            devices.set_alignment(&path, 1);
        }
    }
}

/// The directory that the host has on a tier.
fn instance(world: &World, tier: &str) -> PathBuf {
    let is_below = |path: &PathBuf| path.starts_with(tier) && path != Path::new(tier);
    world.paths().into_iter().find(is_below).expect("it was made")
}

/// A host whose directories are there, and empty.
fn host(seed: u64) -> Host {
    let devices = devices(World::new(mix(seed)));
    for path in [HOST, FAST, SLOW] {
        devices.create_directory(Path::new(path)).expect("it is new");
    }
    let setting = Setting(seed);
    setting.prepare(&devices);
    Host::new(setting, devices, Arc::new(Mutex::new(Model::default())), mix(seed ^ 0x4057))
}

/// A history, of which every call may be the last: what crashes leave is opened.
pub fn run(seed: u64) -> Result<Counts, Violation> {
    let mut host = host(seed);
    let images = Arc::new(Images::new(host.setting, Arc::clone(&host.model), seed));
    host.devices.watch(Some(Arc::clone(&images) as Arc<_>));
    for number in 0..=STEPS {
        let step = || if number == 0 { host.make() } else { host.step() };
        let stepped = catch_panic(step).map_err(|said| format!("it panics: {said}"));
        if let Some(why) = images.violation.lock().clone() {
            return Err(format!("step {number}: {why}"));
        }
        stepped?.map_err(|stop| format!("step {number}: {}", Violation::from(stop)))?;
    }
    refuses_copy(host.setting, &host.devices.world())?;
    Ok(Counts { images: *images.tried.lock(), ..host.counts })
}

/// A directory whose files are deleted is taken off its tiers, and every call may be the last.
/// Returns how many images were tried.
pub fn run_end(seed: u64) -> Result<u64, Violation> {
    let mut host = host(seed);
    host.make()?;
    steps(&mut host, 5)?;
    host.delete_all()?;
    if seed.is_multiple_of(2) {
        host.lose()?;
    }
    let (ended, tried) = watched(host, seed, End::Removed, Host::end)?;
    ended.map(|()| tried)
}

/// A directory with its files leaves its tiers, and every call may be the last. Returns how many
/// images were tried: 0 where links without files keep it there.
pub fn run_leave(seed: u64) -> Result<u64, Violation> {
    let mut host = host(seed);
    host.make()?;
    steps(&mut host, 12)?;
    let (left, tried) = watched(host, seed, End::Left, Host::leave)?;
    match left {
        Err(why) if why.contains("/lost/") => Ok(0),
        left => left.map(|()| tried),
    }
}

fn steps(host: &mut Host, count: usize) -> Result<(), Violation> {
    for number in 0..count {
        host.step().map_err(|stop| format!("step {number}: {}", Violation::from(stop)))?;
    }
    Ok(())
}

/// The outcome of the host's last call while images are tried, and how many.
fn watched(
    mut host: Host,
    seed: u64,
    ends: End,
    last: impl FnOnce(&mut Host) -> Result<(), Stop>,
) -> Result<(Result<(), Violation>, u64), Violation> {
    let images = Images::new(host.setting, Arc::clone(&host.model), seed);
    let images = Arc::new(Images { ends, ..images });
    host.devices.watch(Some(Arc::clone(&images) as Arc<_>));
    let ended = last(&mut host).map_err(Violation::from);
    host.devices.watch(None);
    let violation = images.violation.lock().clone();
    violation.map_or(Ok(()), Err)?;
    let tried = *images.tried.lock();
    Ok((ended, tried))
}
