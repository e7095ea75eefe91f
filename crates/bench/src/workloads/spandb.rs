//! The workload of the SpanDB paper whose intensity of writes changes (its section 5.2, figure 9).
//!
//! ```text
//!   burst 25   half reads, half writes       writes 35   all writes       reads 25   95 % reads
//! ```
//! The numbers are the paper's seconds; here they are shares of the run. Its bursts come in
//! episodes, with a rest after each. Ours go through, since a run measures what a store can do.

use super::{Kind, Phase, Workload, ZIPF};

/// Names of the phases with their shares of the run.
pub const PHASES: [(&str, f64, &[f64]); 3] = [
    ("burst", 25.0, &[50.0, 50.0]),
    ("writes", 35.0, &[0.0, 100.0]),
    ("reads", 25.0, &[95.0, 5.0]),
];

/// Reads and updates in phases.
pub fn phases() -> Workload {
    let mix = [("read", Kind::Read, 50.0), ("update", Kind::Update, 50.0)];
    let mut workload = Workload::new("spandb-phases", "SpanDB (FAST 2021), figure 9", &mix, ZIPF);
    let phase = |(_, weight, weights): (&str, f64, &'static [f64])| Phase {
        weight,
        weights: Some(weights),
        ..Phase::new(ZIPF)
    };
    workload.phases = PHASES.map(phase).to_vec();
    workload
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::Inserted;
    use crate::workloads::{Plan, Stream};
    use std::sync::Arc;

    #[test]
    fn each_phase_has_a_mix_of_its_own() {
        let plan = Arc::new(Plan::new(phases(), 1000, 1, 1));
        let mut stream = Stream::new(plan, 0);
        let inserted = Inserted::new(1000, 1);
        for (progress, expected) in [(0.1, 0.5), (0.5, 1.0), (0.9, 0.05)] {
            let draw = |_| stream.next(progress, &inserted).unwrap().kind == Kind::Update;
            let updates = (0..10_000).map(draw).filter(|is_update| *is_update).count();
            let share = updates as f64 / 10_000.0;
            assert!((share - expected).abs() < 0.02, "{share} at {progress}");
        }
    }
}
