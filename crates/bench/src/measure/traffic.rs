//! Where the counts of each tier's bytes come from.
//!
//! Best are the block devices themselves, where the caller names them: they see everything that the
//! store does to them, journal and page cache included, and nothing else runs on them. Next are the
//! engine's own counters, last the kernel's sum for the process.

use super::process;
use crate::Outcome;
use crate::results::{Traffic, TrafficSource};
use crate::store::Store;

/// Reads counters; see the module's header.
#[derive(Clone, Debug)]
pub struct Meter {
    devices: Vec<String>,
}

impl Meter {
    /// Counters of `devices`, one for each tier, fastest first; none: of engine or process. A name
    /// without a device is an error.
    pub fn new(devices: &[String]) -> Outcome<Self> {
        for name in devices {
            if process::device_traffic(name).is_none() {
                return Err(format!(
                    "there is no block device '{name}' in /sys/class/block; name one as it is \
                     listed there, such as loop0 or nvme0n1"
                )
                .into());
            }
        }
        Ok(Self { devices: devices.to_vec() })
    }

    /// The counters now.
    pub fn read(&self, store: &dyn Store) -> Traffic {
        if !self.devices.is_empty() {
            let counts = self.devices.iter().map(|name| process::device_traffic(name));
            let tiers = counts.map(Option::unwrap_or_default).collect();
            return Traffic { source: TrafficSource::Devices, tiers };
        }
        if let Some(tiers) = store.tier_traffic() {
            return Traffic { source: TrafficSource::Engine, tiers };
        }
        match process::traffic() {
            Some(sum) => Traffic { source: TrafficSource::Process, tiers: vec![sum] },
            None => Traffic::default(),
        }
    }
}

impl Traffic {
    /// What was added since `before`, counted by the same source.
    pub fn since(&self, before: &Self) -> Self {
        let tiers = self.tiers.iter().zip(&before.tiers).map(|(now, then)| now.since(then));
        Self { source: self.source, tiers: tiers.collect() }
    }

    /// Bytes written to all tiers; none where nothing counted them.
    pub fn written_bytes(&self) -> Option<u64> {
        let sum = self.tiers.iter().map(|tier| tier.written_bytes).sum();
        (self.source != TrafficSource::None).then_some(sum)
    }

    /// Share of all reads that the fastest of several tiers served.
    pub fn fast_read_share(&self) -> Option<f64> {
        let reads: u64 = self.tiers.iter().map(|tier| tier.reads).sum();
        (self.tiers.len() > 1 && reads > 0).then(|| self.tiers[0].reads as f64 / reads as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TierTraffic;

    #[test]
    fn a_device_that_is_not_there_is_refused_by_name() {
        let error = Meter::new(&["no-such-device".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("no-such-device") && error.contains("/sys/class/block"), "{error}");
    }

    #[test]
    fn shares_and_sums_are_of_what_was_added() {
        let tier =
            |reads, written_bytes| TierTraffic { reads, written_bytes, ..Default::default() };
        let of = |tiers| Traffic { source: TrafficSource::Engine, tiers };
        let before = of(vec![tier(10, 5), tier(10, 5)]);
        let added = of(vec![tier(40, 105), tier(20, 25)]).since(&before);
        assert_eq!(added.written_bytes(), Some(120));
        assert_eq!(added.fast_read_share(), Some(0.75));
        assert_eq!(Traffic::default().written_bytes(), None);
        assert_eq!(of(vec![tier(1, 1)]).fast_read_share(), None);
    }
}
