//! A trace through one admission and one eviction: what would have been hit and written, by
//! arithmetic alone.
//!
//! ```text
//!   request ──> admission ──> look-up ──> hit
//!                   │           └ miss, wanted ──> batch ──> file being filled ──> sealed files
//!                   │                                              ^                    │ oldest
//!                   └──────────── what has left ───────────────────┴── hit blocks again ┘
//! ```
//! Admission, eviction, look-up, layout and the bytes of a seal are the engine's own functions;
//! this is the engine's cache (`engine/src/fast_cache`) without files, tables that go, pauses and
//! other threads: a batch is written in the moment in which it is full. A test holds it against a
//! store.

use std::collections::VecDeque;
use thermocline::{BlockRequest, BlockTrace};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::file_cache::{Layout, Lookup, Sealed, lookup, sealed::POSITION_BYTES};
use thermocline_foundation::FileNumber;
use thermocline_popularity::{
    AdmissionPolicy, BlockAdmission, EvictionPolicy, LeavingBlock, choose_file, reinserted,
};

const PAGE: u64 = PAGE_BYTES as u64;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Which blocks are taken.
    pub admission: AdmissionPolicy,
    /// Which file goes, and what of it is written again.
    pub eviction: EvictionPolicy,
    /// How blocks lie in files.
    pub layout: Layout,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Requests that were copies' to serve.
    pub hits: u64,
    /// All others.
    pub misses: u64,
    /// Misses whose block was wanted.
    pub admitted: u64,
    /// Bytes written, with zeros, directories and footers, and what was written again.
    pub written_bytes: u64,
    /// Blocks that were written again.
    pub reinserted_blocks: u64,
    /// Hits whose copy touches two pages or more.
    pub spread_hits: u64,
    /// Pages that all hits touch.
    pub pages_hit: u64,
    /// Blocks that are there at the end.
    pub blocks: u64,
    /// Memory of look-up and admission at the end, in bytes.
    pub memory_bytes: u64,
}

impl Verdict {
    /// Hits in percent of the requests.
    pub fn hit_percent(&self) -> f64 {
        percent(self.hits, self.hits + self.misses)
    }

    /// Bytes written for a request.
    pub fn bytes_a_request(&self) -> f64 {
        self.written_bytes as f64 / (self.hits + self.misses).max(1) as f64
    }

    /// Hits of two pages and more, in percent of all hits.
    pub fn spread_percent(&self) -> f64 {
        percent(self.spread_hits, self.hits)
    }

    /// Pages that a hit touches, in the mean.
    pub fn pages_a_hit(&self) -> f64 {
        self.pages_hit as f64 / self.hits.max(1) as f64
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// Where the bytes of a replay go. Files are known by their position.
pub trait Medium {
    /// Writes so many bytes at `at` of a file, made where it is not there.
    fn write(&mut self, file: u64, at: u64, bytes: u64);
    /// Reads a block of `len` bytes, and looks at its checksum.
    fn read(&mut self, file: u64, at: u64, len: u32);
    /// The file goes.
    fn remove(&mut self, file: u64);
}

/// They go nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Medium for Nowhere {
    fn write(&mut self, _file: u64, _at: u64, _bytes: u64) {}
    fn read(&mut self, _file: u64, _at: u64, _len: u32) {}
    fn remove(&mut self, _file: u64) {}
}

/// What `policies` make of `trace`; the first `warm_up` requests are not counted.
pub fn replay(trace: &BlockTrace, policies: Policies, warm_up: usize) -> Verdict {
    replay_on(&mut Nowhere, trace, policies, warm_up)
}

/// The same, with bytes that are written to and read from `medium`.
pub fn replay_on(
    medium: &mut dyn Medium,
    trace: &BlockTrace,
    policies: Policies,
    warm_up: usize,
) -> Verdict {
    let mut replay = Replay::new(medium, trace, policies);
    let mut before = Verdict::default();
    for (at, request) in trace.requests.iter().enumerate() {
        if at == warm_up {
            before = replay.counts;
        }
        replay.request(*request);
    }
    replay.verdict(before)
}

/// A block in a batch or a file.
#[derive(Clone, Copy, Debug)]
struct Placed {
    hash: u64,
    /// Bytes from the start of the batch or file.
    at: u64,
    len: u32,
}

#[derive(Debug, Default)]
struct Batch {
    end: u64,
    blocks: Vec<Placed>,
}

#[derive(Debug)]
struct CacheFile {
    /// The position of its first byte, in units of [`POSITION_BYTES`]; 0 is none's.
    start: u64,
    end: u64,
    blocks: Vec<Placed>,
    last_hit: u64,
    is_sealed: bool,
}

struct Replay<'a> {
    medium: &'a mut dyn Medium,
    policies: Policies,
    capacity_bytes: u64,
    file_bytes: u64,
    batch_bytes: u64,
    admission: BlockAdmission,
    lookup: Lookup,
    /// Oldest first; the last one may be being filled.
    files: VecDeque<CacheFile>,
    /// The position behind the newest file there has been.
    head: u64,
    gathering: Batch,
    /// The file that has left, and its blocks which are to be written again, the next one last.
    leaving: (u64, Vec<Placed>),
    now: u64,
    counts: Verdict,
}

/// The file that lies at `position`, if it is still there.
fn file_at(files: &VecDeque<CacheFile>, file_bytes: u64, position: u64) -> Option<usize> {
    let at = files.partition_point(|file| file.start <= position).checked_sub(1)?;
    (position < files[at].start + file_bytes / POSITION_BYTES).then_some(at)
}

impl<'a> Replay<'a> {
    fn new(medium: &'a mut dyn Medium, trace: &BlockTrace, policies: Policies) -> Self {
        let BlockTrace { capacity_bytes, file_bytes, batch_bytes, block_bytes, .. } = *trace;
        Self {
            medium,
            policies,
            capacity_bytes,
            file_bytes,
            batch_bytes,
            admission: BlockAdmission::new(policies.admission, capacity_bytes, block_bytes),
            lookup: Lookup::new(capacity_bytes / block_bytes.max(1)),
            files: VecDeque::new(),
            head: 1,
            gathering: Batch::default(),
            leaving: (0, Vec::new()),
            now: 0,
            counts: Verdict::default(),
        }
    }

    fn request(&mut self, BlockRequest { table, offset, len }: BlockRequest) {
        let hash = lookup::hash_of(FileNumber(table), offset);
        self.now += 1;
        let is_wanted = self.admission.missed(hash, len) || self.has_room();
        let position = self.lookup.find(hash);
        let found = position.and_then(|position| {
            Some((file_at(&self.files, self.file_bytes, position)?, position))
        });
        if let Some((at, position)) = found {
            self.hit(at, position, len);
            return;
        }
        self.counts.misses += 1;
        if is_wanted {
            self.counts.admitted += 1;
            self.offer(hash, len);
        }
    }

    /// No file has to leave for another one.
    fn has_room(&self) -> bool {
        (self.files.len() as u64 + 1) * self.file_bytes <= self.capacity_bytes
    }

    fn hit(&mut self, at: usize, position: u64, len: u32) {
        let file = &mut self.files[at];
        file.last_hit = self.now;
        let in_file = (position - file.start) * POSITION_BYTES;
        let pages = (in_file % PAGE + u64::from(len)).div_ceil(PAGE);
        self.medium.read(file.start, in_file, len);
        self.counts.hits += 1;
        self.counts.pages_hit += pages;
        self.counts.spread_hits += u64::from(pages > 1);
    }

    /// Takes a block that is not on its way already.
    fn offer(&mut self, hash: u64, len: u32) {
        let is_here = self.gathering.blocks.iter().any(|block| block.hash == hash);
        if is_here || u64::from(len) > self.batch_bytes || self.add(hash, len) {
            return;
        }
        let full = std::mem::take(&mut self.gathering);
        self.add(hash, len);
        self.write(&full);
        self.reinsert();
    }

    /// Adds a block to the batch that gathers; false where it does not fit.
    fn add(&mut self, hash: u64, len: u32) -> bool {
        let batch = &mut self.gathering;
        add(batch, self.policies.layout, self.batch_bytes, Placed { hash, at: 0, len })
    }

    /// Writes a batch into the file that is being filled, or into a new one.
    fn write(&mut self, batch: &Batch) {
        let bytes = batch.end.next_multiple_of(PAGE);
        if !self.has_place(bytes, batch.blocks.len() as u64) {
            return;
        }
        let file_bytes = self.file_bytes;
        let Some(file) = self.files.back_mut() else { return };
        let (start, end) = (file.start, file.end);
        let placed = batch.blocks.iter().map(|block| Placed { at: end + block.at, ..*block });
        file.blocks.extend(placed.clone());
        file.end += bytes;
        let files = &self.files;
        for block in placed {
            let is_live = |position| file_at(files, file_bytes, position).is_some();
            self.lookup.insert(block.hash, start + block.at / POSITION_BYTES, is_live);
        }
        self.counts.written_bytes += bytes;
        self.medium.write(start, end, bytes);
    }

    /// There is a file that has room for so many bytes of so many blocks, and for their seal.
    fn has_place(&mut self, bytes: u64, blocks: u64) -> bool {
        let most = self.file_bytes;
        let fits = |file: &CacheFile| {
            let overhead = Sealed::overhead_bytes(file.blocks.len() as u64 + blocks);
            !file.is_sealed && file.end + bytes + overhead <= most
        };
        if self.files.back().is_some_and(fits) {
            return true;
        }
        if let Some(file) = self.files.back_mut().filter(|file| !file.is_sealed) {
            file.is_sealed = true;
            let seal_bytes = Sealed::overhead_bytes(file.blocks.len() as u64);
            self.counts.written_bytes += seal_bytes;
            self.medium.write(file.start, file.end, seal_bytes);
        }
        if !self.has_room() {
            self.evict();
        }
        self.files.push_back(CacheFile {
            start: self.head,
            end: 0,
            blocks: Vec::new(),
            last_hit: self.now,
            is_sealed: false,
        });
        self.head += self.file_bytes / POSITION_BYTES;
        self.files.back().is_some_and(fits)
    }

    /// Takes a file off the list, and says which of its blocks are to be written again.
    fn evict(&mut self) {
        let policy = self.policies.eviction;
        let last_hits: Vec<_> = self.files.iter().map(|file| file.last_hit).collect();
        let chosen = choose_file(policy, &last_hits).and_then(|at| self.files.remove(at));
        let Some(file) = chosen else { return };
        let hits = |block: &Placed| {
            let position = file.start + block.at / POSITION_BYTES;
            Some((*block, self.lookup.take(block.hash, position)?))
        };
        let blocks: Vec<(Placed, u8)> = file.blocks.iter().filter_map(hits).collect();
        let of = |(block, hits): &(Placed, u8)| LeavingBlock { hits: *hits, len: block.len };
        let stay = reinserted(policy, self.file_bytes, &blocks.iter().map(of).collect::<Vec<_>>());
        for at in (0..blocks.len()).filter(|at| stay.binary_search(at).is_err()) {
            self.admission.left(blocks[at].0.hash);
        }
        let stay: Vec<_> = stay.into_iter().rev().map(|at| blocks[at].0).collect();
        if stay.is_empty() {
            self.medium.remove(file.start);
        } else {
            self.leaving = (file.start, stay);
        }
    }

    /// Writes those blocks again, until another file has to leave for them.
    fn reinsert(&mut self) {
        loop {
            let (file, mut blocks) = std::mem::take(&mut self.leaving);
            if blocks.is_empty() {
                return;
            }
            while !blocks.is_empty() && self.leaving.1.is_empty() {
                let batch = self.kept(file, &mut blocks);
                if batch.blocks.is_empty() {
                    break;
                }
                self.write(&batch);
            }
            self.medium.remove(file);
        }
    }

    /// The next batch of the `blocks` of `file` that are written again.
    fn kept(&mut self, file: u64, blocks: &mut Vec<Placed>) -> Batch {
        let mut batch = Batch::default();
        while let Some(block) = blocks.pop() {
            if !add(&mut batch, self.policies.layout, self.batch_bytes, block) {
                blocks.push(block);
                break;
            }
            self.medium.read(file, block.at, block.len);
            self.counts.reinserted_blocks += 1;
        }
        batch
    }

    fn verdict(&self, before: Verdict) -> Verdict {
        let counts = &self.counts;
        let is_live = |position| file_at(&self.files, self.file_bytes, position).is_some();
        Verdict {
            hits: counts.hits - before.hits,
            misses: counts.misses - before.misses,
            admitted: counts.admitted - before.admitted,
            written_bytes: counts.written_bytes - before.written_bytes,
            reinserted_blocks: counts.reinserted_blocks - before.reinserted_blocks,
            spread_hits: counts.spread_hits - before.spread_hits,
            pages_hit: counts.pages_hit - before.pages_hit,
            blocks: self.lookup.count(is_live),
            memory_bytes: self.lookup.memory_bytes() + self.admission.memory_bytes(),
        }
    }
}

/// Puts a block behind those of `batch`; false where it does not fit.
fn add(batch: &mut Batch, layout: Layout, batch_bytes: u64, block: Placed) -> bool {
    let at = layout.place(batch.end, block.len.into());
    let end = at + u64::from(block.len);
    if end > batch_bytes {
        return false;
    }
    batch.end = end;
    batch.blocks.push(Placed { at, ..block });
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use thermocline::{
        Admission, BlockLayout, ByteSize, Compression, Environment, Eviction, Experiments,
        FastCacheSettings, FastCacheStats, PlacementChoice, Preset, Settings, Stepper, Tier,
        Workers,
    };
    use thermocline_device::MemoryDevices;
    use thermocline_foundation::random::{Random, mix};

    const KEYS: u64 = 10_000;

    fn settings(admission: Admission, eviction: Eviction, layout: BlockLayout) -> Settings {
        Settings {
            preset: Some(Preset::Leveled),
            tiers: vec![
                Tier::new("/fast", ByteSize::mib(32)).driver("memory"),
                Tier::new("/slow", ByteSize::mib(128)).driver("memory"),
            ],
            memory: ByteSize::mib(1),
            table_size: ByteSize::kib(256),
            block_size: ByteSize::kib(1),
            compression: vec![Compression::None],
            placement: PlacementChoice::LogOnly,
            fast_cache: FastCacheSettings {
                capacity: ByteSize::mib(1).into(),
                file_size: ByteSize::kib(64),
                batch: ByteSize::kib(16),
                admission,
                eviction,
                layout,
                ..FastCacheSettings::default()
            },
            ..Settings::default()
        }
    }

    fn key(number: u64) -> [u8; 8] {
        mix(number).to_be_bytes()
    }

    /// Half of the look-ups go to a few records. After each one what is due is done.
    fn worked(settings: &Settings) -> (BlockTrace, FastCacheStats) {
        let environment = Environment {
            devices: Arc::new(MemoryDevices::default()),
            workers: Workers::Stepped(Arc::new(Stepper::new(1))),
            experiments: Experiments { traced_blocks: Some(1 << 20), ..Experiments::NONE },
            ..Environment::default()
        };
        let db = environment.create(Path::new("/home"), settings).unwrap();
        let value = |number: u64| [mix(number).to_le_bytes(); 100].concat();
        (0..KEYS).for_each(|number| db.put(key(number), value(number)).unwrap());
        db.compact_range(None, None, &mut |_| {}).unwrap();
        db.settle().unwrap();
        let mut random = Random::new(7);
        for at in 0..12_000 {
            let number = random.below(if at % 2 == 0 { 400 } else { KEYS });
            assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number));
            db.settle().unwrap();
        }
        (db.block_trace().unwrap(), db.stats().fast_cache.unwrap())
    }

    #[test]
    fn a_replay_comes_to_what_a_store_did() {
        use AdmissionPolicy as A;
        use EvictionPolicy as E;
        let lru = A::SimulatedLru { percent: 100 };
        for (own, admission, eviction, layout) in [
            ((Admission::Always, Eviction::FifoReinsert), A::Always, E::FifoReinsert, 0),
            ((Admission::SimulatedLru, Eviction::FifoReinsert), lru, E::FifoReinsert, 1),
            ((Admission::SecondAccess, Eviction::FileLru), A::SecondAccess, E::FileLru, 0),
            ((Admission::Frequency, Eviction::Fifo), A::Frequency, E::Fifo, 0),
        ] {
            let layouts =
                [(BlockLayout::Packed, Layout::Packed), (BlockLayout::Padded, Layout::Padded)];
            let (own_layout, layout) = layouts[layout];
            let (trace, cache) = worked(&settings(own.0, own.1, own_layout));
            assert_eq!(cache.failed, 0);
            let verdict = replay(&trace, Policies { admission, eviction, layout }, 0);
            let found = [verdict.hits, verdict.misses, verdict.admitted, verdict.written_bytes];
            let expected = [cache.hits, cache.misses, cache.admitted, cache.written_bytes];
            assert_eq!(found, expected, "{own:?}: {cache:?}");
            assert_eq!(verdict.reinserted_blocks, cache.reinserted_blocks, "{own:?}");
            assert_eq!((verdict.blocks, verdict.memory_bytes), (cache.blocks, cache.memory_bytes));
            assert!(verdict.hits > 1000 && cache.evicted_files > 2, "{own:?}: {cache:?}");
        }
    }
}
