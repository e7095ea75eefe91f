//! What tests of the engine's inside share: stores on devices in memory whose background work waits
//! to be stepped, so that a test says what happens, and when.

use crate::jobs::{Stepper, Workers};
use crate::{ByteSize, Db, Environment, Preset, Settings, Tier};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::MemoryDevices;

/// A tier in memory.
pub(crate) fn tier(path: &str, mib: u64) -> Tier {
    Tier::new(path, ByteSize::mib(mib)).driver("memory")
}

/// Settings of the preset `hybrid` over two small tiers.
pub(crate) fn hybrid() -> Settings {
    Settings {
        preset: Preset::Hybrid,
        tiers: vec![tier("/fast", 16), tier("/slow", 64)],
        ..Settings::default()
    }
}

/// Empty devices, and nobody who does background work but those who have to wait for it.
pub(crate) fn stepped_environment() -> Environment {
    Environment {
        devices: Arc::new(MemoryDevices::default()),
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        ..Environment::default()
    }
}

/// A new store whose background work waits to be stepped.
pub(crate) fn stepped(settings: &Settings) -> Db {
    stepped_environment().create(Path::new("/home"), settings).expect("memory holds any store")
}
