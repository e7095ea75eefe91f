//! HotRAP's set (Qiu et al., USENIX ATC 2025): read-only, read-write, write-heavy and
//! update-heavy mixes, and a run whose hot set grows, shrinks and moves.
//!
//! The mixes use Zipf 0.99 unless a modifier says `/hotspot-5` or `/uniform`. The dynamic run has
//! nine phases of the same length: uniform, then hot sets of 2, 4, 6, 8 and 5 % that contain each
//! other, then one of 5 % disjoint from them, which shrinks to 3 and 1 %. HotRAP reports the mean
//! of the last 10 % of the operations; `last_tenth_ops_per_s` in the results is that.

use super::{Distribution, Kind, Phase, Workload, ZIPF};

const SOURCE: &str = "HotRAP (ATC 2025)";

/// Size of the hot set in per cent and its begin, phase by phase after the uniform one.
const PHASES: [(f64, f64); 8] = [
    (2.0, 0.0),
    (4.0, 0.0),
    (6.0, 0.0),
    (8.0, 0.0),
    (5.0, 0.0),
    (5.0, 0.5),
    (3.0, 0.5),
    (1.0, 0.5),
];

/// The mixes and the dynamic run.
pub fn all() -> Vec<Workload> {
    use Kind::{Insert, Read, Update};
    let of = |name: &str, mix: &[(&'static str, Kind, f64)]| Workload::new(name, SOURCE, mix, ZIPF);
    let mut dynamic = of("hotrap-dynamic", &[("read", Read, 100.0)]);
    dynamic.phases = vec![Phase::new(Distribution::Uniform)];
    dynamic.phases.extend(PHASES.map(|(percent, from)| {
        let distribution = Distribution::Hotspot { share: percent / 100.0, from };
        Phase::new(distribution)
    }));
    vec![
        of("hotrap-ro", &[("read", Read, 100.0)]),
        of("hotrap-rw", &[("read", Read, 75.0), ("insert", Insert, 25.0)]),
        of("hotrap-wh", &[("read", Read, 50.0), ("insert", Insert, 50.0)]),
        of("hotrap-uh", &[("read", Read, 50.0), ("update", Update, 50.0)]),
        dynamic,
    ]
}
