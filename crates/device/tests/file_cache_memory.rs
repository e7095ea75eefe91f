//! What a block of the cache on the fast tier takes of memory: its entry and its admission's, as
//! the allocator was asked for them.
#![cfg(not(shuttle))]

use allocation_counter::measure;
use thermocline_device::file_cache::Lookup;
use thermocline_device::file_cache::lookup::hash_of;
use thermocline_foundation::FileNumber;
use thermocline_popularity::{AdmissionPolicy, BlockAdmission};

const BLOCKS: u64 = 100_000;
const BLOCK_BYTES: u64 = 3 << 10;

/// Both for a cache of so many blocks, of which each was missed twice and is there.
fn full(policy: AdmissionPolicy) -> (Lookup, BlockAdmission) {
    let lookup = Lookup::new(BLOCKS);
    let mut admission = BlockAdmission::new(policy, BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
    for block in (0..2 * BLOCKS).map(|at| at % BLOCKS) {
        let hash = hash_of(FileNumber(1), block * BLOCK_BYTES);
        admission.missed(hash, BLOCK_BYTES as u32);
        lookup.insert(hash, 1 + block * BLOCK_BYTES / 16, |_| true);
    }
    (lookup, admission)
}

#[test]
fn a_cached_block_takes_at_most_20_bytes_of_memory() {
    for (policy, most) in [
        (AdmissionPolicy::Always, 10.1),
        (AdmissionPolicy::SimulatedLru { percent: 100 }, 16.0),
        (AdmissionPolicy::SecondAccess, 20.0),
        (AdmissionPolicy::Frequency, 20.0),
    ] {
        let mut made = None;
        let asked = measure(|| made = Some(full(policy))).bytes_current as u64;
        let Some((lookup, admission)) = made else { panic!("it was made") };
        assert_eq!(asked, lookup.memory_bytes() + admission.memory_bytes(), "{policy:?}");
        let blocks = lookup.count(|_| true);
        let each = asked as f64 / blocks as f64;
        assert!(blocks > BLOCKS / 100 * 99 && each <= most, "{policy:?}: {each} B of {blocks}");
    }
}
