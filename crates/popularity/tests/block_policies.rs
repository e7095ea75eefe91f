//! Scripts of the policies of a second-level cache of blocks: what each one admits, what leaves,
//! and what comes of them on a trace of which a small part is asked for most.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeMap;
use thermocline_foundation::random::{Random, mix};
use thermocline_popularity::{
    AdmissionPolicy, BlockAdmission, EvictionPolicy, LeavingBlock, choose_file, reinserted,
};

const BLOCK_BYTES: u32 = 4096;
const ALL: [AdmissionPolicy; 4] = [
    AdmissionPolicy::Always,
    AdmissionPolicy::SecondAccess,
    AdmissionPolicy::SimulatedLru { percent: 100 },
    AdmissionPolicy::Frequency,
];

fn policy(policy: AdmissionPolicy, blocks: u64) -> BlockAdmission {
    let bytes = u64::from(BLOCK_BYTES);
    BlockAdmission::new(policy, blocks * bytes, bytes)
}

/// What a policy answers to misses of these blocks.
fn script(admission: &mut BlockAdmission, blocks: &[u64]) -> Vec<bool> {
    blocks.iter().map(|block| admission.missed(mix(*block), BLOCK_BYTES)).collect()
}

#[test]
fn a_block_that_is_missed_twice_is_admitted_by_all_and_the_first_time_by_some() {
    let answers = ALL.map(|which| script(&mut policy(which, 100), &[1, 2, 1, 3, 2]));
    assert_eq!(answers[0], [true; 5], "always");
    assert_eq!(answers[1], [false, false, true, false, true], "second access");
    assert_eq!(answers[2], [false, false, true, false, true], "simulated cache");
    assert_eq!(answers[3], [true; 5], "nothing has left yet");
}

#[test]
fn a_scan_of_more_than_the_cache_holds_is_admitted_by_no_simulated_cache() {
    // Far more than it holds, and far less: near its size the lines of its keys differ.
    let mut lru = policy(AdmissionPolicy::SimulatedLru { percent: 100 }, 100);
    let scan: Vec<_> = (0..400).chain(0..400).collect();
    assert!(script(&mut lru, &scan).iter().all(|admitted| !admitted));
    let mut large = policy(AdmissionPolicy::SimulatedLru { percent: 400 }, 1000);
    assert!(script(&mut large, &scan)[400..].iter().all(|admitted| *admitted));
}

#[test]
fn what_leaves_raises_the_bar_of_the_frequency() {
    let mut frequency = policy(AdmissionPolicy::Frequency, 100);
    script(&mut frequency, &[1, 1, 1, 1]);
    (0..2000).for_each(|_| frequency.left(mix(1)));
    assert_eq!(script(&mut frequency, &[2, 2, 2, 2, 2]), [false, false, false, false, true]);
    (0..2000).for_each(|_| frequency.left(mix(99)));
    assert_eq!(script(&mut frequency, &[3]), [true], "they are not worth more any more");
}

/// A cache of files that follows the policies, as far as figures need one.
struct Model {
    admission: BlockAdmission,
    eviction: EvictionPolicy,
    files: Vec<(u64, Vec<u64>)>,
    /// Hits of the blocks that are there.
    hits: BTreeMap<u64, u8>,
    files_max: usize,
    found: u64,
    written: u64,
    now: u64,
}

const FILE_BLOCKS: usize = 16;

impl Model {
    fn new(admission: AdmissionPolicy, eviction: EvictionPolicy, blocks: u64) -> Self {
        let files_max = blocks as usize / FILE_BLOCKS;
        let admission = policy(admission, blocks);
        let (files, hits) = (Vec::new(), BTreeMap::new());
        Self { admission, eviction, files, hits, files_max, found: 0, written: 0, now: 0 }
    }

    fn ask(&mut self, block: u64) {
        self.now += 1;
        let admitted = self.admission.missed(mix(block), BLOCK_BYTES);
        if let Some(hits) = self.hits.get_mut(&block) {
            *hits = (*hits + 1).min(3);
            self.found += 1;
            let file = self.files.iter_mut().find(|(_, blocks)| blocks.contains(&block));
            file.unwrap().0 = self.now;
        } else if admitted {
            self.write(block);
        }
    }

    fn write(&mut self, block: u64) {
        if self.files.last().is_none_or(|(_, blocks)| blocks.len() == FILE_BLOCKS) {
            if self.files.len() == self.files_max {
                self.evict();
            }
            self.files.push((self.now, Vec::new()));
        }
        self.files.last_mut().unwrap().1.push(block);
        self.hits.insert(block, 0);
        self.written += 1;
    }

    fn evict(&mut self) {
        let last_hits: Vec<_> = self.files.iter().map(|(last_hit, _)| *last_hit).collect();
        let (_, blocks) = self.files.remove(choose_file(self.eviction, &last_hits).unwrap());
        let hits = blocks.iter().map(|block| self.hits.remove(block).unwrap());
        let leaving = hits.map(|hits| LeavingBlock { hits, len: BLOCK_BYTES });
        let leaving: Vec<_> = leaving.collect();
        let file_bytes = FILE_BLOCKS as u64 * u64::from(BLOCK_BYTES);
        let stay = reinserted(self.eviction, file_bytes, &leaving);
        let gone = (0..blocks.len()).filter(|at| !stay.contains(at));
        gone.for_each(|at| self.admission.left(mix(blocks[at])));
        stay.into_iter().for_each(|at| self.write(blocks[at]));
    }
}

/// Hits and writes on a trace of 4000 blocks, of which a cache holds a tenth.
fn run(admission: AdmissionPolicy, eviction: EvictionPolicy) -> (f64, f64) {
    let (mut model, mut random) = (Model::new(admission, eviction, 400), Random::new(5));
    for _ in 0..60_000 {
        // About Zipf's law: each decade of blocks is asked for as often as the next.
        let block = (4000f64.powf(random.unit())) as u64;
        model.ask(block);
    }
    (model.found as f64 / 60_000.0, model.written as f64 / 60_000.0)
}

#[test]
fn admission_saves_writes_and_reinsertion_gains_hits() {
    let (fifo, reinsert) = (EvictionPolicy::Fifo, EvictionPolicy::FifoReinsert);
    let always = run(AdmissionPolicy::Always, fifo);
    let kept = run(AdmissionPolicy::Always, reinsert);
    assert!(kept.0 > always.0 + 0.02, "reinsertion: {kept:?} against {always:?}");
    for which in &ALL[1..] {
        let admitted = run(*which, reinsert);
        assert!(admitted.1 < 0.6 * always.1, "{which:?} writes {admitted:?}, all {always:?}");
        assert!(admitted.0 > always.0, "{which:?} finds {admitted:?}, all {always:?}");
    }
}
