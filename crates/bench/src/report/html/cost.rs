//! What the storage of a comparison would cost, and how long its slow tier would last.
//!
//! Both are projections for a database of [`Prices::database_bytes`], from what was measured on a
//! small one, as in figures 9 and 12 of the PrismDB paper (ASPLOS 2023), whose prices (table 1:
//! Optane P5800X, Intel 660p) and whose 600 GB are the defaults:
//!
//! ```text
//! cost   = fast share * size * $/GB fast + slow share * size * $/GB slow
//! years  = slow bytes * DWPD * warranty years * 365
//!          / (bytes written to slow for each operation * operations a second * seconds a year)
//! ```
//! `size` is the database times the space amplification that was measured. The slow device is as
//! large as what is on it. A maker's DWPD is the number of times a drive may be written in full
//! each day of its warranty, so the first line of `years` is all that it can take.

use crate::Outcome;
use crate::results::{Measured, Results};
use crate::store::Layout;

/// What is assumed of devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Dollars for 10^9 bytes of the fast tier.
    pub fast_per_gb: f64,
    /// Dollars for 10^9 bytes of the slow tier.
    pub slow_per_gb: f64,
    /// Full writes of the slow device a day that its maker warrants.
    pub slow_dwpd: f64,
    /// Years that it warrants them for.
    pub warranty_years: f64,
    /// Bytes of keys and values that the projection is for.
    pub database_bytes: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            fast_per_gb: 2.5,
            slow_per_gb: 0.1,
            slow_dwpd: 0.1,
            warranty_years: 5.0,
            database_bytes: 600e9,
        }
    }
}

const SECONDS_A_YEAR: f64 = 365.0 * 86_400.0;

impl Prices {
    /// The defaults, with what `NAME=NUMBER` says: `fast`, `slow`, `dwpd`, `warranty`, `gb`.
    pub fn parse(text: &str) -> Outcome<Self> {
        let mut prices = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let number = |value: &str| {
                value.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0)
            };
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = number(value)
                .ok_or_else(|| format!("'{pair}' is no price; write NAME=NUMBER above 0"))?;
            match name {
                "fast" => prices.fast_per_gb = value,
                "slow" => prices.slow_per_gb = value,
                "dwpd" => prices.slow_dwpd = value,
                "warranty" => prices.warranty_years = value,
                "gb" => prices.database_bytes = value * 1e9,
                _ => {
                    let valid = "fast and slow ($/GB), dwpd, warranty (years), gb (database)";
                    return Err(format!("there is no price '{name}'; there are {valid}").into());
                }
            }
        }
        Ok(prices)
    }

    /// Dollars of storage for the whole database in `layout`, `fast_share` of it on the fast tier
    /// where there are two.
    pub fn dollars(&self, layout: Layout, fast_share: f64, space_amplification: f64) -> f64 {
        let gigabytes = self.database_bytes * space_amplification / 1e9;
        let fast = fast_share_of(layout, fast_share);
        gigabytes * (fast * self.fast_per_gb + (1.0 - fast) * self.slow_per_gb)
    }

    /// Years until the slow device has been written as often as it may, at `ops_per_s` operations
    /// that each write `written_per_op` bytes to it; none where nothing is written.
    pub fn years(&self, slow_bytes: f64, written_per_op: f64, ops_per_s: f64) -> Option<f64> {
        let endurance = slow_bytes * self.slow_dwpd * self.warranty_years * 365.0;
        let a_year = written_per_op * ops_per_s * SECONDS_A_YEAR;
        (a_year > 0.0 && slow_bytes > 0.0).then(|| endurance / a_year)
    }

    /// Bytes of the slow device.
    pub fn slow_bytes(&self, layout: Layout, fast_share: f64, space_amplification: f64) -> f64 {
        let slow = 1.0 - fast_share_of(layout, fast_share);
        self.database_bytes * space_amplification * slow
    }
}

fn fast_share_of(layout: Layout, fast_share: f64) -> f64 {
    match layout {
        Layout::Fast => 1.0,
        Layout::Slow => 0.0,
        Layout::Tiers => fast_share.clamp(0.0, 1.0),
    }
}

/// Share of the data that the fast tier of the scenario could hold.
pub fn fast_share(results: &Results) -> f64 {
    let data = results.data_bytes().0;
    if data == 0 { 0.0 } else { results.scenario.fast_bytes as f64 / data as f64 }
}

/// Bytes written to the last tier for each operation; none where nothing counted by tier.
pub fn slow_written_per_op(measured: &Measured, layout: Layout) -> Option<f64> {
    let tiers = &measured.traffic.tiers;
    let counted = match layout {
        Layout::Fast => return None,
        Layout::Slow => tiers.first(),
        Layout::Tiers => tiers.get(1),
    };
    let written = counted?.written_bytes as f64;
    (measured.operations > 0).then(|| written / measured.operations as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Traffic;
    use crate::store::TierTraffic;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn storage_costs_what_its_shares_cost() {
        let prices = Prices::default();
        close(prices.dollars(Layout::Fast, 0.2, 1.0), 1500.0);
        close(prices.dollars(Layout::Slow, 0.2, 1.0), 60.0);
        close(prices.dollars(Layout::Tiers, 0.2, 1.0), 0.2 * 1500.0 + 0.8 * 60.0);
        close(prices.dollars(Layout::Tiers, 0.2, 1.5), 1.5 * 348.0);
    }

    #[test]
    fn a_drive_written_at_its_rating_lasts_as_long_as_its_warranty() {
        let prices = Prices { slow_dwpd: 1.0, warranty_years: 5.0, ..Prices::default() };
        let slow = prices.slow_bytes(Layout::Tiers, 0.2, 1.0);
        close(slow, 480e9);
        // One full write a day, in operations of 1,000 bytes.
        let ops_per_s = slow / 86_400.0 / 1000.0;
        close(prices.years(slow, 1000.0, ops_per_s).unwrap(), 5.0);
        close(prices.years(slow, 500.0, ops_per_s).unwrap(), 10.0);
        assert_eq!(prices.years(slow, 0.0, ops_per_s), None);
    }

    #[test]
    fn bytes_of_the_slow_tier_are_those_of_the_last_one() {
        let tier = |written_bytes| TierTraffic { written_bytes, ..TierTraffic::default() };
        let mut measured = Measured {
            operations: 10,
            traffic: Traffic { tiers: vec![tier(100), tier(500)], ..Traffic::default() },
            ..Measured::default()
        };
        assert_eq!(slow_written_per_op(&measured, Layout::Tiers), Some(50.0));
        assert_eq!(slow_written_per_op(&measured, Layout::Fast), None);
        measured.traffic.tiers.truncate(1);
        assert_eq!(slow_written_per_op(&measured, Layout::Slow), Some(10.0));
        assert_eq!(slow_written_per_op(&measured, Layout::Tiers), None, "one sum for both tiers");
    }

    #[test]
    fn prices_are_read_and_wrong_ones_refused() {
        let prices = Prices::parse("slow=0.2,dwpd=1,gb=100").unwrap();
        assert_eq!((prices.slow_per_gb, prices.slow_dwpd, prices.database_bytes), (0.2, 1.0, 1e11));
        assert_eq!(Prices::parse("").unwrap(), Prices::default());
        for wrong in ["fast", "fast=-1", "fast=x", "warm=1", "slow=inf"] {
            assert!(Prices::parse(wrong).is_err(), "{wrong}");
        }
    }
}
