//! A store with a cache that is worked on in one directory: figure `restart`, where it is closed
//! and opened again, and the trace that other figures judge policies by.
//!
//! ```text
//!   load ── a process warms up and reads ── another opens and reads at once
//!                        hit rate before         hit rate after
//! ```
//! Of the blocks that memory lacked. Memory is empty after the opening, so what it had comes from
//! the cache too.

use super::Sizes;
use super::rows::{HITS, READS, cached, group};
use crate::block_trace;
use crate::cell::Cell;
use crate::engines::fast_cache::{TRACE_NAME, TRACED};
use crate::results::Measured;
use crate::rows::Stand;
use crate::store::TierSpace;
use crate::{Outcome, files};
use std::path::Path;
use thermocline::BlockTrace;
use thermocline_foundation::ByteSize;

/// How long is read before, and from the opening on.
const ASKED_S: f64 = 10.0;
const SLOW_CAPACITY: ByteSize = ByteSize(1 << 40);
/// Requests of a trace at most: 24 bytes of the process's memory each, beside what it is told.
const REQUESTS_MAX: usize = 4_000_000;

/// What a restart came to.
#[derive(Clone, Copy, Debug)]
pub struct Restarted {
    /// Hit rate after it over that before.
    pub hits: f64,
    /// Blocks a second that were taken over.
    pub blocks_per_s: f64,
}

impl Restarted {
    /// The value of the row called `name`.
    pub fn value(&self, name: &str) -> f64 {
        if name.ends_with("/hits") { self.hits } else { self.blocks_per_s }
    }
}

/// Works, closes, opens and works again.
pub fn restart(stand: &Stand<'_>, sizes: &Sizes, seed: u64) -> Outcome<Restarted> {
    in_place(stand, |places| {
        let warmed = warmed(stand, sizes, seed, ("", READS), places);
        let warmed = Cell { seconds: Some(ASKED_S), ..warmed };
        stand.load(&warmed)?;
        let hits = |measured: &Measured| (HITS.of)(measured).ok_or("the cache was not asked");
        let before = hits(&stand.run(&warmed)?)?;
        let after = stand.run(&Cell { warm_up_seconds: None, ..warmed })?;
        let level = after.second_level.ok_or("there is no cache after the restart")?;
        let blocks_per_s = level.adopted_blocks as f64 * 1e9 / level.adopting_ns.max(1) as f64;
        Ok(Restarted { hits: hits(&after)? / before, blocks_per_s })
    })
}

/// What the cache is asked for while it warms up and is measured on `workload`.
pub fn trace(stand: &Stand<'_>, sizes: &Sizes, seed: u64, workload: &str) -> Outcome<BlockTrace> {
    in_place(stand, |places| {
        let option = format!("+{TRACED}={REQUESTS_MAX}");
        let cell = warmed(stand, sizes, seed, (&option, workload), places);
        let room = cell.memory_limit.map(|limit| {
            ByteSize(limit.0 + (REQUESTS_MAX * size_of::<thermocline::BlockRequest>()) as u64 * 2)
        });
        let cell = Cell { memory_limit: room, ..cell };
        stand.load(&cell)?;
        stand.run(&cell)?;
        block_trace::read(&places[0].join(TRACE_NAME))
    })
}

/// Does `work` in two empty directories, which are gone afterwards.
fn in_place<T>(stand: &Stand<'_>, work: impl FnOnce([&Path; 2]) -> Outcome<T>) -> Outcome<T> {
    let places = [stand.fast, stand.slow].map(|place| place.join("thermocline-mynvm-restart"));
    for place in &places {
        files::remove(place)?;
        files::make(place)?;
    }
    let done = work([&places[0], &places[1]]);
    places.iter().try_for_each(|place| files::remove(place))?;
    done
}

/// N, with options, on a workload.
fn warmed(
    stand: &Stand<'_>,
    sizes: &Sizes,
    seed: u64,
    (options, workload): (&str, &str),
    [fast, slow]: [&Path; 2],
) -> Cell {
    let driver = stand.emulated.map(|profile| format!("+slow-driver=emulated-{profile}"));
    let tier = |name: &str, path: &Path, capacity| TierSpace {
        name: name.to_owned(),
        path: path.to_owned(),
        capacity,
    };
    Cell {
        engine: cached(sizes) + options + driver.as_deref().unwrap_or_default(),
        workload: workload.to_owned(),
        tiers: vec![
            tier("fast", fast, ByteSize::mib(sizes.fast_mib())),
            tier("slow", slow, SLOW_CAPACITY),
        ],
        ..sizes.cell(group(workload), seed)
    }
}
