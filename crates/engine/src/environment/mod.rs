//! What a database stands on: machine, clock and workers, as plain data.
//!
//! `db.rs` opens databases on it, and `engine/opening.rs` makes the parts of one from it.

pub(crate) mod experiments;
pub(crate) mod regions;

use crate::jobs::Workers;
use experiments::Experiments;
use regions::{MappedRegions, Regions};
use std::sync::Arc;
use thermocline_device::{Devices, SystemDevices, Unreadable};
use thermocline_foundation::{Clock, SystemClock};

/// What a database stands on: replaced in tests and simulations.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Where homes and tiers are.
    pub devices: Arc<dyn Devices>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What does the background work.
    pub workers: Workers,
    /// What comparisons vary: rules and parameters that no settings file reaches.
    pub experiments: Experiments,
    /// Where regions of persistent memory are.
    pub regions: Arc<dyn Regions>,
    /// What a repair makes of bytes that a device does not give: whether it is known that it never
    /// does.
    pub unreadable: Unreadable,
}

impl Default for Environment {
    /// This machine.
    fn default() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let devices = Arc::new(SystemDevices::new(Arc::clone(&clock)));
        let experiments = Experiments::default();
        let regions = Arc::new(MappedRegions);
        let unreadable = Unreadable::default();
        Self { devices, clock, workers: Workers::Threads, experiments, regions, unreadable }
    }
}
