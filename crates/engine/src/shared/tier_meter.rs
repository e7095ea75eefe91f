//! How much of the fast tier's bandwidth is used, for the placement that goes by it (SpanDB,
//! section 4.3).
//!
//! There is no timer: the meter is asked when the levels have changed, before the next table is
//! made, and the pointer of the policy matters at no other time. If less than a period has passed
//! it says nothing; else it says the mean since it last spoke, and over how many periods. The
//! tier's counters say what was asked of it: with the driver `posix` that is more than the device
//! moved.
//!
//! Threads: any; the lock is held for moments.

use crate::settings::Settings;
use std::time::Duration;
use thermocline_device::placement::PEAK_MIN;
use thermocline_device::{TierIndex, TierProfile, TierUse, TieredFiles};
use thermocline_foundation::sync::Mutex;

/// How often the use is measured, at most.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Reading {
    at_ns: u64,
    bytes: u64,
    peak_bytes_per_s: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct TierMeter {
    last: Mutex<Reading>,
    /// What the tier can move a second is known, and not to be measured.
    is_known: bool,
}

/// What a tier can move a second, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peak {
    Known(u64),
    /// Its best second counts where that is more.
    AtLeast(u64),
}

impl Peak {
    /// Of the fast tier: as the settings say; else what any tier can at least, or what a profile of
    /// it does where that is more.
    pub fn of(settings: &Settings, files: &TieredFiles) -> Self {
        if settings.bandwidth_peak.0 > 0 {
            return Self::Known(settings.bandwidth_peak.0);
        }
        let fast = files.tiers().first().map(|tier| TierProfile::of(&**tier.driver()));
        let best = |of: TierProfile| of.read.bytes_per_s_max().max(of.write.bytes_per_s_max());
        Self::AtLeast(fast.and_then(best).unwrap_or(0).max(PEAK_MIN))
    }
}

impl TierMeter {
    /// A meter that is read from `now_ns` on.
    pub fn new(now_ns: u64, peak: Peak) -> Self {
        let is_known = matches!(peak, Peak::Known(_));
        let (Peak::Known(peak_bytes_per_s) | Peak::AtLeast(peak_bytes_per_s)) = peak;
        Self { last: Mutex::new(Reading { at_ns: now_ns, bytes: 0, peak_bytes_per_s }), is_known }
    }

    /// The use of the fast tier since the last answer; none within the same period.
    pub fn read(&self, now_ns: u64, files: &TieredFiles) -> Option<TierUse> {
        let traffic = files.tiers().get(TierIndex(0).position())?.traffic_total();
        self.count(now_ns, traffic.read_bytes + traffic.written_bytes)
    }

    fn count(&self, now_ns: u64, bytes: u64) -> Option<TierUse> {
        let mut last = self.last.lock();
        let elapsed_ns = now_ns.saturating_sub(last.at_ns);
        let periods = u128::from(elapsed_ns) / PERIOD.as_nanos();
        if periods == 0 {
            return None;
        }
        let moved = u128::from(bytes.saturating_sub(last.bytes));
        let bytes_per_s = moved * 1_000_000_000 / u128::from(elapsed_ns);
        let bytes_per_s = u64::try_from(bytes_per_s).unwrap_or(u64::MAX);
        (last.at_ns, last.bytes) = (now_ns, bytes);
        if !self.is_known {
            last.peak_bytes_per_s = last.peak_bytes_per_s.max(bytes_per_s);
        }
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        Some(TierUse { bytes_per_s, peak_bytes_per_s: last.peak_bytes_per_s, periods })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: u64 = 1_000_000;

    fn used(mib: u64, peak_mib: u64, periods: u32) -> Option<TierUse> {
        Some(TierUse { bytes_per_s: mib * MIB, peak_bytes_per_s: peak_mib * MIB, periods })
    }

    #[test]
    fn the_mean_is_said_once_a_period_and_the_best_one_is_the_peak() {
        let meter = TierMeter::new(500 * MS, Peak::AtLeast(PEAK_MIN));
        assert_eq!(meter.count(1_499 * MS, 9 * MIB), None, "not a period yet");
        assert_eq!(meter.count(1_500 * MS, 10 * MIB), used(10, 128, 1), "little was asked of it");
        assert_eq!(meter.count(1_600 * MS, 11 * MIB), None);
        assert_eq!(meter.count(2_500 * MS, 310 * MIB), used(300, 300, 1));
        assert_eq!(meter.count(6_500 * MS, 350 * MIB), used(10, 300, 4));
        assert_eq!(meter.count(6_400 * MS, 350 * MIB), None, "a clock that went back");
    }

    #[test]
    fn a_peak_that_is_known_stays() {
        let meter = TierMeter::new(0, Peak::Known(100 * MIB));
        assert_eq!(meter.count(1_000 * MS, 300 * MIB), used(300, 100, 1));
        assert_eq!(meter.count(2_000 * MS, 310 * MIB), used(10, 100, 1));
    }
}
