//! A small store on two tiers in memory whose background work waits to be stepped.

use crate::patience::PatientClock;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Compression, Db, Environment, HybridSettings, Preset, Settings, Stepper, Tier,
    Workers,
};
use thermocline_device::{Devices, MemoryDevices};

pub const HOME: &str = "/home";

/// Settings of the preset `hybrid`, where slots are as large as what is put.
pub fn hybrid() -> Settings {
    let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
    let record_compression = Compression::None;
    Settings {
        preset: Some(Preset::Hybrid),
        hybrid: HybridSettings { record_compression, ..HybridSettings::default() },
        tiers: vec![tier("/fast", 16), tier("/slow", 64)],
        ..Settings::default()
    }
}

/// These devices, and background work that only waits and [`Db::settle`] step.
pub fn stepped_on(devices: Arc<dyn Devices>) -> Environment {
    let workers = Workers::Stepped(Arc::new(Stepper::new(1)));
    let clock = Arc::new(PatientClock::default());
    Environment { devices, workers, clock, ..Environment::default() }
}

/// A new store on empty devices.
pub fn stepped(settings: &Settings) -> Db {
    stepped_on(Arc::new(MemoryDevices::new())).create(Path::new(HOME), settings).unwrap()
}

pub fn compact(db: &Db) {
    db.compact_range(None, None, &mut |_| {}).unwrap();
}
