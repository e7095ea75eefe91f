//! Room on the fast tier: the slots may take what the tier has beside logs and metadata.
//!
//! The rule (`rules/fullness.rs`) says when room is made and by which step; here it is told what
//! slots have. Memtables count as records that are about to come, so that a flush finds its slots
//! free. What leaves, the cheapest first:
//! 1. Clean copies that are in memory too, or that were not asked for: an edit and no write
//!    (`sweep.rs`).
//! 2. Ranges of cold records, merged into tables (`demotion/`).
//! 3. Hot records, no more than must.
//!
//! Where free slots have the wrong size, slabs without records go, and the emptiest slab of another
//! size is emptied by moving its records, so that its room can be divided anew.
//!
//! Writers are slowed down between the watermarks and the end of the room, so that they come to
//! about the rate at which records leave.

use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::rules::fullness::{EvictionStep, Fullness, Look, Need, Seen};
use crate::layout::hybrid::rules::rule_set::RuleSet;
use crate::shared::Shared;
use crate::shared::tier0::Account;
use std::sync::Arc;
use thermocline_device::{FileInfo, FileKind, TierIndex};
use thermocline_foundation::Counter;
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What may be taken and what is taken.
#[derive(Debug)]
pub(crate) struct Room {
    shared: Arc<Shared>,
    /// A leaf: no other lock is taken under it.
    fullness: Mutex<Fullness>,
    /// A sweep for clean copies or a change of sizes is under way.
    pub(crate) sweeping: AtomicBool,
    /// A plan that looks at all ranges holds this lock until it has claimed one.
    pub counting: Mutex<()>,
    /// Where the next sweep goes on.
    pub(crate) hand: Mutex<Vec<u8>>,
    pub random: Mutex<Random>,
    /// Clean copies that were dropped.
    pub dropped: Counter,
    /// Clean copies that are in memory only since.
    pub memory_only: Counter,
    /// Records that were moved so that a slab can go.
    pub moved: Counter,
}

impl Room {
    /// The room of the slots, all of which is free.
    pub fn new(shared: &Arc<Shared>, rules: &RuleSet) -> Self {
        let fullness = Fullness::new(rules.low_watermark_percent, rules.high_watermark_percent);
        Self {
            shared: Arc::clone(shared),
            fullness: Mutex::new(fullness),
            sweeping: AtomicBool::new(false),
            counting: Mutex::default(),
            hand: Mutex::default(),
            random: Mutex::new(Random::new(shared.tier0.divided_bytes())),
            dropped: Counter::default(),
            memory_only: Counter::default(),
            moved: Counter::default(),
        }
    }

    /// Bytes that files of slabs may take.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.tier0.grant(Account::Slots)
    }

    /// Tables have so many bytes now.
    pub fn note_tables(&self, table_bytes: u64) {
        // The fast tier has its part beside these.
        let times = table_bytes / self.shared.tier0.divided_bytes().max(1);
        self.fullness.lock().note_tables(times);
    }

    /// The fast tier is less than a tenth of the data, or was and is hardly more.
    pub fn is_small_tier(&self) -> bool {
        self.fullness.lock().is_small_tier()
    }

    /// Records of so many bytes found no slot.
    pub fn want(&self, bytes: u64) {
        let limit_bytes = self.limit_bytes();
        self.fullness.lock().want(bytes, limit_bytes);
    }

    /// Records found slots.
    pub fn found(&self) {
        self.fullness.lock().found();
    }

    /// A change of slot sizes begins, for copies too.
    pub fn begin_other_sizes(&self) {
        self.fullness.lock().begin_other_sizes();
    }

    /// No slab can give its room to another size as things are: records must leave where others
    /// want their slots.
    pub fn sizes_are_stuck(&self) {
        self.fullness.lock().sizes_are_stuck();
    }

    /// Copies that memory gave up found no slot; they wait.
    pub fn want_for_copies(&self) {
        self.fullness.lock().want_for_copies();
    }

    /// The step that is tried now.
    pub fn eviction_step(&self, now_ns: u64) -> EvictionStep {
        let is_under_way = self.is_at_work() || self.counting.try_lock().is_none();
        self.fullness.lock().eviction_step(now_ns, is_under_way)
    }

    /// This step found too little: from now on the next is tried.
    pub fn found_little(&self, step: EvictionStep, now_ns: u64) {
        self.fullness.lock().found_little(step, now_ns);
    }

    /// The cheapest step is tried next: it is another time, or records have left.
    pub fn begin_anew(&self) {
        self.fullness.lock().begin_anew();
    }

    /// Room is being made.
    pub fn is_draining(&self) -> bool {
        self.fullness.lock().is_draining()
    }

    /// Records that are written find no slots.
    pub fn is_wanted(&self) -> bool {
        self.fullness.lock().is_wanted()
    }

    /// Bytes that should leave, as of the last look.
    pub fn excess_bytes(&self) -> u64 {
        self.fullness.lock().excess_bytes()
    }

    /// No room will be made by waiting.
    pub fn is_stuck(&self) -> bool {
        self.fullness.lock().is_stuck()
    }

    /// The plan found something to do for `need`, or found that something is under way, or neither.
    pub fn planned(&self, need: Need, is_at_it: bool) {
        self.fullness.lock().planned(need, is_at_it);
    }

    /// A sweep or a change of sizes is under way.
    pub fn is_at_work(&self) -> bool {
        self.sweeping.load(Relaxed)
    }
}

impl Hybrid {
    /// Bytes of memtables, whose records are about to want slots.
    fn memtable_bytes(&self) -> u64 {
        let state = self.versions.current();
        let frozen: u64 = state.frozen.iter().map(|frozen| frozen.memtable.bytes()).sum();
        frozen + state.active.bytes()
    }

    /// Looks how full the fast tier is and tells writers.
    pub fn look_at_room(&self) -> Need {
        self.fast.bound_slots();
        let stats = self.fast.slabs.stats();
        // One limit for the whole look: it may change meanwhile.
        let limit_bytes = self.fast.room.limit_bytes();
        let seen = Seen {
            limit_bytes,
            file_bytes: stats.file_bytes,
            // Not what is live: a rest of room that is no whole slab is of no use.
            free_bytes: stats.bytes_free() + self.fast.slabs.bytes_to_come(limit_bytes),
            memtable_bytes: self.memtable_bytes(),
            are_frees_held: stats.are_frees_held,
            has_empty_slabs: stats.has_empty_slabs(),
        };
        let Look { need, over } = self.fast.room.fullness.lock().look(seen);
        self.shared.write_throttle.set_fullness(over);
        need
    }
}

impl FastTier {
    /// Records have left, or slabs: what found no room may look again.
    pub fn room_was_made(&self) {
        self.room.fullness.lock().room_was_made();
        self.spill.unblock();
        self.copying.look_again();
    }

    /// Has the slots keep to what they have of the fast device while it refuses more.
    fn bound_slots(&self) {
        let files = &self.shared.files;
        let is_slab = |file: &FileInfo| file.kind == FileKind::Slab && file.tier == TierIndex(0);
        let taken_bytes =
            || files.files().iter().filter(|file| is_slab(file)).map(|file| file.bytes).sum();
        let bytes = files.tiers()[0].is_refused().then(taken_bytes);
        self.shared.tier0.bound_slots(bytes, |bytes| self.slabs.set_limit_bytes(bytes));
    }

    /// Runs `body` while the slots may take more than their share of the tier.
    pub fn overdraw<T>(&self, body: impl FnOnce() -> T) -> T {
        let _overdraft = self.shared.tier0.overdraw(|bytes| self.slabs.set_limit_bytes(bytes));
        body()
    }
}

#[cfg(test)]
mod tests;
