//! What readers meet of the cache: is there a copy, should there be one, here is the block, the
//! copy was wrong.
//!
//! Invariants:
//! 1. No call does I/O or waits for any. Locks are held for arithmetic and for the copying of one
//!    block.
//! 2. A copy that was wrong is not found again. Sixteen failures retire its file.
//! 3. Admission follows from the order of the calls: no entropy, no clock, but for pauses after
//!    errors and a budget of writes. It decides once the cache is full; until then all is taken.
//!
//! Threads: any. The job of the cache takes what is full and what is retired (`work.rs`); it wakes
//! when [`Copies::is_due`].

use super::plan::Plan;
use super::trace::{BlockRequest, Noted};
use crate::environment::experiments::Experiments;
use crate::jobs::Jobs;
use std::sync::Arc;
use thermocline_device::file_cache::{BackOff, Files, Filling, Lookup, Offered, lookup};
use thermocline_device::{Error, ErrorKind};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{ArcSwap, Mutex};
use thermocline_foundation::{Clock, Counter};
use thermocline_popularity::{BlockAdmission, WriteBudget};
use thermocline_table::{BlockClass, BlockKey, CachedAt, Found, SecondLevel};

/// What the cache did since opening.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub hits: Counter,
    pub misses: Counter,
    /// Misses after which the block was wanted, and was not.
    pub admitted: Counter,
    pub refused: Counter,
    /// Blocks that were wanted and not taken: the job was behind, or the budget was used up.
    pub dropped: Counter,
    /// Copies that could not be read, or did not match.
    pub failed: Counter,
    pub inserted_blocks: Counter,
    pub reinserted_blocks: Counter,
    /// Bytes written, with directories, footers and what was reinserted.
    pub written_bytes: Counter,
    pub evicted_files: Counter,
    pub adopted_files: Counter,
    pub adopted_blocks: Counter,
    /// Time that it took to look at files of earlier openings.
    pub adopting_ns: Counter,
    /// Files of earlier openings that did not count.
    pub refused_files: Counter,
}

/// Requests after which the job looks again at files of earlier openings that wait: for a
/// descriptor, where nothing else may happen in a store that is only read.
const LOOK_EVERY: u64 = 1024;

/// What a block is known by.
pub(super) fn hash_of(key: BlockKey) -> u64 {
    lookup::hash_of(key.table, key.offset)
}

/// What decides by the order of calls.
#[derive(Debug)]
struct Deciding {
    admission: BlockAdmission,
    /// Calls so far: the time of hits.
    now: u64,
    /// The calls themselves, where an experiment wants them.
    noted: Noted,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Copies {
    pub plan: Plan,
    pub lookup: Lookup,
    pub files: ArcSwap<Files>,
    pub filling: Mutex<Filling<BlockKey>>,
    pub counts: Counts,
    deciding: Mutex<Deciding>,
    budget: Mutex<Option<WriteBudget>>,
    back_off: Mutex<BackOff>,
    /// Nothing is found or taken before that time.
    off_until_ns: AtomicU64,
    /// Offers are taken: not while files of earlier openings are read.
    is_filled: AtomicBool,
    /// No file has to leave for another one, and no budget spares writes: all that is missed is
    /// wanted.
    has_room: AtomicBool,
    /// There may be something to do for the job.
    due: AtomicBool,
    clock: Arc<dyn Clock>,
    jobs: Arc<Jobs>,
}

impl Copies {
    /// An empty cache, which takes no offers yet. `is_first`: no opening before had one.
    pub fn new(
        plan: Plan,
        is_first: bool,
        experiments: &Experiments,
        (clock, jobs): (Arc<dyn Clock>, Arc<Jobs>),
    ) -> Self {
        let admission = BlockAdmission::new(plan.admission, plan.capacity_bytes, plan.block_bytes);
        let lookup = Lookup::new(plan.blocks());
        let noted = Noted::new(experiments.traced_blocks);
        Self {
            lookup: match experiments.signature_bits {
                Some(bits) => lookup.with_signature_bits(bits),
                None => lookup,
            },
            files: ArcSwap::from_pointee(Files::new()),
            filling: Mutex::new(Filling::new(plan.layout, plan.batch_bytes)),
            counts: Counts::default(),
            deciding: Mutex::new(Deciding { admission, now: 0, noted }),
            budget: Mutex::new(plan.write_budget(is_first, clock.now_ns())),
            back_off: Mutex::default(),
            off_until_ns: AtomicU64::new(0),
            is_filled: AtomicBool::new(false),
            has_room: AtomicBool::new(false),
            due: AtomicBool::new(true),
            plan,
            clock,
            jobs,
        }
    }

    /// From now on offers are taken.
    pub fn fill(&self) {
        self.is_filled.store(true, Relaxed);
    }

    /// Whether a block that is taken is in no other's way, and no budget spares its write.
    pub fn note_room(&self, has_room: bool) {
        self.has_room.store(has_room, Relaxed);
    }

    /// The cache is switched off for now.
    pub fn is_off(&self) -> bool {
        let until_ns = self.off_until_ns.load(Relaxed);
        until_ns > 0 && self.clock.now_ns() < until_ns
    }

    /// There may be something to do for the job.
    pub fn is_due(&self) -> bool {
        self.due.load(Relaxed)
    }

    /// The job is about to look at what there is to do.
    pub fn looked(&self) {
        self.due.store(false, Relaxed);
    }

    /// There is something to do, or may be.
    pub fn look(&self) {
        if !self.due.swap(true, Relaxed) {
            self.jobs.wake();
        }
    }

    /// The time of hits.
    pub fn now(&self) -> u64 {
        self.deciding.lock().now
    }

    /// What it was asked for so far, where that is noted.
    pub fn noted(&self) -> Option<Vec<BlockRequest>> {
        self.deciding.lock().noted.requests()
    }

    /// Blocks have left the cache.
    pub fn left(&self, keys: impl Iterator<Item = BlockKey>) {
        let mut deciding = self.deciding.lock();
        keys.for_each(|key| deciding.admission.left(hash_of(key)));
    }

    /// The device took no write: nothing is read or taken for a while.
    pub fn write_failed(&self) {
        let now_ns = self.clock.now_ns();
        let mut back_off = self.back_off.lock();
        back_off.switch_off(now_ns);
        self.off_until_ns.store(back_off.until_ns(), Relaxed);
    }

    /// Notes what is written, in bytes.
    pub fn wrote(&self, bytes: u64) {
        self.counts.written_bytes.add(bytes);
        if let Some(budget) = &mut *self.budget.lock() {
            budget.spend(bytes, self.clock.now_ns());
        }
    }

    /// The budget has room for so many bytes.
    pub fn may_write(&self, bytes: u64) -> bool {
        let budget = self.budget.lock();
        budget.as_ref().is_none_or(|budget| budget.allows(bytes, self.clock.now_ns()))
    }

    /// Memory of the look-up and of admission, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.lookup.memory_bytes() + self.deciding.lock().admission.memory_bytes()
    }

    fn give_up_file(&self, at: &CachedAt, why: &Error) {
        let file = at.file.describe();
        tracing::warn!(%file, %why, "a file of the block cache is given up");
        let now_ns = self.clock.now_ns();
        let mut back_off = self.back_off.lock();
        if back_off.file_given_up(now_ns) {
            self.off_until_ns.store(back_off.until_ns(), Relaxed);
        }
        drop(back_off);
        self.look();
    }
}

impl SecondLevel for Copies {
    fn find(&self, key: BlockKey, class: BlockClass) -> Found {
        if self.plan.data_only && class != BlockClass::Data || self.is_off() {
            return Found::Refused;
        }
        let hash = hash_of(key);
        let (is_admitted, now) = {
            let mut deciding = self.deciding.lock();
            deciding.now += 1;
            deciding.noted.note(key);
            (deciding.admission.missed(hash, key.len), deciding.now)
        };
        let is_wanted = is_admitted || self.has_room.load(Relaxed);
        let at = self.lookup.find(hash);
        let files = self.files.load();
        if let Some((file, offset)) = at.and_then(|low| files.copy_at(low, key.len, now)) {
            self.counts.hits.add(1);
            return Found::Cached(CachedAt { file: Arc::clone(&file.file), offset });
        }
        self.counts.misses.add(1);
        let is_filled = self.is_filled.load(Relaxed);
        if is_wanted && is_filled {
            self.counts.admitted.add(1);
            return Found::Admitted;
        }
        if !is_filled && now.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
        self.counts.refused.add(1);
        Found::Refused
    }

    fn offer(&self, key: BlockKey, stored: &[u8]) {
        debug_assert_eq!(stored.len(), key.len as usize);
        let has = || {
            let files = self.files.load();
            self.lookup.position(hash_of(key)).is_some_and(|low| files.is_live(low))
        };
        let offered = match self.may_write(key.len.into()) && !has() {
            true => self.filling.lock().offer(key, stored),
            false => Offered::Dropped,
        };
        match offered {
            Offered::Taken => {}
            Offered::BatchFull => self.look(),
            Offered::Dropped => self.counts.dropped.add(1),
        }
    }

    fn failed(&self, key: BlockKey, at: &CachedAt, why: &Error) {
        self.counts.failed.add(1);
        if why.kind() == ErrorKind::TooManyOpenFiles {
            // It is as good as it was, once there is a descriptor for it again.
            return;
        }
        let files = self.files.load();
        let mut list = files.list().iter();
        let Some(file) = list.find(|file| file.number() == at.file.number()) else { return };
        self.lookup.take(hash_of(key), file.position(at.offset));
        if file.failed(file.last_hit()) {
            self.give_up_file(at, why);
        }
    }
}
