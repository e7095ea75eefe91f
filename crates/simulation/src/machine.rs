//! A simulated machine: devices, a clock, one thread, and the engine on top of them.

use crate::clock::SimulatedClock;
use crate::devices::{Devices, World};
use crate::history::{HOME, TIERS, notes_first_writes};
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, Environment, Result, Settings, Stepper, Workers};
use thermocline_foundation::Clock;
use thermocline_foundation::random::{Random, mix};

/// See the module's header.
#[derive(Debug)]
pub struct Machine {
    /// Where everything is stored.
    pub devices: Devices,
    /// Its time.
    pub clock: Arc<SimulatedClock>,
    /// Its background work.
    pub stepper: Arc<Stepper>,
    /// What the engine is given.
    pub environment: Environment,
}

impl Machine {
    /// A machine that starts with `world`; the order of its background work follows from `seed`.
    pub fn new(world: World, seed: u64) -> Self {
        let stepper = Arc::new(Stepper::new(mix(seed ^ 0x57E9)));
        let clock = Arc::new(SimulatedClock::new(Arc::clone(&stepper)));
        let devices = Devices::new(world, Arc::clone(&clock));
        let environment = Environment {
            devices: Arc::new(devices.clone()),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            workers: Workers::Stepped(Arc::clone(&stepper)),
            ..Environment::default()
        };
        Self { devices, clock, stepper, environment }
    }

    /// A machine with empty directories whose alignments follow from `seed`.
    pub fn empty(seed: u64) -> Self {
        let machine = Self::new(World::new(mix(seed)), seed);
        let mut random = Random::new(mix(seed ^ 0xA116));
        for path in TIERS.iter().chain([&HOME]) {
            let alignment = [1, 512, 4096][random.below(3) as usize];
            machine.devices.set_alignment(Path::new(path), alignment);
            if notes_first_writes(seed) {
                machine.devices.set_notes_first_writes(Path::new(path));
            }
        }
        machine
    }

    /// Makes the database.
    pub fn create(&self, settings: &Settings) -> Result<Db> {
        self.environment.create(Path::new(HOME), settings)
    }

    /// Opens the database.
    pub fn open(&self) -> Result<Db> {
        self.environment.open(Path::new(HOME))
    }

    /// Opens the database for reading only.
    pub fn open_read_only(&self) -> Result<Db> {
        self.environment.open_read_only(Path::new(HOME))
    }

    /// Opens the database with other settings.
    pub fn open_with(&self, settings: &Settings) -> Result<Db> {
        self.environment.open_with(Path::new(HOME), settings)
    }

    /// Nanoseconds that have passed for callers: the clock's without its jumps, and without those
    /// that calls took because devices were slow or stalled.
    pub fn waited_ns(&self) -> u64 {
        self.clock.peek_ns() - self.clock.jumped_ns() - self.devices.stalled_ns()
    }

    /// Ends the process that has `db` open: nothing it still does has an effect.
    pub fn kill(&self, db: Option<Db>) {
        self.devices.watch(None);
        self.devices.end_process();
        drop(db);
    }
}
