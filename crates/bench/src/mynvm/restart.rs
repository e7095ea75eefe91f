//! Figure `restart`: a cache that is closed and opened again, in one directory.
//!
//! ```text
//!   load ── a process warms up and reads ── another opens and reads at once
//!                        hit rate before         hit rate after
//! ```
//! Of the blocks that memory lacked. Memory is empty after the opening, so what it had comes from
//! the cache too.

use super::Sizes;
use super::rows::{Group, HITS, READS, cached};
use crate::cell::Cell;
use crate::results::Measured;
use crate::rows::Stand;
use crate::store::TierSpace;
use crate::{Outcome, files};
use std::path::Path;
use thermocline_foundation::ByteSize;

/// How long is read before, and from the opening on.
const ASKED_S: f64 = 10.0;
const SLOW_CAPACITY: ByteSize = ByteSize(1 << 40);

/// Hit rate after a restart over that before.
pub fn hits(stand: &Stand<'_>, sizes: &Sizes, seed: u64) -> Outcome<f64> {
    let places = [stand.fast, stand.slow].map(|place| place.join("thermocline-mynvm-restart"));
    for place in &places {
        files::remove(place)?;
        files::make(place)?;
    }
    let rate = rate(stand, sizes, seed, [&places[0], &places[1]]);
    places.iter().try_for_each(|place| files::remove(place))?;
    rate
}

fn rate(stand: &Stand<'_>, sizes: &Sizes, seed: u64, [fast, slow]: [&Path; 2]) -> Outcome<f64> {
    let driver = stand.emulated.map(|profile| format!("+slow-driver=emulated-{profile}"));
    let tier = |name: &str, path: &Path, capacity| TierSpace {
        name: name.to_owned(),
        path: path.to_owned(),
        capacity,
    };
    let warmed = Cell {
        engine: cached(sizes) + driver.as_deref().unwrap_or_default(),
        workload: READS.to_owned(),
        tiers: vec![
            tier("fast", fast, ByteSize::mib(sizes.fast_mib())),
            tier("slow", slow, SLOW_CAPACITY),
        ],
        seconds: Some(ASKED_S),
        ..sizes.cell(Group::Work, seed)
    };
    stand.load(&warmed)?;
    let hits = |measured: &Measured| (HITS.of)(measured).ok_or("the cache was not asked");
    let before = hits(&stand.run(&warmed)?)?;
    let after = hits(&stand.run(&Cell { warm_up_seconds: None, ..warmed })?)?;
    Ok(after / before)
}
