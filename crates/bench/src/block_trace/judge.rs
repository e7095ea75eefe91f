//! `judge`: each admission and each eviction on one trace of blocks, by arithmetic alone.
//!
//! The first part of the trace fills the cache and is not counted.

use super::replay::{Policies, Verdict, replay};
use crate::Outcome;
use crate::report::table::align;
use clap::Args;
use std::path::PathBuf;
use thermocline::{BlockTrace, ByteSize};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::file_cache::Layout;
use thermocline_popularity::{AdmissionPolicy, EvictionPolicy};

/// Admissions by name, that of a store first.
pub const ADMISSIONS: [(&str, AdmissionPolicy); 4] = [
    ("simulated_lru", AdmissionPolicy::SimulatedLru { percent: 100 }),
    ("always", AdmissionPolicy::Always),
    ("second_access", AdmissionPolicy::SecondAccess),
    ("frequency", AdmissionPolicy::Frequency),
];

/// Evictions by name, that of a store first.
pub const EVICTIONS: [(&str, EvictionPolicy); 3] = [
    ("fifo_reinsert", EvictionPolicy::FifoReinsert),
    ("fifo", EvictionPolicy::Fifo),
    ("file_lru", EvictionPolicy::FileLru),
];

/// Files of a cache at least, and bytes of one.
const FILES_MIN: u64 = 16;
const FILE_BYTES_MIN: u64 = 64 << 10;

/// `judge`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  thermocline-bench mynvm --figure judge          records mynvm-trace.jsonl, and judges it
  thermocline-bench judge mynvm-trace.jsonl
  thermocline-bench judge mynvm-trace.jsonl --capacity 32MiB --warm-up-percent 70

Lines `ratio judge/ADMISSION/EVICTION/writes VALUE` are bytes written over those of `always`;
`.../hits VALUE` are percent of the requests.")]
pub struct JudgeArguments {
    /// The file of a trace
    pub trace: PathBuf,
    /// Bytes of the cache, in place of what it had when the trace was recorded
    #[arg(long)]
    pub capacity: Option<ByteSize>,
    /// Percent of the requests that fill the cache before anything is counted
    #[arg(long, default_value_t = WARM_UP_PERCENT,
        value_parser = clap::value_parser!(u8).range(0..=99))]
    pub warm_up_percent: u8,
    /// Copies aligned to pages, in place of one behind the other
    #[arg(long)]
    pub padded: bool,
}

/// What fills the cache where nothing else is said.
pub const WARM_UP_PERCENT: u8 = 50;

/// What one admission with one eviction came to.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// The admission's name.
    pub admission: &'static str,
    /// The eviction's name.
    pub eviction: &'static str,
    /// What came of them.
    pub verdict: Verdict,
}

/// Each admission with each eviction.
pub fn all(trace: &BlockTrace, layout: Layout, warm_up_percent: u8) -> Vec<Judged> {
    let warm_up = trace.requests.len() * usize::from(warm_up_percent) / 100;
    let pairs = ADMISSIONS.iter().flat_map(|admission| EVICTIONS.map(|e| (*admission, e)));
    let judged = pairs.map(|((admission, admits), (eviction, evicts))| {
        let policies = Policies { admission: admits, eviction: evicts, layout };
        Judged { admission, eviction, verdict: replay(trace, policies, warm_up) }
    });
    judged.collect()
}

/// That of two names.
pub fn of(judged: &[Judged], admission: &str, eviction: &str) -> Verdict {
    let mut own = judged.iter().filter(|j| (j.admission, j.eviction) == (admission, eviction));
    own.next().map(|judged| judged.verdict).unwrap_or_default()
}

/// Bytes written with `verdict` over those of `always` and the usual eviction.
pub fn writes_to_always(judged: &[Judged], verdict: &Verdict) -> f64 {
    let always = of(judged, "always", EVICTIONS[0].0).written_bytes;
    verdict.written_bytes as f64 / always.max(1) as f64
}

/// The cache that `trace` was recorded with, of `capacity`.
fn sized(mut trace: BlockTrace, capacity: ByteSize) -> BlockTrace {
    let page = PAGE_BYTES as u64;
    let most = (capacity.0 / FILES_MIN / page * page).max(FILE_BYTES_MIN);
    trace.file_bytes = trace.file_bytes.min(most);
    trace.batch_bytes = trace.batch_bytes.min(trace.file_bytes / 4 / page * page);
    trace.capacity_bytes = capacity.0.max(trace.file_bytes);
    trace
}

/// The table of a trace, and lines for programs.
pub fn run(arguments: &JudgeArguments) -> Outcome<String> {
    let trace = super::read(&arguments.trace)?;
    if trace.requests.is_empty() {
        return Err(format!("{} has no requests", arguments.trace.display()).into());
    }
    let trace = match arguments.capacity {
        Some(capacity) => sized(trace, capacity),
        None => trace,
    };
    let layout = if arguments.padded { Layout::Padded } else { Layout::Packed };
    Ok(shown(&trace, &all(&trace, layout, arguments.warm_up_percent)))
}

/// What `judged` says of `trace`.
pub fn shown(trace: &BlockTrace, judged: &[Judged]) -> String {
    let heads = [
        "admission",
        "eviction",
        "hits %",
        "wanted %",
        "written B a request",
        "of always",
        "written again %",
        "memory B a block",
    ];
    let mut table = vec![heads.map(str::to_owned).to_vec()];
    let mut lines = String::new();
    for Judged { admission, eviction, verdict } in judged {
        let requests = (verdict.hits + verdict.misses).max(1) as f64;
        let (hits, writes) = (verdict.hit_percent(), writes_to_always(judged, verdict));
        let again = 100.0 * verdict.reinserted_blocks as f64 / requests;
        table.push(vec![
            (*admission).to_owned(),
            (*eviction).to_owned(),
            format!("{hits:.1}"),
            format!("{:.1}", 100.0 * verdict.admitted as f64 / requests),
            format!("{:.0}", verdict.bytes_a_request()),
            format!("{writes:.3}"),
            format!("{again:.1}"),
            format!("{:.1}", verdict.memory_bytes as f64 / verdict.blocks.max(1) as f64),
        ]);
        let name = format!("judge/{admission}/{eviction}");
        lines.push_str(&format!("ratio {name}/hits {hits:.2}\nratio {name}/writes {writes:.3}\n"));
    }
    let capacity = ByteSize(trace.capacity_bytes);
    let head = format!("{} requests, a cache of {capacity}\n", trace.requests.len());
    head + &align(&table) + &lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::BlockRequest;
    use thermocline_foundation::random::Random;

    /// Half of the requests go to a fiftieth of the blocks; the others to all.
    fn trace() -> BlockTrace {
        let mut random = Random::new(1);
        let request = |block: u64| {
            let (table, offset) = (1 + block % 5, block / 5 * 8192);
            BlockRequest { table, offset, len: 2500 + (block * 37 % 1500) as u32 }
        };
        let requests = (0..120_000).map(|at| {
            let of = if at % 2 == 0 { 400 } else { 20_000 };
            request(random.below(of))
        });
        BlockTrace {
            capacity_bytes: 4 << 20,
            file_bytes: 256 << 10,
            batch_bytes: 32 << 10,
            block_bytes: 3072,
            requests: requests.collect(),
        }
    }

    #[test]
    fn admission_writes_less_than_all_blocks_and_reinsertion_keeps_hot_ones() {
        let trace = trace();
        let judged = all(&trace, Layout::Packed, 50);
        assert_eq!(judged.len(), 12);
        let hits = |admission, eviction| of(&judged, admission, eviction).hit_percent();
        assert!(hits("always", "fifo_reinsert") > hits("always", "fifo") + 2.0);
        for admission in ["simulated_lru", "second_access", "frequency"] {
            let verdict = of(&judged, admission, "fifo_reinsert");
            let writes = writes_to_always(&judged, &verdict);
            assert!(writes < 0.5, "{admission}: {writes}");
            assert!(verdict.hit_percent() > hits("always", "fifo"), "{admission}");
            assert_eq!(verdict.hits + verdict.misses, 60_000);
        }
        let again = of(&judged, "always", "fifo_reinsert").reinserted_blocks;
        assert!(again > 0 && of(&judged, "always", "file_lru").reinserted_blocks == 0);
        let text = shown(&trace, &judged);
        assert!(text.contains("ratio judge/always/fifo_reinsert/writes 1.000"), "{text}");
    }

    #[test]
    fn aligned_copies_touch_fewer_pages_and_are_fewer() {
        let trace = trace();
        let of = |layout| of(&all(&trace, layout, 50), "always", "fifo");
        let (packed, padded) = (of(Layout::Packed), of(Layout::Padded));
        assert!(padded.spread_percent() < 1.0, "blocks are shorter than a page: {padded:?}");
        assert!(packed.spread_percent() > 50.0, "{packed:?}");
        assert!(padded.blocks < packed.blocks && padded.hits < packed.hits);
    }

    #[test]
    fn a_larger_cache_hits_more_and_a_small_one_has_small_files() {
        let tried = |mib: u64| {
            let sized = sized(trace(), ByteSize::mib(mib));
            (sized.file_bytes, of(&all(&sized, Layout::Packed, 50), "always", "fifo").hits)
        };
        let [(file_bytes, few), (_, some), (most, all)] = [1, 4, 32].map(tried);
        assert!(few < some && some < all, "{few}, {some}, {all}");
        assert_eq!((file_bytes, most), (64 << 10, 256 << 10));
    }
}
