//! What a crash may leave of a host's directory and its tiers, opened and held against the model.
//!
//! 1. After each call that changed something: all in flight is lost; nothing is (the process was
//!    killed); some of it is; one directory loses all and the others nothing, and the reverse.
//! 2. What an opening for writing finds stays when the power is cut once more.
//! 3. Links without a file are in `lost/` afterwards, and each tier file has one link.
//! 4. A copy of the directory is refused.

use super::host::Stop;
use super::model::{Model, Observed};
use super::{COPY, FAST, HOST, SLOW, Setting};
use crate::clock::SimulatedClock;
use crate::devices::{CallKind, Devices, Loss, Watcher, World};
use crate::oracle::Violation;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::Stepper;
use thermocline_device::names::LinkText;
use thermocline_device::{Buffer, Devices as _, ErrorKind, Names, Operation, TierSpec};
use thermocline_foundation::ByteSize;
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::threads::catch_panic;

/// Images of a random part, at each call.
const SAMPLES: usize = 2;

/// Devices that hold `world`.
pub(super) fn devices(world: World) -> Devices {
    let clock = SimulatedClock::new(Arc::new(Stepper::new(1)));
    Devices::new(world, Arc::new(clock))
}

/// Tries images after each call.
pub(super) struct Images {
    pub setting: Setting,
    pub model: Arc<Mutex<Model>>,
    pub random: Mutex<Random>,
    pub violation: Mutex<Option<Violation>>,
    pub tried: Mutex<u64>,
    pub ends: End,
}

/// What is becoming of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It stays over its tiers.
    Never,
    /// Its host removes it: it has no files.
    Removed,
    /// It is taken off its tiers, with its files.
    Left,
}

impl Watcher for Images {
    fn changed(&self, devices: &Devices, call: u64, kind: CallKind) {
        if self.violation.lock().is_some() {
            return;
        }
        let explain = |why| format!("after call {call}, {kind:?}: {why}");
        if let Err(why) = self.try_world(&devices.world()).map_err(explain) {
            self.violation.lock().get_or_insert(why);
        }
    }
}

impl Images {
    pub fn new(setting: Setting, model: Arc<Mutex<Model>>, seed: u64) -> Self {
        let random = Mutex::new(Random::new(mix(seed ^ 0x1A6E)));
        let (violation, tried, ends) = (Mutex::new(None), Mutex::new(0), End::Never);
        Self { setting, model, random, violation, tried, ends }
    }

    /// Opens what a crash may leave of `world`.
    pub fn try_world(&self, world: &World) -> Result<(), Violation> {
        let units = world.units();
        self.try_image(&world.after(Loss::None), "killed")?;
        if units.is_empty() {
            return Ok(());
        }
        let mut masks = vec![("nothing kept".to_owned(), vec![false; units.len()])];
        let directories: BTreeSet<_> = units.iter().map(|unit| unit.directory).collect();
        let paths = world.paths();
        for directory in directories {
            let path = paths[directory].display();
            let lost = units.iter().map(|unit| unit.directory != directory).collect();
            let kept = units.iter().map(|unit| unit.directory == directory).collect();
            masks.push((format!("{path} loses all"), lost));
            masks.push((format!("{path} alone keeps all"), kept));
        }
        for _ in 0..SAMPLES {
            let mut random = self.random.lock();
            masks.push(("some kept".into(), units.iter().map(|_| random.below(2) == 0).collect()));
        }
        let unique: BTreeMap<_, _> = masks.into_iter().map(|(what, mask)| (mask, what)).collect();
        for (mask, what) in unique {
            self.try_image(&world.after(Loss::Kept(&mask)), &what)?;
        }
        Ok(())
    }

    fn try_image(&self, image: &World, what: &str) -> Result<(), Violation> {
        *self.tried.lock() += 1;
        let checked = catch_panic(|| match self.ends {
            End::Never => self.check_image(image),
            End::Removed | End::Left => self.check_end(image),
        });
        let checked = checked.unwrap_or_else(|said| Err(format!("it panics: {said}")));
        checked.map_err(|why| format!("{what}: {why}"))
    }

    /// The directory is over its tiers still, or what is left of that goes. Nothing is in the way
    /// of the next creation.
    fn check_end(&self, image: &World) -> Result<(), Violation> {
        let text = |error: thermocline_device::Error| error.to_string();
        let devices = devices(image.clone());
        self.setting.prepare(&devices);
        match self.setting.load(&devices) {
            Ok(names) => {
                if !self.end(&devices, names)? {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Names::undo_cut_off(&devices, Path::new(HOST)).map_err(text)?;
            }
            Err(error) => return Err(format!("it does not open: {error}")),
        }
        let world = devices.world();
        let bases = [HOST, FAST, SLOW].map(PathBuf::from);
        for path in world.paths().into_iter().filter(|path| !bases.contains(path)) {
            let (files, links) = (world.list(&path), world.links(&path));
            if !files.is_empty() || !links.is_empty() {
                return Err(format!("{} has {files:?} and {links:?}", path.display()));
            }
        }
        if self.ends == End::Left {
            self.model.lock().check_crash(&plain_files(&devices)?)?;
        }
        let made = self.setting.make(&devices);
        made.map(drop).map_err(|error| format!("it is not made again: {error}"))
    }

    /// What a crash left over its tiers leaves them now; false where it must not.
    fn end(&self, devices: &Devices, names: Names) -> Result<bool, Violation> {
        let text = |error: thermocline_device::Error| error.to_string();
        if self.ends == End::Removed {
            let found = observe(devices, &names)?;
            if !found.is_empty() {
                return Err(format!("it has {:?}", found.keys()));
            }
            names.dissolve().map_err(|error| format!("it stays: {error}"))?;
            return Ok(true);
        }
        names.sync_directory().map_err(text)?;
        self.model.lock().check_crash(&observe(devices, &names)?)?;
        match names.leave() {
            Ok(_) => Ok(true),
            Err(error) if error.to_string().contains("/lost/") => Ok(false),
            Err(error) => Err(format!("it stays: {error}")),
        }
    }

    fn check_image(&self, image: &World) -> Result<(), Violation> {
        let model = self.model.lock().clone();
        let devices = devices(image.clone());
        let names = match self.setting.load(&devices) {
            Ok(names) => names,
            Err(error) if !model.made && error.kind() == ErrorKind::NotFound => {
                let made = self.setting.make(&devices);
                return made.map(drop).map_err(|error| format!("it is not made again: {error}"));
            }
            Err(error) => return Err(format!("it does not open: {error}")),
        };
        let dangling = dangling(image);
        names.sync_directory().map_err(|error| format!("it is not writable: {error}"))?;
        let found = observe(&devices, &names)?;
        model.check_crash(&found)?;
        let world = devices.world();
        check_tidy(&world, &dangling)?;
        drop(names);
        // Of a sync of names that failed no later one makes up for what it lost, and an opening
        // cannot know of it.
        if image.units().iter().any(|unit| unit.given_up && unit.file.is_none()) {
            return Ok(());
        }
        // Once more: what was found does not go.
        let again = self::devices(world.after(Loss::All));
        let names = self.setting.load(&again);
        let names = names.map_err(|error| format!("it does not open again: {error}"))?;
        names.sync_directory().map_err(|error| format!("nor is it writable again: {error}"))?;
        let later = observe(&again, &names)?;
        model.check_crash(&later).map_err(|why| format!("after another power cut: {why}"))?;
        match later.keys().eq(found.keys()) {
            true => Ok(()),
            false => Err("another power cut takes or brings a name".to_owned()),
        }
    }
}

/// A copy of the directory as it is in `world`, links and all, does not open: it would share the
/// tiers' files with the original.
pub(super) fn refuses_copy(setting: Setting, world: &World) -> Result<(), Violation> {
    let text = |error: thermocline_device::Error| error.to_string();
    let devices = devices(world.after(Loss::None));
    setting.prepare(&devices);
    for part in ["", ".thermocline", ".thermocline/lost"] {
        let (from, to) = (Path::new(HOST).join(part), Path::new(COPY).join(part));
        copy_directory(&devices, &from, &to).map_err(text)?;
    }
    let placement = Arc::new(super::UpperLevels);
    match Names::load(Arc::new(devices), Path::new(COPY), None, placement) {
        Err(error) if error.kind() == ErrorKind::Tier => Ok(()),
        Err(error) => {
            Err(format!("a copy of the directory is refused for another reason: {error}"))
        }
        Ok(_) => Err("a copy of the directory opens, and shares the tiers' files".to_owned()),
    }
}

fn copy_directory(devices: &Devices, from: &Path, to: &Path) -> thermocline_device::Result<()> {
    let from = devices.home(from)?;
    devices.create_directory(to)?;
    devices.set_alignment(to, 1);
    let to = devices.home(to)?;
    for entry in from.list()? {
        if let Some(text) = from.read_link(&entry.name)? {
            to.make_link(&entry.name, &text)?;
            continue;
        }
        let (there, here) = (from.open(&entry.name)?, to.create(&entry.name)?);
        let buffer = Buffer::zeroed(there.len()? as usize);
        let read = from.execute(&there, Operation::Read { offset: 0, buffer });
        read.result?;
        let write = Operation::Write { offset: 0, buffer: read.buffer, durable: false };
        to.execute(&here, write).result?;
    }
    Ok(())
}

/// Bytes of a file of `path`, through a driver.
pub(super) fn read(devices: &Devices, path: &Path) -> Result<Vec<u8>, String> {
    let (parent, name) = split(path);
    let driver = devices.tier(&spec(&parent)).map_err(|error| error.to_string())?;
    let file = driver.open(&name).map_err(|error| error.to_string())?;
    let len = file.len().map_err(|error| error.to_string())? as usize;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let offset = bytes.len() as u64;
        let buffer = Buffer::zeroed(len - bytes.len());
        let read = driver.execute(&file, Operation::Read { offset, buffer });
        match read.result.map_err(|error| error.to_string())? {
            0 => return Err(format!("no more than {offset} of {len} bytes are read")),
            part => bytes.extend_from_slice(&read.buffer[..part]),
        }
    }
    Ok(bytes)
}

pub(super) fn spec(path: &Path) -> TierSpec {
    TierSpec { path: path.to_owned(), capacity: ByteSize::gib(1), driver: "posix".to_owned() }
}

pub(super) fn split(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().expect("a file").to_string_lossy().into_owned();
    (path.parent().expect("a directory").to_owned(), name)
}

/// All files of the host.
pub(super) fn observe(devices: &Devices, names: &Names) -> Result<Observed, Stop> {
    let mut found = BTreeMap::new();
    for entry in names.list()? {
        let file = names.open(&entry.name)?;
        let explain = |why| Stop::Failed(format!("{} cannot be read: {why}", entry.name));
        let bytes = read(devices, &file.place()).map_err(explain)?;
        let (place, read_at) = (file.place(), file.place_to_read());
        if read_at != place && read(devices, &read_at).map_err(explain)? != bytes {
            let at = read_at.display();
            let why = format!("{} is read at {at}, which is no copy of it", entry.name);
            return Err(Stop::Violated(why));
        }
        if entry.len != bytes.len() as u64 || entry.is_link {
            return Err(Stop::Violated(format!("{} is listed as {entry:?}", entry.name)));
        }
        found.insert(entry.name, bytes);
    }
    Ok(found)
}

/// All files of the host's directory, which has no links.
fn plain_files(devices: &Devices) -> Result<Observed, Violation> {
    let (world, host) = (devices.world(), Path::new(HOST));
    let links = world.links(host);
    if !links.is_empty() {
        return Err(format!("links are left: {links:?}"));
    }
    let named = |(name, _): (String, u64)| -> Result<_, Violation> {
        let bytes = read(devices, &host.join(&name))?;
        Ok((name, bytes))
    };
    world.list(host).into_iter().map(named).collect()
}

/// The host's links of tiers: the directory and the file that each leads to.
fn links(world: &World) -> Vec<(PathBuf, String, String)> {
    let own = Path::new(HOST).join(".thermocline");
    let tiers: BTreeMap<_, _> = world.links(&own).into_iter().collect();
    let parsed = |(_, text): (String, String)| {
        let link = LinkText::parse(&text)?;
        let tier = tiers.get(&format!("tier-{}", link.tier.0))?;
        Some((PathBuf::from(tier), link.file_name(), text))
    };
    let made = world.links(Path::new(HOST)).into_iter();
    made.filter(|(name, _)| !name.starts_with('.')).filter_map(parsed).collect()
}

/// Links without a file, by the name that they have in `lost/`, and what they say.
fn dangling(world: &World) -> Vec<(String, String)> {
    let is_there = |tier: &Path, file: &str| world.list(tier).iter().any(|(name, _)| name == file);
    let all = links(world).into_iter().filter(|(tier, file, _)| !is_there(tier, file));
    all.map(|(_, file, text)| (file, text)).collect()
}

/// Each tier file has one link, links that led nowhere are kept, and nothing is unfinished.
fn check_tidy(world: &World, dangled: &[(String, String)]) -> Result<(), String> {
    let lost = world.links(&Path::new(HOST).join(".thermocline/lost"));
    if let Some((file, text)) = dangled.iter().find(|link| !lost.contains(link)) {
        return Err(format!("the link to {file}, {text}, is not in lost/"));
    }
    let mut linked: Vec<_> = links(world).into_iter().map(|(tier, file, _)| (tier, file)).collect();
    linked.sort();
    let is_tier = |path: &PathBuf| path.starts_with(FAST) || path.starts_with(SLOW);
    let mut files = Vec::new();
    for path in world.paths().into_iter().filter(is_tier) {
        let of_hosts = world.list(&path).into_iter().filter(|(name, _)| name.contains('-'));
        files.extend(of_hosts.map(|(name, _)| (path.clone(), name)));
    }
    files.sort();
    if files != linked {
        return Err(format!("the tiers have {files:?}, the links say {linked:?}"));
    }
    let names = world.list(Path::new(HOST));
    match names.iter().find(|(name, _)| name.starts_with(".thermocline")) {
        Some((name, _)) => Err(format!("{name} is left over")),
        None => Ok(()),
    }
}
