//! The arithmetic of wear with numbers at which a mistake of a hundredth shows. What was written
//! since opening is a large part of all, and of what the tier stands: counted twice or not at all
//! it changes the answer by a tenth and more.

use super::{WearStats, Written};

const DAY_NS: u64 = 86_400_000_000_000;
const DAY_S: f64 = 86_400.0;

/// A relative error of less than a hundredth.
fn assert_is(found: f64, right: f64, what: &str) {
    assert!((found / right - 1.0).abs() < 0.001, "{what}: {found}, right is {right}");
}

#[test]
fn the_expected_life_counts_what_was_written_once() {
    // A drive of 1,000 bytes that stands one writing a day for five years stands 1,825,000.
    let rated = 1000.0 * 365.0 * 5.0;
    for (before, since, days) in [
        (0.0, 365_000.0, 100.0),
        (365_000.0, 365_000.0, 100.0),
        (730_000.0, 547_500.0, 7.0),
        (1_000_000.0, 10_000.0, 1.0),
        (0.0, 1_700_000.0, 900.0),
    ] {
        let ns = |days: f64| (days * DAY_NS as f64) as u64;
        let since_opening = Written { bytes: since as u64, elapsed_ns: ns(days) };
        let all = Written { bytes: (before + since) as u64, elapsed_ns: ns(days + 50.0) };
        let wear = WearStats::of(1000, since_opening, all, Some(1.0)).expect("days have passed");
        let what = format!("{before} before, {since} in {days} days");
        let a_day = since / days;
        assert_is(wear.measured_s, days * DAY_S, &what);
        assert_is(wear.drive_writes_per_day, a_day / 1000.0, &what);
        assert_is(wear.budget_used_percent.expect("a budget"), a_day / 10.0, &what);
        let left_years = (rated - before - since) / a_day / 365.0;
        assert_is(wear.lifetime_years.expect("a budget"), left_years, &what);
    }
}

/// In the first minute all the time counts that the store was ever open.
#[test]
fn in_the_first_minute_all_that_was_ever_written_counts_once() {
    let since_opening = Written { bytes: 300_000, elapsed_ns: 59_000_000_000 };
    let all = Written { bytes: 912_500, elapsed_ns: 73 * DAY_NS };
    let wear = WearStats::of(1000, since_opening, all, Some(1.0)).expect("days have passed");
    assert_is(wear.drive_writes_per_day, 12.5, "half of what it stands, in 73 days");
    assert_is(wear.lifetime_years.expect("a budget"), 73.0 / 365.0, "the other half");
}

/// Twice the capacity and twice the budget each stand twice as much.
#[test]
fn capacity_and_budget_stretch_the_expected_life_in_proportion() {
    let day = Written { bytes: 500_000, elapsed_ns: DAY_NS };
    for (capacity, dwpd) in [(1000, 1.0), (2000, 1.0), (1000, 2.0), (3000, 0.7)] {
        let wear = WearStats::of(capacity, day, day, Some(dwpd)).expect("a day has passed");
        let rated = capacity as f64 * dwpd * 1825.0;
        let years = (rated - 500_000.0) / 500_000.0 / 365.0;
        assert_is(wear.lifetime_years.expect("a budget"), years, &format!("{capacity} {dwpd}"));
    }
}
