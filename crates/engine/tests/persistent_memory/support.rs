//! A machine with directories in memory and a region of which every store is remembered, so that a
//! test can cut the power between any two of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use thermocline::{
    ByteSize, Db, Environment, PersistentMemory, Preset, RegionDriver, Regions, Settings, Stepper,
    Tier, Workers,
};
use thermocline_device::{
    Buffer, Devices, Driver, Error, ErrorKind, MemoryDevices, Operation, Result,
};
use thermocline_pmem::shadow::{Crash, Model, Shadow};
use thermocline_pmem::{Circumstances, Medium};

pub const HOME: &str = "/home";
pub const TIER: &str = "/disk";
pub const REGION: &str = "/pmem/region";

pub const PERSISTENT: Circumstances =
    Circumstances { is_synchronous: true, boot: [3; 16], dirty_shutdowns: None };

type Remembered = (Vec<u64>, Arc<Shadow>);

/// Regions by path: what each began with, and what remembers its stores since.
#[derive(Debug)]
pub struct ShadowRegions {
    files: Mutex<BTreeMap<PathBuf, Remembered>>,
    now: Circumstances,
}

impl ShadowRegions {
    pub fn new(now: Circumstances) -> Self {
        Self { files: Mutex::default(), now }
    }

    /// The same regions, of which that at `path` holds `image`.
    pub fn with(path: &str, image: &[u64], now: Circumstances) -> Self {
        let file = (image.to_vec(), Arc::new(Shadow::new(image)));
        Self { files: Mutex::new([(path.into(), file)].into()), now }
    }

    pub fn shadow(&self, path: &str) -> Arc<Shadow> {
        Arc::clone(&self.files.lock().unwrap()[Path::new(path)].1)
    }

    /// All that was stored: what the end of the process leaves.
    pub fn stored(&self, path: &str) -> Vec<u64> {
        let mut all = Vec::new();
        last_crash(&self.shadow(path)).images(Model::X86, 1, 0, |image| all = image.to_vec());
        all
    }
}

/// The crash at the end.
pub fn last_crash(shadow: &Shadow) -> Crash {
    let mut count = 0;
    shadow.crashes(|_| count += 1);
    let mut last = None;
    shadow.crashes(|crash| {
        count -= 1;
        if count == 0 {
            last = Some(crash.clone());
        }
    });
    last.unwrap()
}

impl Regions for ShadowRegions {
    fn create(&self, path: &Path, bytes: u64, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        let zeros = vec![0; (bytes / 8) as usize];
        let shadow = Arc::new(Shadow::new(&zeros));
        let medium = Medium::shadowed_by(Arc::clone(&shadow), &zeros);
        self.files.lock().unwrap().insert(path.into(), (zeros, shadow));
        Ok((medium, self.now))
    }

    fn open(&self, path: &Path, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        let mut files = self.files.lock().unwrap();
        let Some((start, shadow)) = files.get_mut(path) else {
            return Err(Error::new(ErrorKind::NotFound, "there is none"));
        };
        last_crash(shadow).images(Model::X86, 1, 0, |image| *start = image.to_vec());
        *shadow = Arc::new(Shadow::new(start));
        Ok((Medium::shadowed_by(Arc::clone(shadow), start), self.now))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.files.lock().unwrap().remove(path);
        Ok(())
    }
}

/// A copy of the directories, as the end of the process leaves them.
pub fn copy_of(devices: &MemoryDevices) -> MemoryDevices {
    let copy = MemoryDevices::new();
    for path in [HOME, TIER] {
        let Some(from) = devices.directory(Path::new(path)) else { continue };
        copy.create_directory(Path::new(path)).unwrap();
        let to = copy.directory(Path::new(path)).unwrap();
        for entry in from.list().unwrap() {
            let file = from.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed(file.len().unwrap() as usize);
            let read = from.execute(&file, Operation::Read { offset: 0, buffer });
            let made = to.create(&entry.name).unwrap();
            let write = Operation::Write { offset: 0, buffer: read.buffer, durable: false };
            to.execute(&made, write).result.unwrap();
        }
    }
    copy
}

pub fn settings() -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![Tier::new(TIER, ByteSize::mib(256)).driver("memory")],
        memory: ByteSize::mib(3),
        background_threads: 1,
        persistent_memory: Some(PersistentMemory::new(REGION, ByteSize::mib(16))),
        ..Settings::default()
    }
}

/// An environment whose background work is done by the threads that wait for it.
pub fn stepped(devices: Arc<dyn Devices>, regions: &Arc<ShadowRegions>) -> Environment {
    Environment {
        devices,
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        regions: Arc::clone(regions) as _,
        ..Environment::default()
    }
}

/// A machine and the database on it.
pub struct Machine {
    pub devices: MemoryDevices,
    pub regions: Arc<ShadowRegions>,
}

impl Machine {
    pub fn new() -> Self {
        let regions = Arc::new(ShadowRegions::new(PERSISTENT));
        Self { devices: MemoryDevices::new(), regions }
    }

    pub fn environment(&self) -> Environment {
        stepped(Arc::new(self.devices.clone()), &self.regions)
    }

    pub fn create(&self) -> Db {
        self.environment().create(Path::new(HOME), &settings()).unwrap()
    }

    /// The machine after its process has ended, with all that it had stored.
    pub fn killed(&self, db: Db) -> Self {
        std::mem::forget(db);
        let image = self.regions.stored(REGION);
        Self::of(copy_of(&self.devices), &image)
    }

    /// A machine with these directories and this region.
    pub fn of(devices: MemoryDevices, image: &[u64]) -> Self {
        let regions = Arc::new(ShadowRegions::with(REGION, image, PERSISTENT));
        Self { devices, regions }
    }

    pub fn open(&self) -> thermocline::Result<Db> {
        self.environment().open(Path::new(HOME))
    }

    /// What the file `DATABASE` says.
    pub fn database_file(&self) -> String {
        let home = self.devices.directory(Path::new(HOME)).unwrap();
        let file = home.open("DATABASE").unwrap();
        let buffer = Buffer::zeroed(file.len().unwrap() as usize);
        let read = home.execute(&file, Operation::Read { offset: 0, buffer });
        String::from_utf8(read.buffer.to_vec()).unwrap()
    }
}
