//! Traces that are drawn and not recorded, because their heat moves: what was popular is not for
//! ever.
//!
//! ```text
//!   rank, Zipf ──> rank + offset ──> record, scattered ──> block ──> memory ── missed ──> trace
//!                    stays    0
//!                    drifts   one more every few draws: what is popular comes and goes
//!                    jumps    half of the ranks at once, in the middle
//! ```
//! Zipf's exponent is 0.99. The sizes are those of N: memory for 1.2 % of the blocks, a cache for
//! 31 % of their bytes. What comes of a trace follows from its seed alone, so it does not depend on
//! the machine.

use super::judge::{ADMISSIONS, EVICTIONS};
use super::replay::{Policies, Verdict, replay};
use crate::keys::{Keys, Order};
use crate::workloads::{Chooser, Distribution};
use thermocline::{BlockRequest, BlockTrace};
use thermocline_device::file_cache::Layout;
use thermocline_foundation::random::{Random, mix};
use thermocline_popularity::SimulatedLru;

/// How popular records change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// They do not.
    Stays,
    /// A record becomes more popular step by step, and is the least popular one then.
    Drifts,
    /// All of them, in the middle.
    Jumps,
}

/// All of them, by name.
pub const HEATS: [(&str, Heat); 3] =
    [("stays", Heat::Stays), ("drifts", Heat::Drifts), ("jumps", Heat::Jumps)];

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Drawing {
    /// Blocks of three records.
    pub blocks: u64,
    /// Records that are looked up.
    pub draws: u64,
}

impl Drawing {
    /// That of the rows: thirty draws a block.
    pub const ROWS: Self = Self { blocks: 100_000, draws: 3_000_000 };
}

const RECORDS_A_BLOCK: u64 = 3;
const BLOCK_BYTES: u64 = 3 << 10;
/// Of the ranks, those that a drift goes through while all is drawn.
const DRIFT_SHARE: u64 = 10;
/// Of a thousand blocks, those that memory has, and those that the cache has room for.
const MEMORY_PERMILLE: u64 = 12;
const CACHE_PERMILLE: u64 = 310;
const FILES: u64 = 16;
const PAGE: u64 = 4096;

impl Heat {
    /// What is added to the ranks of a draw.
    fn offset(self, draw: u64, drawing: Drawing) -> u64 {
        let ranks = drawing.blocks * RECORDS_A_BLOCK;
        match self {
            Self::Stays => 0,
            Self::Drifts => draw * (ranks / DRIFT_SHARE) / drawing.draws,
            Self::Jumps if draw < drawing.draws / 2 => 0,
            Self::Jumps => ranks / 2,
        }
    }
}

/// The trace, and the request from which on things are counted: in the middle of what is drawn.
pub fn trace(heat: Heat, drawing: Drawing, seed: u64) -> (BlockTrace, usize) {
    let Drawing { blocks, draws } = drawing;
    let records = blocks * RECORDS_A_BLOCK;
    let chooser = Chooser::new(Distribution::Zipf { alpha: 0.99 }, records);
    let keys = Keys::new(records, 8, Order::Scattered { group: 1 });
    let mut memory = SimulatedLru::new(blocks * MEMORY_PERMILLE / 1000 * BLOCK_BYTES, BLOCK_BYTES);
    let mut random = Random::new(seed);
    let (mut requests, mut middle) = (Vec::new(), 0);
    for draw in 0..draws {
        if draw == draws / 2 {
            middle = requests.len();
        }
        let rank = chooser.draw(&mut random) + heat.offset(draw, drawing);
        let block = keys.position(rank % records) / RECORDS_A_BLOCK;
        if !memory.touch(mix(block), BLOCK_BYTES as u32) {
            let len = (BLOCK_BYTES - 200 + mix(block) % 400) as u32;
            requests.push(BlockRequest { table: 1 + block % 50, offset: block / 50 * 8192, len });
        }
    }
    let capacity_bytes = blocks * CACHE_PERMILLE / 1000 * BLOCK_BYTES;
    let file_bytes = capacity_bytes / FILES / PAGE * PAGE;
    let trace = BlockTrace {
        capacity_bytes,
        file_bytes,
        batch_bytes: (128 << 10).min(file_bytes / 4 / PAGE * PAGE),
        block_bytes: BLOCK_BYTES,
        requests,
    };
    (trace, middle)
}

/// What each admission makes of the second half of a trace, with the usual eviction.
pub fn judged(heat: Heat, drawing: Drawing, seed: u64) -> Vec<(&'static str, Verdict)> {
    let (trace, middle) = trace(heat, drawing, seed);
    let judged = ADMISSIONS.map(|(name, admission)| {
        let policies = Policies { admission, eviction: EVICTIONS[0].1, layout: Layout::Packed };
        (name, replay(&trace, policies, middle))
    });
    judged.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const SMALL: Drawing = Drawing { blocks: 5000, draws: 200_000 };

    /// The blocks that are asked for most in a part of a trace.
    fn popular(requests: &[BlockRequest]) -> Vec<(u64, u64)> {
        let mut counts = BTreeMap::<_, u64>::new();
        requests.iter().for_each(|r| *counts.entry((r.table, r.offset)).or_default() += 1);
        let mut blocks: Vec<_> = counts.into_iter().collect();
        blocks.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        blocks.into_iter().take(200).map(|(block, _)| block).collect()
    }

    #[test]
    fn popular_blocks_stay_drift_or_jump() {
        let kept = |heat| {
            let (trace, middle) = trace(heat, SMALL, 1);
            assert!(trace.requests.len() > 60_000 && middle > 30_000);
            let quarter = trace.requests.len() / 4;
            let before = popular(&trace.requests[middle - quarter..middle]);
            let after = popular(&trace.requests[middle..middle + quarter]);
            after.iter().filter(|block| before.contains(block)).count()
        };
        let [stays, drifts, jumps] = HEATS.map(|(_, heat)| kept(heat));
        assert!(stays > 100 && stays > drifts + 20, "{stays} and {drifts} of 200");
        assert!(drifts < 40 && jumps < 40, "{drifts} and {jumps} of 200");
        let offsets = HEATS
            .map(|(_, heat)| [0, 99_999, 100_000, 199_999].map(|draw| heat.offset(draw, SMALL)));
        // Of 15,000 ranks.
        assert_eq!(offsets, [[0; 4], [0, 749, 750, 1499], [0, 0, 7500, 7500]]);
    }

    #[test]
    fn a_trace_follows_from_its_seed_and_each_admission_is_judged() {
        assert_eq!(trace(Heat::Drifts, SMALL, 3), trace(Heat::Drifts, SMALL, 3));
        assert_ne!(trace(Heat::Drifts, SMALL, 3), trace(Heat::Drifts, SMALL, 4));
        let judged = judged(Heat::Stays, SMALL, 1);
        let hits = |at: usize| judged[at].1.hit_percent();
        assert_eq!(judged.iter().map(|(name, _)| *name).collect::<Vec<_>>()[1], "always");
        assert!((0..judged.len()).all(|at| hits(at) > 40.0), "{judged:?}");
        let written = |at: usize| judged[at].1.written_bytes;
        assert!(written(0) < written(1), "{judged:?}");
    }
}
