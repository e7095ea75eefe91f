//! Wear of tiers: how fast each is written to, in the unit in which vendors rate what a drive
//! stands, and how long it lasts at that pace.
//!
//! ```text
//!   drive writes a day = bytes written / time measured / capacity
//!   rated bytes        = write_budget_dwpd * capacity * 365 days * 5 years
//!   lifetime           = (rated bytes - bytes written since the database was made) / pace
//! ```
//! The time is that since opening. In the first minute, which says little, it is all the time that
//! the database was ever open, and nothing is said before that is a minute too. What a drive was
//! written by others is not known here.
//!
//! Two tiers may have a budget: the second one `hybrid.write_budget_dwpd`, which bounds all that is
//! written there, and tier 0 `fast_cache.write_budget_dwpd`, which bounds the cache of blocks
//! alone. What of it is used is said of what it bounds; the lifetime is the tier's, of which logs
//! and tables of tier 0 take their part, too.

use serde::{Deserialize, Serialize};
use thermocline_popularity::lifetime_ns;

const DAY_S: f64 = 86_400.0;
const YEAR_S: f64 = 365.0 * DAY_S;

/// Years for which vendors rate a drive.
const RATED_YEARS: f64 = 5.0;

/// Less than that says nothing of a day.
const MEASURED_NS_MIN: u64 = 60_000_000_000;

/// How fast a tier is written to, and how long it lasts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WearStats {
    /// Over how long this was measured, in seconds: since opening, and in the first minute all the
    /// time that the database was open.
    pub measured_s: f64,
    /// How often the tier's capacity is written a day, at the pace of that time.
    pub drive_writes_per_day: f64,
    /// What of the tier's `write_budget_dwpd` is written, in percent: with that of `hybrid` all
    /// that is written to the tier, with that of `fast_cache` what the cache wrote since opening.
    /// None without a budget, and of the cache's in the first minute. In the first hour more than
    /// 100 keeps to it, for its burst is what flows in one.
    pub budget_used_percent: Option<f64>,
    /// Years until the tier has been written as much as the budget allows in five years, if it
    /// goes on so; none without a budget, and where nothing is written.
    pub lifetime_years: Option<f64>,
}

/// What was written to a tier in some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub bytes: u64,
    pub elapsed_ns: u64,
}

impl WearStats {
    /// From what was written `since_opening` and in `all`, of which the former is a part; none
    /// where hardly any time has passed.
    pub(crate) fn of(
        capacity_bytes: u64,
        since_opening: Written,
        all: Written,
        budget_dwpd: Option<f64>,
    ) -> Option<Self> {
        let lasted = |written: &Written| written.elapsed_ns >= MEASURED_NS_MIN;
        let Written { bytes, elapsed_ns } = [since_opening, all].into_iter().find(lasted)?;
        let measured_s = elapsed_ns as f64 / 1e9;
        let capacity = capacity_bytes.max(1) as f64;
        let drive_writes_per_day = bytes as f64 / capacity / (measured_s / DAY_S);
        let lifetime_years = budget_dwpd.and_then(|dwpd| {
            let rated_bytes = (dwpd * capacity * RATED_YEARS * YEAR_S / DAY_S) as u64;
            let left_bytes = rated_bytes.saturating_sub(all.bytes - bytes);
            Some(lifetime_ns(bytes, elapsed_ns, left_bytes)? as f64 / 1e9 / YEAR_S)
        });
        let budget_used_percent = budget_dwpd.map(|dwpd| 100.0 * drive_writes_per_day / dwpd);
        Some(Self { measured_s, drive_writes_per_day, budget_used_percent, lifetime_years })
    }
}

#[cfg(test)]
#[path = "../../tests/inside/wear_figures.rs"]
mod figures;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::still_clock::StillClock;
    use crate::support::{hybrid, stepped_environment};
    use crate::{ByteSize, Db, Environment, HybridSettings, Settings, Stats};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use thermocline_foundation::Clock;
    use thermocline_foundation::random::Random;

    const DAY_NS: u64 = 86_400_000_000_000;

    fn written(bytes: u64, elapsed_ns: u64) -> Written {
        Written { bytes, elapsed_ns }
    }

    #[test]
    fn a_tenth_of_the_budget_lasts_fifty_years_less_what_was_written_before() {
        let day = written(100, DAY_NS);
        let wear = WearStats::of(1000, day, day, Some(1.0)).unwrap();
        assert_eq!((wear.measured_s, wear.drive_writes_per_day), (86_400.0, 0.1));
        assert!((wear.budget_used_percent.unwrap() - 10.0).abs() < 1e-9);
        assert!((wear.lifetime_years.unwrap() - 50.0).abs() < 0.01, "{wear:?}");
        let all = written(100 + 365 * 2000, 2 * DAY_NS);
        let wear = WearStats::of(1000, day, all, Some(1.0)).unwrap();
        assert!((wear.lifetime_years.unwrap() - 30.0).abs() < 0.01, "{wear:?}");
        let all = written(365 * 9000, 2 * DAY_NS);
        assert_eq!(WearStats::of(1000, day, all, Some(1.0)).unwrap().lifetime_years, Some(0.0));
    }

    #[test]
    fn hardly_any_time_no_writes_and_no_budget_give_none_and_no_nonsense() {
        let short = written(1 << 40, MEASURED_NS_MIN - 1);
        assert_eq!(WearStats::of(1000, short, short, Some(1.0)), None);
        let all = written(1 << 41, DAY_NS);
        let wear = WearStats::of(1 << 41, short, all, None).unwrap();
        assert_eq!((wear.measured_s, wear.drive_writes_per_day), (86_400.0, 1.0));
        assert_eq!((wear.budget_used_percent, wear.lifetime_years), (None, None));
        let idle = WearStats::of(1000, written(0, DAY_NS), written(0, DAY_NS), Some(1.0)).unwrap();
        assert_eq!((idle.drive_writes_per_day, idle.lifetime_years), (0.0, None));
        let huge = WearStats::of(1 << 60, written(1, DAY_NS), written(1, DAY_NS), Some(1000.0));
        assert!(huge.unwrap().lifetime_years.is_some_and(f64::is_finite));
    }

    #[test]
    fn the_slow_tier_is_told_against_its_budget_also_in_the_first_minute_of_another_opening() {
        let clock = Arc::new(StillClock::default());
        let environment = Environment { clock: clock.clone(), ..stepped_environment() };
        let settings = Settings {
            memory: ByteSize::mib(8),
            hybrid: HybridSettings { write_budget_dwpd: 2.0, ..HybridSettings::default() },
            ..hybrid()
        };
        let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
        let (mut random, mut value) = (Random::new(1), [0; 1000]);
        for number in 0..1000u32 {
            random.fill(&mut value);
            db.put(number.to_be_bytes(), value).unwrap();
        }
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert!(db.stats().tiers.iter().all(|tier| tier.wear.is_none()), "no time has passed");
        clock.sleep(Duration::from_secs(43_200));
        let check = |stats: Stats| {
            let (fast, slow) = (stats.tiers[0].wear.clone().unwrap(), &stats.tiers[1]);
            assert_eq!((fast.budget_used_percent, fast.lifetime_years), (None, None));
            assert!(fast.drive_writes_per_day > 0.0 && slow.written_bytes > 500_000);
            let wear = slow.wear.clone().unwrap();
            let writes_a_day = 2.0 * slow.written_bytes as f64 / f64::from(64 << 20);
            assert!((wear.drive_writes_per_day - writes_a_day).abs() < 0.001, "{wear:?}");
            assert!((wear.budget_used_percent.unwrap() - 50.0 * writes_a_day).abs() < 0.1);
            assert!(wear.lifetime_years.unwrap() > 5.0, "{wear:?}");
        };
        check(db.stats());
        db.close().unwrap();
        check(environment.open(Path::new("/home")).unwrap().stats());
    }
}
