//! The streams of operations are what their sources say: shares of the kinds, popularity, lengths,
//! fresh and disjoint inserts. Deviations allowed are five standard ones, so that a wrong parameter
//! fails and chance does not (all seeds are fixed).
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use thermocline_bench::values::Sizes;
use thermocline_bench::versions::Inserted;
use thermocline_bench::workloads::{self, Kind, Operation, Plan, Start, Stream};

/// Operations of all threads, taking turns, inserts acknowledged at once.
fn operations(name: &str, records: u64, threads: u32, each: u64) -> (Arc<Plan>, Vec<Operation>) {
    let workload = workloads::parse(name).unwrap();
    let records = workload.records(records);
    let plan = Arc::new(Plan::new(workload, records, threads, 1));
    let inserted = Inserted::new(records, threads);
    let mut streams: Vec<_> =
        (0..threads).map(|thread| Stream::new(Arc::clone(&plan), thread)).collect();
    let mut all = Vec::new();
    for index in 0..each {
        for (thread, stream) in streams.iter_mut().enumerate() {
            let Some(operation) = stream.next(index as f64 / each as f64, &inserted) else {
                continue;
            };
            if operation.kind == Kind::Insert {
                inserted.acknowledged(thread as u32);
            }
            all.push(operation);
        }
    }
    (plan, all)
}

fn near(found: u64, of: u64, share: f64, what: &str) {
    let deviation = (share * (1.0 - share) / of as f64).sqrt();
    let found = found as f64 / of as f64;
    assert!((found - share).abs() <= 5.0 * deviation + 1e-9, "{what}: {found}, not {share}");
}

/// The shares that the sources give, in per cent.
const MIXES: [(&str, &[(&str, f64)]); 22] = [
    ("ycsb-a", &[("read", 50.0), ("update", 50.0)]),
    ("ycsb-b", &[("read", 95.0), ("update", 5.0)]),
    ("ycsb-c", &[("read", 100.0)]),
    ("ycsb-d", &[("read", 95.0), ("insert", 5.0)]),
    ("ycsb-e", &[("scan", 95.0), ("insert", 5.0)]),
    ("ycsb-f", &[("read", 50.0), ("rmw", 50.0)]),
    ("hotrap-ro", &[("read", 100.0)]),
    ("hotrap-rw", &[("read", 75.0), ("insert", 25.0)]),
    ("hotrap-wh", &[("read", 50.0), ("insert", 50.0)]),
    ("hotrap-uh", &[("read", 50.0), ("update", 50.0)]),
    ("hotrap-dynamic", &[("read", 100.0)]),
    ("twitter-39", &[("read", 6.0), ("update", 94.0)]),
    ("twitter-19", &[("read", 75.0), ("update", 25.0)]),
    ("twitter-51", &[("read", 90.0), ("update", 10.0)]),
    ("twitter-11", &[("read", 96.0), ("update", 4.0)]),
    ("twitter-17", &[("read", 99.0), ("update", 1.0)]),
    ("twitter-29", &[("read", 86.0), ("update", 14.0)]),
    ("prefix_dist", &[("read", 83.0), ("update", 14.0), ("scan", 3.0)]),
    ("nutanix", &[("update", 58.0), ("read", 40.0), ("scan", 2.0)]),
    (
        "linkbench",
        &[
            ("getlinklist", 50.71),
            ("getnode", 12.93),
            ("addlink", 8.99),
            ("updatelink", 8.01),
            ("updatenode", 7.37),
            ("countlink", 4.89),
            ("deletelink", 2.99),
            ("addnode", 2.57),
            ("deletenode", 1.01),
            ("getlink", 0.53),
        ],
    ),
    ("overwrite", &[("update", 100.0)]),
    ("seekrandom", &[("seek", 100.0)]),
];

#[test]
fn kinds_of_operations_come_as_often_as_the_sources_say() {
    for (name, shares) in MIXES {
        let (plan, all) = operations(name, 10_000, 4, 25_000);
        let mut counts = BTreeMap::new();
        for operation in &all {
            let share = &plan.workload().mix[usize::from(operation.share)];
            assert_eq!(share.kind, operation.kind);
            *counts.entry(share.label).or_insert(0u64) += 1;
        }
        assert_eq!(counts.len(), shares.len(), "{name}: {counts:?}");
        for (label, percent) in shares {
            near(counts[label], all.len() as u64, percent / 100.0, &format!("{name} {label}"));
        }
    }
}

/// Popularity: the share of the draws that the most drawn records take, against the exact sum.
/// Sorting by what was drawn overstates it a little, so many draws and few records.
#[test]
fn popular_records_are_as_popular_as_their_distribution_says_and_scattered() {
    for name in [
        "ycsb-a",
        "ycsb-c/zipf-0.8",
        "ycsb-c/hotspot-5",
        "hotrap-uh",
        "twitter-19",
        "twitter-51",
        "twitter-11",
        "twitter-17",
        "twitter-29",
    ] {
        let records = 2_000;
        let (plan, all) = operations(name, records, 2, 250_000);
        let mut counts = vec![0u64; records as usize];
        for operation in &all {
            counts[operation.number as usize] += 1;
        }
        let (_, chooser) = plan.phases().next().unwrap();
        let hottest: Vec<usize> = {
            let mut order: Vec<usize> = (0..counts.len()).collect();
            order.sort_by_key(|index| std::cmp::Reverse(counts[*index]));
            order
        };
        for top in [20, 100] {
            let found: u64 = hottest[..top].iter().map(|index| counts[*index]).sum();
            let expected = chooser.mass(top as u64);
            let found = found as f64 / all.len() as f64;
            assert!((found / expected - 1.0).abs() < 0.08, "{name} {top}: {found} {expected}");
        }
        // The 100 hottest lie in both halves of the numbers, about evenly.
        let low = hottest[..100].iter().filter(|index| **index < 1_000).count();
        assert!((25..=75).contains(&low), "{name}: {low} of the 100 hottest in one half");
    }
}

#[test]
fn a_stream_follows_from_its_seed_and_threads_differ() {
    let (_, first) = operations("ycsb-a", 1_000, 2, 100);
    let (_, second) = operations("ycsb-a", 1_000, 2, 100);
    assert_eq!(first, second);
    let of = |thread: usize| first.iter().skip(thread).step_by(2).collect::<Vec<_>>();
    assert_ne!(of(0), of(1));
}

#[test]
fn inserts_are_fresh_and_latest_reads_prefer_them() {
    let (plan, all) = operations("ycsb-d", 10_000, 4, 25_000);
    // Each insert's place in the order of time.
    let mut fresh = std::collections::HashMap::new();
    let mut young = 0u64;
    let mut reads = 0u64;
    for operation in &all {
        let place = fresh.len();
        if operation.kind == Kind::Insert {
            assert!(operation.number >= plan.records());
            assert!(fresh.insert(operation.number, place).is_none(), "inserted twice");
            continue;
        }
        reads += 1;
        if operation.number >= plan.records() {
            let inserted = fresh.get(&operation.number).expect("read before it was inserted");
            young += u64::from(place - inserted <= 100);
        } else {
            young += u64::from(plan.records() - operation.number + place as u64 <= 100);
        }
    }
    let chooser = plan.phases().next().unwrap().1;
    let expected = chooser.mass(100);
    let found = young as f64 / reads as f64;
    assert!((found - expected).abs() < 0.03, "{found} {expected}");
}

#[test]
fn scans_have_the_lengths_of_their_sources() {
    for (name, most) in [("ycsb-e", 100u64), ("nutanix", 99)] {
        let (_, all) = operations(name, 10_000, 2, 200_000);
        let mut counts = vec![0f64; most as usize + 1];
        for operation in all.iter().filter(|operation| operation.kind == Kind::Scan) {
            counts[operation.count as usize] += 1.0;
        }
        assert!(counts[0] == 0.0);
        let expected = counts.iter().sum::<f64>() / most as f64;
        let chi: f64 = counts[1..].iter().map(|n| (n - expected).powi(2) / expected).sum();
        // 99.99 % quantile for 99 degrees of freedom.
        assert!(chi < 158.0, "{name}: {chi}");
    }
    let (_, all) = operations("prefix_dist", 10_000, 2, 200_000);
    let scans: Vec<_> = all.iter().filter(|o| o.kind == Kind::Scan).map(|o| o.count).collect();
    // Median of a generalised Pareto distribution: sigma (2^k - 1) / k.
    let median = 14.236 * (2f64.powf(2.517) - 1.0) / 2.517;
    let below = scans.iter().filter(|count| **count as f64 <= median).count() as u64;
    near(below, scans.len() as u64, 0.5, "prefix_dist scans below the median");
    assert!(scans.iter().all(|count| (1..=10_000).contains(count)));
    let (_, all) = operations("seekrandom", 100, 1, 10);
    assert!(all.iter().all(|operation| operation.count == 11));
}

#[test]
fn the_dynamic_run_moves_its_hot_set_as_published() {
    let (plan, all) = operations("hotrap-dynamic", 10_000, 1, 900_000);
    let phases: Vec<_> = plan.phases().collect();
    assert_eq!(phases.len(), 9);
    let part = |index: usize| &all[index * 100_000..(index + 1) * 100_000];
    let hot_of = |index: usize| {
        let mut counts = vec![0u64; 10_000];
        part(index).iter().for_each(|operation| counts[operation.number as usize] += 1);
        // A hot record gets 95,000 / hot draws, at least 118; a cold one about half.
        counts.iter().enumerate().filter(|(_, n)| **n > 60).map(|(n, _)| n).collect()
    };
    let sets: Vec<HashSet<usize>> = (0..9).map(hot_of).collect();
    let sizes: Vec<_> = sets.iter().map(HashSet::len).collect();
    assert_eq!(sizes, [0, 200, 400, 600, 800, 500, 500, 300, 100]);
    assert!(sets[1].is_subset(&sets[2]) && sets[5].is_subset(&sets[4]));
    assert!(sets[5].is_disjoint(&sets[6]), "the hot set moves");
    assert!(sets[7].is_subset(&sets[6]) && sets[8].is_subset(&sets[7]));
}

#[test]
fn fills_write_what_they_say() {
    for name in ["load", "fillseq"] {
        let (plan, all) = operations(name, 1_001, 3, 400);
        assert_eq!((all.len() as u64, plan.operations()), (1_001, Some(1_001)), "{name}");
        let numbers: HashSet<_> = all.iter().map(|operation| operation.number).collect();
        assert_eq!(numbers.len(), 1_001, "{name} writes each record once");
        assert_eq!(plan.workload().start, Start::Empty);
    }
    let (_, all) = operations("fillseq", 100, 1, 100);
    assert!(all.is_sorted_by_key(|operation| operation.number));
    let (_, all) = operations("fillrandom", 100_000, 4, 30_000);
    let numbers: HashSet<_> = all.iter().map(|operation| operation.number).collect();
    // Draws with replacement reach 1 - 1/e of the records.
    near(numbers.len() as u64, all.len() as u64, 1.0 - (-1f64).exp(), "fillrandom");
    let (_, all) = operations("readseq", 1_000, 3, 5);
    assert_eq!(all.iter().map(|operation| operation.count).sum::<u64>(), 1_000);
}

#[test]
fn twitter_clusters_have_the_published_sizes() {
    for (name, key, value) in [
        ("twitter-39", 41, 80),
        ("twitter-19", 42, 101),
        ("twitter-51", 44, 221),
        ("twitter-11", 24, 170),
        ("twitter-17", 19, 212),
        ("twitter-29", 36, 799),
    ] {
        let workload = workloads::parse(name).unwrap();
        assert_eq!(workload.key_bytes, Some(key));
        assert_eq!(workload.sizes, Some(Sizes::Fixed(value)));
    }
    assert_eq!(workloads::parse("prefix_dist").unwrap().key_bytes, Some(48));
}

#[test]
fn linkbench_keeps_nodes_counts_and_links_apart() {
    let (plan, all) = operations("linkbench", 8_000, 2, 50_000);
    for operation in &all {
        let share = &plan.workload().mix[usize::from(operation.share)];
        let slot = operation.number % 8;
        match share.label {
            "getnode" | "updatenode" | "deletenode" => assert_eq!(slot, 0),
            "countlink" => assert_eq!(slot, 1),
            "getlinklist" => assert_eq!((slot, operation.count), (2, 6)),
            "addnode" => assert!(operation.number >= 8_000),
            _ => assert!((2..8).contains(&slot), "{}", share.label),
        }
    }
}
