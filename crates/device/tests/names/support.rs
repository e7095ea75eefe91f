//! A host's directory, a fast and a slow tier, in a scratch directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tempfile::TempDir;
use thermocline_device::{
    Error, FileClass, FileContext, FileInfo, FileKind, Holds, NamedFile, Names, Origin, Placement,
    Result, SystemDevices, TierIndex, TierSpec, TierState,
};
use thermocline_foundation::{ByteSize, Clock, FileNumber};

pub struct Place {
    pub scratch: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let scratch = TempDir::new().unwrap();
        for name in ["db", "fast", "slow"] {
            fs::create_dir(scratch.path().join(name)).unwrap();
        }
        Self { scratch }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn spec(&self, name: &str, capacity: ByteSize) -> TierSpec {
        TierSpec { path: self.path(name), capacity, driver: "posix".to_owned() }
    }

    pub fn specs(&self, names: &[&str]) -> Vec<TierSpec> {
        names.iter().map(|name| self.spec(name, ByteSize::gib(1))).collect()
    }

    pub fn make(&self, host: &str, tiers: &[&str]) -> Names {
        let tiers = self.specs(tiers);
        Names::make(devices(), &self.path(host), &tiers, policy()).unwrap()
    }

    pub fn load(&self, host: &str) -> Result<Names> {
        Names::load(devices(), &self.path(host), None, policy())
    }

    pub fn rehome(&self, host: &str) -> Result<()> {
        Names::rehome(devices(), &self.path(host), None, policy())
    }

    /// The directory that the host has on a tier; there is one host.
    pub fn instance(&self, tier: &str) -> PathBuf {
        let mut entries = fs::read_dir(self.path(tier)).unwrap();
        entries.next().unwrap().unwrap().path()
    }

    /// The host's files on a tier, and other names that are not this software's own.
    pub fn on_tier(&self, tier: &str) -> Vec<String> {
        let mut names = listed(&self.instance(tier));
        names.retain(|name| !["TIER", "HOME", "LOCK"].contains(&name.as_str()));
        names
    }
}

/// Time passes where the test says so, and where a caller sleeps.
#[derive(Debug, Default)]
pub struct SteppedClock(pub AtomicU64);

impl Clock for SteppedClock {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(duration.as_nanos() as u64, SeqCst);
    }
}

pub fn devices() -> Arc<SystemDevices> {
    Arc::new(SystemDevices::default())
}

/// Logs and levels 0 to 2 on the fastest tier, the rest on the slowest, where one has room.
#[derive(Debug)]
struct UpperLevels;

impl Placement for UpperLevels {
    fn name(&self) -> &'static str {
        "upper_levels"
    }

    fn place(&self, context: FileContext, bytes: u64, tiers: &[TierState]) -> Option<TierIndex> {
        let is_upper = !matches!(context.kind, FileKind::Table { level } if level > 2);
        let has_room = |tier: &TierState| tier.used_bytes + bytes <= tier.capacity_bytes;
        let to = if is_upper { 0 } else { tiers.len() - 1 };
        tiers.iter().any(has_room).then_some(TierIndex(to as u8))
    }

    fn misplaced(&self, _: &[FileInfo], _: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        Vec::new()
    }
}

pub fn policy() -> Arc<dyn Placement> {
    Arc::new(UpperLevels)
}

pub fn class(name: &str, level: u8) -> FileClass {
    let holds = Holds::of_name(name);
    FileClass { holds, level: Some(level), origin: Origin::Flush, heat: None }
}

/// Makes a file as a host does: opened at its place, written, synced.
pub fn put(names: &Names, name: &str, level: u8, bytes: &[u8]) -> Arc<NamedFile> {
    let file = names.create(name, class(name, level)).unwrap();
    fs::write(file.place(), bytes).unwrap();
    fs::File::open(file.place()).unwrap().sync_all().unwrap();
    file.synced().unwrap();
    Arc::clone(file.file())
}

pub fn listed(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn link_of(path: &Path) -> String {
    fs::read_link(path).unwrap().to_str().unwrap().to_owned()
}

/// The error's text has every one of `parts`.
pub fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}
