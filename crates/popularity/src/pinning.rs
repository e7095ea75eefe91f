//! The mapper's decision: which keys stay on the fast tier (§4.3).
//!
//! A threshold of 70 % means that the most popular 70 % of the tracked keys are pinned. Values are
//! few and their distribution follows the workload, so the threshold hardly ever falls between two
//! of them. The paper's algorithm: take whole values from the hottest down while they fit; of the
//! first value that does not, pin a random part, as large as what is left; below it, nothing.
//!
//! ```text
//!   value        3      2      1      0        threshold 15 %
//!   share      10 %   10 %   30 %   50 %
//!   pinned      all    half   none   none      and never what is not tracked
//! ```
//!
//! Invariants:
//! 1. The expected number of pinned keys is the threshold times the tracked keys.
//! 2. A hotter key is never less likely to be pinned than a colder one.
//! 3. A key that is not tracked is never pinned.

use crate::histogram::{Histogram, VALUES};

/// The share of tracked keys to pin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PinningThreshold {
    share: f64,
}

impl Default for PinningThreshold {
    /// 70 %, the paper's choice for mixed workloads (§7.4).
    fn default() -> Self {
        Self { share: 0.7 }
    }
}

impl PinningThreshold {
    /// A threshold in `[0, 1]`; what lies outside is brought to the nearer end.
    pub fn new(share: f64) -> Self {
        Self { share: if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) } }
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.share
    }

    /// The decision for every value, from the distribution of values now. A demotion takes one and
    /// uses it for its whole range.
    pub fn pinning(self, histogram: &Histogram) -> Pinning {
        self.pinning_within(histogram, f64::INFINITY)
    }

    /// As [`PinningThreshold::pinning`], and not more than `keys_max` keys: what a fast tier that
    /// is small beside the tracker has room for.
    pub fn pinning_within(self, histogram: &Histogram, keys_max: f64) -> Pinning {
        Pinning::of_keys(histogram, keys_max.min(self.share * histogram.total() as f64))
    }
}

/// The decision for each value: pinned, not pinned, or pinned with a probability.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pinning {
    shares: [f64; VALUES],
}

impl Pinning {
    /// Pins so that about `keys` of the keys in the histogram are pinned.
    pub fn of_keys(histogram: &Histogram, keys: f64) -> Self {
        let mut shares = [0.0; VALUES];
        let mut left = keys.max(0.0);
        for value in (0..VALUES).rev() {
            if left <= 0.0 {
                break;
            }
            let count = histogram.count(value) as f64;
            if count <= left {
                // Values that no key has now, too: a key that gets one meanwhile is hot enough.
                shares[value] = 1.0;
                left -= count;
            } else {
                shares[value] = left / count;
                break;
            }
        }
        Self { shares }
    }

    /// Pins nothing.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Whether a key of this value is pinned; `draw` is a random number in `[0, 1)`. A draw derived
    /// from the key's hash gives the same answer every time, and keeps a key from wandering.
    pub fn decide(&self, value: Option<u8>, draw: f64) -> bool {
        draw < self.probability(value)
    }

    /// The probability that a key of this value is pinned.
    pub fn probability(&self, value: Option<u8>) -> f64 {
        value.map_or(0.0, |value| self.shares[usize::from(value).min(VALUES - 1)])
    }
}
