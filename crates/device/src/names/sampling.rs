//! What the tiers' devices are asked to do, and what they do under the host's own traffic
//! (`profile/online.rs`).
//!
//! 1. Writers of all tiers on one device count together: it serves them together.
//! 2. What other programs, or other directories of the host, write there looks like the doing of
//!    these writers. Where that misleads, `profile=fixed` is for.
//! 3. A profile that was measured, or that fio reported, is never replaced on disk, also where that
//!    happened while the directory is open: the next opening begins with it.
//! 4. A profile of earlier traffic is where an opening starts, for an hour or until its own traffic
//!    shows something. What its traffic does not show any more does not count.
//!
//! Threads: one at a time samples and stores.

use super::Names;
use crate::driver::DeviceCounts;
use crate::error::{ErrorKind, Result};
use crate::placement::TierUse;
use crate::profile::{COUNTS_FOR_NS, Curve, OnlineCurve, Sample, Source, TierProfile};
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;

/// Samples after which a curve is worked out anew, and time after which it is without them.
const SAMPLES_OF_CURVE: u32 = 10;
const CURVE_NS: u64 = 60_000_000_000;

/// What was seen of each tier's device.
#[derive(Debug, Default)]
pub(super) struct Sampling(Mutex<Vec<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last look: when, what the device had done, writers.
    last: Option<(u64, DeviceCounts, u16)>,
    curve: OnlineCurve,
    /// Samples since the last curve, and when that was.
    samples: u32,
    curve_ns: u64,
    /// What was known when the directory was opened, and when the first look was.
    stored: Option<(Arc<TierProfile>, u64)>,
    /// Traffic showed something since then.
    has_learned: bool,
    /// What is known differs from what is on disk.
    is_changed: bool,
}

impl Seen {
    /// What is known now of a device of which `stored` was at `first_ns`.
    fn profile(&mut self, stored: &TierProfile, first_ns: u64, now_ns: u64) -> TierProfile {
        let is_measured = is_measured(stored.source);
        let nothing = Curve::default();
        let measured = if is_measured { &stored.write } else { &nothing };
        if let Some(write) = self.curve.curve(measured, now_ns) {
            self.has_learned = true;
            return TierProfile { source: Source::Online, write, ..stored.clone() };
        }
        let is_start = !self.has_learned && now_ns.saturating_sub(first_ns) < COUNTS_FOR_NS;
        match is_measured || is_start {
            true => stored.clone(),
            false => TierProfile { source: Source::Unknown, write: nothing, ..stored.clone() },
        }
    }
}

fn is_measured(source: Source) -> bool {
    matches!(source, Source::Measured | Source::Fio)
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
            let Some(known) = host.loads.profile(tier.index()) else { continue };
            let here = device(at);
            let same = (0..writers.len()).filter(|other| device(*other) == here);
            let workers = same.map(|other| writers[other]).fold(0_u16, u16::saturating_add);
            let first = || (Arc::clone(&known), now_ns);
            let (stored, first_ns) = seen.stored.get_or_insert_with(first).clone();
            if let Some((before_ns, before, workers_before)) =
                seen.last.replace((now_ns, counts, workers))
            {
                let sample = Sample {
                    workers: [workers_before, workers],
                    at_ns: now_ns,
                    ns: now_ns.saturating_sub(before_ns),
                    bytes: counts.written_bytes.saturating_sub(before.written_bytes),
                    read_bytes: counts.read_bytes.saturating_sub(before.read_bytes),
                    busy_ns: counts.busy_ns.saturating_sub(before.busy_ns),
                };
                is_busy |= counts != before;
                seen.samples += u32::from(seen.curve.add(sample));
            }
            let is_weighed = seen.samples >= SAMPLES_OF_CURVE;
            if is_weighed {
                seen.samples = 0;
                seen.curve.weigh();
            }
            if is_weighed || now_ns.saturating_sub(seen.curve_ns) >= CURVE_NS {
                seen.curve_ns = now_ns;
                let profile = seen.profile(&stored, first_ns, now_ns);
                if profile != *known {
                    host.loads.set_profile(tier.index(), profile);
                    seen.is_changed = true;
                }
            }
        }
        is_busy
    }

    /// Keeps what is known of devices that were not measured, for the next opening.
    ///
    /// Errors: it is not kept, and nothing else is changed.
    pub fn store_profiles(&self) -> Result<()> {
        let host = &self.host;
        let mut all = host.sampling.0.lock();
        for (tier, seen) in host.identities.iter().zip(all.iter_mut()) {
            if !std::mem::take(&mut seen.is_changed) || !self.is_writer() {
                continue;
            }
            // It may have been measured meanwhile.
            let is_open = match TierProfile::read(&**tier.driver()) {
                Ok(there) => !is_measured(there.source),
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
            if !is_open {
                continue;
            }
            if let Some(profile) = host.loads.profile(tier.index()) {
                profile.write(&**tier.driver())?;
            }
        }
        Ok(())
    }
}
