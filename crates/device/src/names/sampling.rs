//! What the tiers' devices are asked to do, and what they do under the host's own traffic
//! (`profile/online.rs`).
//!
//! 1. Writers of all tiers on one device count together: it serves them together.
//! 2. What other programs, or other directories of the host, write there looks like the doing of
//!    these writers. Where that misleads, `profile=fixed` is for.
//! 3. A profile that was measured, or that fio reported, is never replaced on disk: the next
//!    opening begins with it.
//!
//! Threads: one at a time samples and stores.

use super::Names;
use crate::driver::DeviceCounts;
use crate::error::Result;
use crate::placement::TierUse;
use crate::profile::{OnlineCurve, Sample, Source, TierProfile};
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;

/// Samples after which a curve is worked out anew.
const SAMPLES_OF_CURVE: u32 = 10;

/// What was seen of each tier's device.
#[derive(Debug, Default)]
pub(super) struct Sampling(Mutex<Vec<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last look: when, what the device had done, writers.
    last: Option<(u64, DeviceCounts, u16)>,
    curve: OnlineCurve,
    /// Samples since the last curve.
    samples: u32,
    /// What was known when the directory was opened.
    stored: Option<Arc<TierProfile>>,
    /// It differs from what is on disk.
    is_learned: bool,
}

impl Names {
    /// From now on placement and moves are told what the devices can do, as far as that is known,
    /// and how many writers they have.
    pub fn measure_load(&self, clock: Arc<dyn Clock>) {
        let identities = self.host.identities.iter().map(|tier| tier.driver());
        self.host.loads.measure(clock, identities);
    }

    /// So many seconds passed: placement looks again at writers and room.
    pub fn seconds_passed(&self, seconds: u32) {
        let seconds = TierUse { bytes_per_s: 0, peak_bytes_per_s: 0, periods: seconds };
        self.host.placement.measured(seconds, &self.host.tier_states());
    }

    /// Looks at what the tiers' devices did since the last look. Placement and moves go by it. Does
    /// nothing before [`Names::measure_load`]. True where a device did something.
    pub fn sample_devices(&self, now_ns: u64) -> bool {
        let mut is_busy = false;
        let host = &self.host;
        let mut all = host.sampling.0.lock();
        all.resize_with(host.identities.len(), Seen::default);
        let device = |at: usize| {
            let id = host.identities[at].driver().directory_id();
            id.map(|id| id.device)
        };
        let writers: Vec<_> =
            host.identities.iter().map(|t| host.loads.writers(t.index())).collect();
        for (at, (tier, seen)) in host.identities.iter().zip(all.iter_mut()).enumerate() {
            let Some(counts) = tier.driver().device_counts() else { continue };
            let Some(stored) = host.loads.profile(tier.index()) else { continue };
            let here = device(at);
            let same = (0..writers.len()).filter(|other| device(*other) == here);
            let workers = same.map(|other| writers[other]).fold(0_u16, u16::saturating_add);
            let stored = Arc::clone(seen.stored.get_or_insert(stored));
            if let Some((before_ns, before, workers_before)) =
                seen.last.replace((now_ns, counts, workers))
            {
                let sample = Sample {
                    workers: [workers_before, workers],
                    ns: now_ns.saturating_sub(before_ns),
                    bytes: counts.written_bytes.saturating_sub(before.written_bytes),
                    busy_ns: counts.busy_ns.saturating_sub(before.busy_ns),
                };
                is_busy |= counts != before;
                seen.samples += u32::from(seen.curve.add(sample));
            }
            if seen.samples < SAMPLES_OF_CURVE {
                continue;
            }
            seen.samples = 0;
            if let Some(write) = seen.curve.curve(&stored.write) {
                let profile = TierProfile { source: Source::Online, write, ..(*stored).clone() };
                host.loads.set_profile(tier.index(), profile);
                seen.is_learned = true;
            }
        }
        is_busy
    }

    /// Keeps what was seen of devices that were not known before, for the next opening.
    ///
    /// Errors: it is not kept, and nothing else is changed.
    pub fn store_profiles(&self) -> Result<()> {
        let host = &self.host;
        let mut all = host.sampling.0.lock();
        for (tier, seen) in host.identities.iter().zip(all.iter_mut()) {
            let stored = seen.stored.as_ref().map(|stored| stored.source);
            let is_open = matches!(stored, Some(Source::Unknown | Source::Online));
            if !std::mem::take(&mut seen.is_learned) || !is_open || !self.is_writer() {
                continue;
            }
            if let Some(profile) = host.loads.profile(tier.index()) {
                profile.write(&**tier.driver())?;
            }
        }
        Ok(())
    }
}
