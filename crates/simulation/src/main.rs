//! try
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]
use std::sync::Arc;
use thermocline_simulation::*;
fn main() {
    let seeds: u64 = std::env::args().nth(1).map_or(3, |s| s.parse().unwrap());
    let full = std::env::args().nth(2).is_some();
    let start = std::time::Instant::now();
    let mut all = 0;
    for seed in std::env::var("FROM").map_or(1, |s| s.parse().unwrap())..=seeds {
        let shape = history::Shape {
            steps: 40,
            keys: 40,
            crashes: true,
            reopens: true,
            large_values: seed % 4 == 0,
        };
        let known = Arc::new(parking_lot::RwLock::new(oracle::Known::new(40)));
        let mut life = life::Life::new(seed, &shape, Arc::clone(&known));
        let points = Arc::new(crash::CrashPoints::new(
            seed,
            known,
            if full { crash::Effort::FULL } else { crash::Effort::SAMPLED },
        ));
        life.watch(points.clone());
        let r = life.run(&shape);
        let t = points.tally();
        all += t.all_images();
        println!(
            "seed {seed}: {:?} {:?} {:?}",
            r.map_err(|(s, e)| format!("step {s} {e:?}")),
            t,
            points.violation()
        );
    }
    println!(
        "{} images in {:?}: {:.0}/s",
        all,
        start.elapsed(),
        all as f64 / start.elapsed().as_secs_f64()
    );
}
