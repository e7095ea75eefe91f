//! The best that any placement could reach: what a result is a share of.
//!
//! Memory and fast tier together hold some of the records. The best possible choice keeps the most
//! popular ones there, known beforehand and never moved, so the share of look-ups that must go to
//! the slow tier is 1 minus the popularity of these records: an exact sum over the distribution.
//! The slow tier's operations and bytes a second then allow a throughput:
//!
//! ```text
//!   slow reads an operation  = look-ups x misses + scans x misses, one read each
//!   slow bytes an operation  = look-ups x misses x record + scans x misses x records x record
//!   slow writes an operation = updates x misses x record + inserts x record, each byte once
//!   throughput               = the least of what these three allow
//! ```
//! No index, filter, log or merge costs anything here, and a phase of a run that moves its hot set
//! begins with the right records resident. So a store stays below its bound; how far is the point.

use crate::results::{Bound, SlowDevice};
use crate::workloads::{Kind, Plan, ScanLength};

/// The least share of look-ups that go to the slow tier when `resident` records are above it.
pub fn miss_rate(plan: &Plan, resident: u64) -> f64 {
    let share = resident as f64 / plan.records() as f64;
    plan.phases()
        .map(|(weight, chooser)| {
            let top = (share * chooser.records() as f64).round() as u64;
            weight * (1.0 - chooser.mass(top)).max(0.0)
        })
        .sum()
}

/// Reads, bytes read and bytes written on the slow tier for each operation.
fn slow_traffic(plan: &Plan, miss: f64, record_bytes: f64) -> (f64, f64, f64) {
    let workload = plan.workload();
    let scanned = match workload.scan {
        ScanLength::Fixed(records) => f64::from(records),
        ScanLength::Uniform(most) => (1.0 + f64::from(most)) / 2.0,
        // The mean does not exist for shapes above 1; the median is a lower bound that does.
        ScanLength::Pareto { k, sigma, .. } => sigma * (2f64.powf(k) - 1.0) / k,
    };
    let whole: f64 = workload.mix.iter().map(|share| share.weight).sum();
    let (mut reads, mut read_bytes, mut written_bytes) = (0.0, 0.0, 0.0);
    for share in &workload.mix {
        let cold = share.weight / whole * miss;
        match share.kind {
            Kind::Read => {
                reads += cold;
                read_bytes += cold * record_bytes;
            }
            Kind::ReadModifyWrite => {
                reads += cold;
                read_bytes += cold * record_bytes;
                written_bytes += cold * record_bytes;
            }
            Kind::Scan => {
                reads += cold;
                read_bytes += cold * scanned * record_bytes;
            }
            // A walk reads with large reads.
            Kind::Walk => read_bytes += cold * record_bytes,
            Kind::Update => written_bytes += cold * record_bytes,
            Kind::Insert => written_bytes += share.weight / whole * record_bytes,
            Kind::Delete | Kind::ReadMissing => {}
        }
    }
    (reads, read_bytes, written_bytes)
}

/// The bound of `plan` with `resident_bytes` of memory and fast tier above `device`, and what share
/// of it `ops_per_s` is; none where the slow tier bounds nothing.
pub fn bound(
    plan: &Plan,
    record_bytes: f64,
    resident_bytes: u64,
    device: &SlowDevice,
    ops_per_s: f64,
) -> Option<Bound> {
    let resident = ((resident_bytes as f64 / record_bytes) as u64).min(plan.records());
    let miss = miss_rate(plan, resident);
    let (reads, read_bytes, written_bytes) = slow_traffic(plan, miss, record_bytes);
    let allowed = |rate: Option<f64>, each: f64| match rate {
        Some(rate) if each > 1e-12 => rate / each,
        _ => f64::INFINITY,
    };
    let best = allowed(device.read_iops, reads)
        .min(allowed(device.read_bytes_per_s, read_bytes))
        .min(allowed(device.write_bytes_per_s, written_bytes));
    best.is_finite().then(|| Bound {
        resident_share: resident as f64 / plan.records() as f64,
        miss_rate: miss,
        ops_per_s: best,
        share: ops_per_s / best,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads;

    const GP3: SlowDevice = SlowDevice {
        read_iops: Some(10_000.0),
        write_iops: Some(10_000.0),
        read_bytes_per_s: Some(300e6),
        write_bytes_per_s: Some(300e6),
    };

    fn of(name: &str, share: f64) -> Bound {
        let records = 6_000_000;
        let workload = workloads::parse(name).unwrap();
        let records = workload.records(records);
        let plan = Plan::new(workload, records, 8, 1);
        let bytes = (records as f64 * share * 1024.0).round() as u64;
        bound(&plan, 1024.0, bytes, &GP3, 50_000.0).unwrap()
    }

    /// The figures of the rig: 6 million records, 24 % and 30 % of them above the slow tier.
    #[test]
    fn the_bounds_of_the_rig_are_those_of_the_exact_sums() {
        let near = |found: f64, expected: f64, what: &str| {
            assert!((found / expected - 1.0).abs() < 0.02, "{what}: {found}, not {expected}");
        };
        let zipf = of("ycsb-c", 0.24);
        near(zipf.miss_rate, 0.095, "misses of zipf 0.99 at 24 %");
        near(zipf.ops_per_s, 105_000.0, "C at 24 %");
        near(zipf.share, 50_000.0 / 105_000.0, "share");
        near(of("ycsb-c", 0.30).ops_per_s, 125_000.0, "C at 30 %");
        near(of("ycsb-c/uniform", 0.24).ops_per_s, 13_200.0, "uniform at 24 %");
        near(of("ycsb-c/uniform", 0.30).ops_per_s, 14_300.0, "uniform at 30 %");
        near(of("ycsb-c/hotspot-5", 0.30).ops_per_s, 271_000.0, "hotspot-5 at 30 %");
        // B reads 95 times of 100; A is bound by the bytes of cold updates at most as much.
        near(of("ycsb-b", 0.24).ops_per_s, 105_000.0 / 0.95, "B at 24 %");
        near(of("ycsb-a", 0.24).ops_per_s, 105_000.0 / 0.5, "A at 24 %");
    }

    #[test]
    fn the_moving_hot_set_is_bound_by_its_uniform_phase_most() {
        let dynamic = of("hotrap-dynamic", 0.24);
        let uniform = of("ycsb-c/uniform", 0.24).miss_rate;
        assert!(dynamic.miss_rate > uniform / 9.0 && dynamic.miss_rate < uniform / 3.0);
    }

    #[test]
    fn inserts_are_bound_by_bytes_and_everything_resident_by_nothing() {
        let plan = Plan::new(workloads::parse("ycsb-c").unwrap(), 1000, 1, 1);
        assert_eq!(bound(&plan, 1000.0, 1 << 30, &GP3, 1.0), None);
        assert_eq!(bound(&plan, 1000.0, 0, &SlowDevice::default(), 1.0), None);
        let plan = Plan::new(workloads::parse("hotrap-wh").unwrap(), 1000, 1, 1);
        let found = bound(&plan, 1000.0, 1 << 30, &GP3, 1.0).unwrap();
        assert!((found.ops_per_s / 600_000.0 - 1.0).abs() < 1e-9, "{}", found.ops_per_s);
    }

    #[test]
    fn every_workload_has_a_miss_rate_between_none_and_all() {
        for workload in workloads::all() {
            let records = workload.records(48_000);
            let plan = Plan::new(workload, records, 2, 1);
            let (none, half, all) =
                (miss_rate(&plan, 0), miss_rate(&plan, records / 2), miss_rate(&plan, records));
            let name = &plan.workload().name;
            assert!((none - 1.0).abs() < 1e-6, "{name}: {none}");
            assert!(half > 0.0 && half <= 0.5 + 1e-6 && all < 1e-6, "{name}: {half} {all}");
        }
    }
}
