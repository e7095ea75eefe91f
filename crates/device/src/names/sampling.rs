//! What the tiers' devices are asked to do, and what they do under the host's own traffic
//! (`profile/online.rs`).
//!
//! 1. Writers of all tiers on one device count together: it serves them together. To an emulated
//!    device only its own tier's are known, and they count to the real one below it as well.
//! 2. What other programs, or other directories of the host, write there looks like the doing of
//!    these writers. Where that misleads, `profile=fixed` is for.
//! 3. A profile that was measured, or that fio reported, is never replaced on disk, also where that
//!    happened while the directory is open: the next opening begins with it.
//! 4. A profile of earlier traffic is where an opening starts, for an hour or until its own traffic
//!    shows something. What its traffic does not show any more does not count.
//!
//! Threads: one at a time samples and stores.

use super::Names;
use crate::driver::{CountedDevice, DeviceCounts, Driver};
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

/// The devices that serve a tier, that of its counts first.
type Served = [Option<CountedDevice>; 2];

fn served_by(driver: &dyn Driver) -> Served {
    let real = driver.directory_id().map(|id| CountedDevice::Real(id.device));
    [driver.counted_device(), real]
}

/// Writers of the device that each tier's counts are of, of all tiers that it serves.
fn workers_of(tiers: &[Served], writers: &[u16]) -> Vec<u16> {
    let workers = |at: usize| {
        let [counted, _] = tiers[at];
        let is_served =
            |other: usize| other == at || counted.is_some() && tiers[other].contains(&counted);
        let others = (0..tiers.len()).filter(|other| is_served(*other));
        others.map(|other| writers[other]).fold(0_u16, u16::saturating_add)
    };
    (0..tiers.len()).map(workers).collect()
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
        let served: Vec<_> =
            host.identities.iter().map(|tier| served_by(&**tier.driver())).collect();
        let writers: Vec<_> =
            host.identities.iter().map(|tier| host.loads.writers(tier.index())).collect();
        let workers = workers_of(&served, &writers);
        for ((tier, seen), workers) in host.identities.iter().zip(all.iter_mut()).zip(workers) {
            let Some(counts) = tier.driver().device_counts() else { continue };
            let Some(known) = host.loads.profile(tier.index()) else { continue };
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
                    unwritten_bytes: counts.unwritten_bytes,
                };
                is_busy |= counts.differs_from(&before);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_count_to_the_device_that_serves_them_and_to_no_emulated_one_beside_it() {
        use CountedDevice::{Emulated, Real};
        let real = |number| [Some(Real(number)); 2];
        let emulated = |number, below| [Some(Emulated(number)), Some(Real(below))];
        let unknown = [None; 2];
        for (what, tiers, expected) in [
            ("two devices", [real(1), real(2), unknown], [1, 4, 16]),
            ("one device", [real(1), real(1), real(1)], [21, 21, 21]),
            ("one that is emulated on a real one", [emulated(7, 1), real(1), real(2)], [1, 5, 16]),
            ("two emulated on a real one", [emulated(7, 1), emulated(8, 1), real(1)], [1, 4, 21]),
            ("the number of another kind", [emulated(1, 2), real(1), real(2)], [1, 4, 17]),
            ("none that can be told", [unknown; 3], [1, 4, 16]),
        ] {
            assert_eq!(workers_of(&tiers, &[1, 4, 16]), expected, "{what}");
        }
    }
}
