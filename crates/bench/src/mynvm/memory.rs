//! Figure 24: what a block of a full cache takes of memory, by arithmetic.
//!
//! Bytes of look-up and admission after requests that filled a cache, over the blocks that it has
//! then. A test of `crates/device` holds these bytes against what the allocator was asked for.

use crate::Outcome;
use crate::block_trace::judge::{ADMISSIONS, EVICTIONS};
use crate::block_trace::replay::{Policies, replay};
use thermocline::{BlockRequest, BlockTrace};
use thermocline_device::file_cache::Layout;
use thermocline_foundation::random::{Random, mix};
use thermocline_popularity::AdmissionPolicy;

const CAPACITY: u64 = 64 << 20;
/// What a stored block is expected to have, and about what they have.
const BLOCK_BYTES: u64 = 3 << 10;
/// Three times as many as there is room for, each asked for ten times.
const BLOCKS: u64 = 3 * CAPACITY / BLOCK_BYTES;
const REQUESTS: u64 = 10 * BLOCKS;

/// What the row of an admission is called.
pub fn row_name(admission: &str) -> String {
    format!("24/full/{admission}")
}

/// Bytes a block of the row called `name`.
pub fn bytes_a_block(name: &str) -> Outcome<f64> {
    let found = ADMISSIONS.into_iter().find(|(admission, _)| name == row_name(admission));
    let (_, admission) = found.ok_or_else(|| format!("there is no row '{name}'"))?;
    Ok(in_full(admission))
}

fn in_full(admission: AdmissionPolicy) -> f64 {
    let mut random = Random::new(1);
    let request = |block: u64| {
        let len = BLOCK_BYTES - 200 + mix(block) % 400;
        BlockRequest { table: 1 + block % 50, offset: block / 50 * 8192, len: len as u32 }
    };
    let trace = BlockTrace {
        capacity_bytes: CAPACITY,
        file_bytes: CAPACITY / 16,
        batch_bytes: 128 << 10,
        block_bytes: BLOCK_BYTES,
        requests: (0..REQUESTS).map(|_| request(random.below(BLOCKS))).collect(),
    };
    let policies = Policies { admission, eviction: EVICTIONS[0].1, layout: Layout::Packed };
    let verdict = replay(&trace, policies, 0);
    verdict.memory_bytes as f64 / verdict.blocks.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_a_full_cache_takes_ten_bytes_and_its_share_of_the_admission() {
        let of = |admission: &str| bytes_a_block(&row_name(admission)).unwrap();
        let always = of("always");
        assert!((10.0..12.0).contains(&always), "{always}");
        let usual = of(super::super::judged::USUAL);
        assert!((always + 5.0..always + 6.5).contains(&usual), "{usual}");
        assert!(bytes_a_block("24/full/luck").is_err());
    }
}
