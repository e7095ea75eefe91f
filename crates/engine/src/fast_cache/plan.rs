//! What follows from the settings for the cache of one opening.

use crate::settings::fast_cache::{Admission, Eviction, FastCacheSettings};
use crate::settings::{Preset, Settings};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::file_cache::Layout;
use thermocline_popularity::{AdmissionPolicy, EvictionPolicy, WriteBudget};

const PAGE: u64 = PAGE_BYTES as u64;

/// Files of the cache are a sixteenth of it at most, so that one that goes takes little along.
const FILES_MIN: u64 = 16;

/// Batches that a file has at least.
const BATCHES_MIN: u64 = 4;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub capacity_bytes: u64,
    pub file_bytes: u64,
    pub batch_bytes: usize,
    /// What a stored block is expected to have.
    pub block_bytes: u64,
    pub layout: Layout,
    pub admission: AdmissionPolicy,
    pub eviction: EvictionPolicy,
    /// Partitions of indexes and filters have copies of their own on tier 0.
    pub data_only: bool,
    write_budget_dwpd: f64,
    tier_bytes: u64,
}

impl Plan {
    /// With `granted_bytes` of a tier of `tier_bytes`.
    pub fn new(settings: &Settings, granted_bytes: u64, tier_bytes: u64) -> Self {
        let FastCacheSettings { file_size, batch, write_budget_dwpd, .. } = settings.fast_cache;
        let file_bytes = file_size.0.min(granted_bytes / FILES_MIN);
        let file_bytes = (file_bytes / PAGE * PAGE).max(FastCacheSettings::FILE_BYTES_MIN);
        let batch_bytes = batch.0.min(file_bytes / BATCHES_MIN) / PAGE * PAGE;
        Self {
            capacity_bytes: granted_bytes,
            file_bytes,
            batch_bytes: batch_bytes as usize,
            block_bytes: settings.stored_block_bytes(),
            layout: settings.fast_cache.layout.into(),
            admission: admission(&settings.fast_cache),
            eviction: eviction(settings.fast_cache.eviction),
            data_only: settings.preset() == Preset::Hybrid,
            write_budget_dwpd,
            tier_bytes,
        }
    }

    /// Blocks that the cache may hold.
    pub fn blocks(&self) -> u64 {
        self.capacity_bytes / self.block_bytes.max(1)
    }

    /// The budget of writes, where there is one; with its burst for the first opening alone, so
    /// that openings write no more, however many there are.
    pub fn write_budget(&self, is_first: bool, now_ns: u64) -> Option<WriteBudget> {
        let dwpd = self.write_budget_dwpd;
        let full = (dwpd > 0.0).then(|| WriteBudget::new(self.tier_bytes, dwpd, now_ns));
        if is_first { full } else { full.map(WriteBudget::emptied) }
    }
}

fn admission(settings: &FastCacheSettings) -> AdmissionPolicy {
    match settings.admission {
        Admission::SimulatedLru => {
            AdmissionPolicy::SimulatedLru { percent: settings.simulated_percent }
        }
        Admission::Always => AdmissionPolicy::Always,
        Admission::SecondAccess => AdmissionPolicy::SecondAccess,
        Admission::Frequency => AdmissionPolicy::Frequency,
    }
}

fn eviction(setting: Eviction) -> EvictionPolicy {
    match setting {
        Eviction::FifoReinsert => EvictionPolicy::FifoReinsert,
        Eviction::Fifo => EvictionPolicy::Fifo,
        Eviction::FileLru => EvictionPolicy::FileLru,
    }
}
