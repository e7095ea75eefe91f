//! Settings put together call by call:
//! `Db::builder().memory(ByteSize::gib(1)).open("/var/lib/db")`.
//!
//! The builder holds [`Settings`] and nothing else; what it does not name, they can be given as a
//! whole.

use crate::db::Db;
use crate::environment::Environment;
use crate::error::Result;
use crate::settings::{Compression, Durability, Preset, Settings, Tier};
use std::path::Path;
use thermocline_foundation::ByteSize;

/// See [`Db::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Settings,
    environment: Environment,
}

impl Db {
    /// Settings put together call by call, then a database.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Begins with these settings instead of the defaults.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Adds a tier behind (slower than) those added before.
    pub fn tier(mut self, tier: Tier) -> Self {
        self.settings.tiers.push(tier);
        self
    }

    /// Names the preset, which otherwise is the database's own, or follows from a new one's tiers.
    pub fn preset(mut self, preset: Preset) -> Self {
        self.settings.preset = Some(preset);
        self
    }

    /// Sets the memory budget for everything.
    pub fn memory(mut self, memory: ByteSize) -> Self {
        self.settings.memory = memory;
        self
    }

    /// Sets what a write without a durability of its own gets.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// Sets the compression of levels 0, 1, ...; the last one holds for all deeper levels.
    pub fn compression(mut self, levels: impl Into<Vec<Compression>>) -> Self {
        self.settings.compression = levels.into();
        self
    }

    /// Sets the number of threads for flushes and compactions.
    pub fn background_threads(mut self, threads: u32) -> Self {
        self.settings.background_threads = threads;
        self
    }

    /// Replaces what the database stands on, for tests and simulations.
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Opens the database at `home`, making it where there is none.
    pub fn open(self, home: impl AsRef<Path>) -> Result<Db> {
        self.environment.open_or_create(home.as_ref(), &self.settings)
    }

    /// As [`Db::open_read_only`], with these settings for this opening.
    pub fn open_read_only(self, home: impl AsRef<Path>) -> Result<Db> {
        self.environment.open_read_only_with(home.as_ref(), &self.settings)
    }

    /// Makes a database at `home`; an error of kind `AlreadyExists` where there is one.
    pub fn create(self, home: impl AsRef<Path>) -> Result<Db> {
        self.environment.create(home.as_ref(), &self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thermocline_device::MemoryDevices;

    #[test]
    fn what_is_built_is_what_the_database_keeps() {
        let environment =
            Environment { devices: Arc::new(MemoryDevices::new()), ..Environment::default() };
        let db = Db::builder()
            .environment(environment.clone())
            .tier(Tier::new("/fast", ByteSize::mib(64)).driver("memory"))
            .tier(Tier::new("/slow", ByteSize::gib(1)).driver("memory"))
            .memory(ByteSize::mib(16))
            .durability(Durability::Buffered)
            .compression([Compression::Zstd])
            .background_threads(1)
            .open("/home")
            .unwrap();
        let built = db.settings().clone();
        db.close().unwrap();
        let db = environment.open(Path::new("/home")).unwrap();
        assert_eq!(*db.settings(), built);
        assert_eq!(built.tiers.len(), 2);
        assert_eq!(built.memory, ByteSize::mib(16));
    }
}
