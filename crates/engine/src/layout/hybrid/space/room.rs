//! Room on the fast tier: when it runs out, and what leaves first.
//!
//! The slots may take what the tier has beside logs and metadata. Work begins at the high watermark
//! and ends at the low one (PrismDB, section 4.2); both are counted with the records that are about
//! to come, the memtables, so that a flush finds its slots free. Of these only what is new counts:
//! a piece of a flush takes slots before it frees those that it replaces, and the next piece finds
//! these. What leaves, the cheapest first ([`Means`]):
//! 1. Clean copies that are in memory too, or that nobody asks for: an edit and no write
//!    (`sweep.rs`).
//! 2. Ranges of cold records, merged into tables (`compaction/demotion.rs`), where enough leave to
//!    be worth it.
//! 3. Clean copies again, now from so many keys that a few are found, too.
//! 4. The best range of all, not of some that are drawn; and then hot records, no more than must,
//!    and none for the sake of mere copies.
//!
//! Where free slots have the wrong size, slabs without records go, and the emptiest slab of another
//! size is emptied by moving its records, so that its room can be divided anew.
//!
//! Writers are slowed down between the watermarks and the end of the room, so that they come to
//! about the rate at which records leave.

use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::records::pieces::Turnover;
use crate::layout::hybrid::records::pieces::piece_bytes;
use crate::shared::Shared;
use crate::shared::tier0::Account;
use std::sync::Arc;
use thermocline_foundation::Counter;
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How long a dearer means to make room is tried before the cheapest is again.
const RETRY_NS: u64 = 1_000_000_000;
/// Flushes over which their growth is a mean, about.
const GROWTH_FLUSHES: f64 = 4.0;

/// By what room is made: each is tried when the one before it has found too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// A sweep for clean copies, for as long as it finds many.
    Sweep,
    /// A demotion of cold records, of the best of the ranges that are drawn.
    ColdOfDrawn,
    /// A sweep that is content with few.
    ThoroughSweep,
    /// A demotion of cold records, of the best range of all.
    ColdOfAll,
    /// A demotion of hot records.
    Hot,
}

impl Means {
    const ALL: [Self; 5] =
        [Self::Sweep, Self::ColdOfDrawn, Self::ThoroughSweep, Self::ColdOfAll, Self::Hot];
}

/// What may be taken and what is taken.
#[derive(Debug)]
pub(crate) struct Room {
    /// All of that is less than a tenth of the data.
    is_small_tier: AtomicBool,
    shared: Arc<Shared>,
    high_percent: u32,
    low_percent: u32,
    /// Bytes of records that found no slot.
    wanted_bytes: AtomicU64,
    /// What flushes take of slots more than they free, in parts of what their memtables hold: a
    /// mean over the last ones.
    growth: Mutex<f64>,
    /// Copies that memory gave up found no slot.
    wanted_for_copies: AtomicBool,
    /// Work has begun at the high watermark and has not come to the low one.
    is_draining: AtomicBool,
    /// A sweep for clean copies or a change of sizes is under way.
    pub(crate) sweeping: AtomicBool,
    /// Nothing that is under way or could begin makes room.
    stuck: AtomicBool,
    /// The place in [`Means::ALL`] of what is tried now.
    means: AtomicUsize,
    /// When that took the turn of another.
    turned_ns: AtomicU64,
    /// Held by who looks at all ranges, until one is claimed.
    pub counting: Mutex<()>,
    /// It is drained for the sake of copies alone.
    drains_for_copies: AtomicBool,
    /// Bytes above the low watermark, or bytes that found no slot where those are more.
    excess_bytes: AtomicU64,
    /// No slab could be emptied since records last left.
    sizes_stuck: AtomicBool,
    /// Where the next sweep goes on.
    pub(crate) hand: Mutex<Vec<u8>>,
    pub random: Mutex<Random>,
    /// Clean copies that were dropped.
    pub dropped: Counter,
    /// Clean copies that are in memory only since.
    pub lifted: Counter,
    /// Records that were moved so that a slab can go.
    pub moved: Counter,
}

impl Room {
    /// The room of the slots, all of which is free.
    pub fn new(shared: &Arc<Shared>) -> Self {
        let settings = &shared.settings;
        Self {
            shared: Arc::clone(shared),
            is_small_tier: AtomicBool::new(false),
            high_percent: settings.hybrid.high_watermark_percent,
            low_percent: settings.hybrid.low_watermark_percent,
            wanted_bytes: AtomicU64::new(0),
            growth: Mutex::new(1.0),
            wanted_for_copies: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            sweeping: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            means: AtomicUsize::new(0),
            turned_ns: AtomicU64::new(0),
            counting: Mutex::default(),
            drains_for_copies: AtomicBool::new(false),
            excess_bytes: AtomicU64::new(0),
            sizes_stuck: AtomicBool::new(false),
            hand: Mutex::default(),
            random: Mutex::new(Random::new(shared.tier0.divided_bytes())),
            dropped: Counter::default(),
            lifted: Counter::default(),
            moved: Counter::default(),
        }
    }

    /// Bytes that files of slabs may take.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.tier0.grant(Account::Slots)
    }

    /// Tables have so many bytes now.
    pub fn note_tables(&self, table_bytes: u64) {
        // The fast tier has its part beside these. In between it stays what it is, for a change is
        // a reason for merges.
        match table_bytes / self.shared.tier0.divided_bytes().max(1) {
            9.. => self.is_small_tier.store(true, Relaxed),
            ..7 => self.is_small_tier.store(false, Relaxed),
            _ => {}
        }
    }

    /// The fast tier is less than a tenth of the data, or was and is hardly more.
    pub fn is_small_tier(&self) -> bool {
        self.is_small_tier.load(Relaxed)
    }

    /// A memtable of so many bytes was flushed.
    pub fn note_turnover(&self, turnover: Turnover, memtable_bytes: u64) {
        let grown_bytes = turnover.added_bytes.saturating_sub(turnover.removed_bytes);
        let growth = (grown_bytes as f64 / memtable_bytes.max(1) as f64).min(1.0);
        let mut mean = self.growth.lock();
        *mean += (growth - *mean) / GROWTH_FLUSHES;
    }

    /// Bytes of free slots that memtables of so many bytes are going to need: for what is new of
    /// them, and for the rest of one piece.
    fn coming_bytes(&self, memtable_bytes: u64) -> u64 {
        let piece_bytes = memtable_bytes.min(piece_bytes(self.limit_bytes()));
        let beyond_bytes = (memtable_bytes - piece_bytes) as f64;
        piece_bytes + (beyond_bytes * *self.growth.lock()) as u64
    }

    /// Records of so many bytes found no slot.
    pub fn want(&self, bytes: u64) {
        self.wanted_bytes.fetch_max(bytes.min(self.limit_bytes() / 4), Relaxed);
    }

    /// Records found slots.
    pub fn found(&self) {
        self.wanted_bytes.store(0, Relaxed);
    }

    /// A change of slot sizes begins, for copies too.
    pub fn begin_other_sizes(&self) {
        self.wanted_for_copies.store(false, Relaxed);
    }

    /// No slab can give its room to another size as things are: records must leave where others
    /// want their slots.
    pub fn sizes_are_stuck(&self) {
        self.sizes_stuck.store(true, Relaxed);
        if self.is_wanted() {
            self.is_draining.store(true, Relaxed);
        }
    }

    /// Copies that memory gave up found no slot; they wait.
    pub fn want_for_copies(&self) {
        self.wanted_for_copies.store(true, Relaxed);
        if !self.is_draining.swap(true, Relaxed) {
            self.drains_for_copies.store(true, Relaxed);
            self.begin_anew();
        }
    }

    /// It is drained for the sake of copies alone, for which no hot record leaves.
    pub fn gives_up_for_copies(&self) -> bool {
        let gives_up = self.drains_for_copies.swap(false, Relaxed);
        if gives_up {
            self.is_draining.store(false, Relaxed);
            self.begin_anew();
        }
        gives_up
    }

    /// What is tried now. What found little a while ago may find more, but not while somebody is
    /// still at what is tried now: he may need longer than that to find little, and the next would
    /// never have its turn.
    pub fn means(&self, now_ns: u64) -> Means {
        let is_long = now_ns.saturating_sub(self.turned_ns.load(Relaxed)) > RETRY_NS;
        if is_long && !self.is_at_work() && self.counting.try_lock().is_some() {
            self.begin_anew();
        }
        Means::ALL[self.means.load(Relaxed)]
    }

    /// This found too little: from now on the next is tried, unless another than this is already.
    /// The last one stays, for what it does not find is not there.
    pub fn found_little(&self, means: Means, now_ns: u64) {
        let at = means as usize;
        let is_last = at + 1 == Means::ALL.len();
        if !is_last && self.means.compare_exchange(at, at + 1, Relaxed, Relaxed).is_ok() {
            self.turned_ns.store(now_ns, Relaxed);
        }
    }

    /// The cheapest means is tried next: it is another time, or records have left.
    pub fn begin_anew(&self) {
        self.means.store(0, Relaxed);
    }

    /// It is being drained.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// Records that are written find no slots.
    pub fn is_wanted(&self) -> bool {
        self.wanted_bytes.load(Relaxed) > 0
    }

    /// Bytes that should leave, as of the last look.
    pub fn excess_bytes(&self) -> u64 {
        self.excess_bytes.load(Relaxed)
    }

    /// No room will be made by waiting.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Relaxed)
    }

    /// The plan found something to do for `need`, or found that something is under way, or neither.
    pub fn planned(&self, need: Need, is_at_it: bool) {
        self.stuck.store(need != Need::Nothing && !is_at_it, Relaxed);
    }

    /// A sweep or a change of sizes is under way.
    pub fn is_at_work(&self) -> bool {
        self.sweeping.load(Relaxed)
    }
}

/// What should be done for more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// Slabs are there whose slots have the wrong size.
    OtherSizes,
    /// Records must leave.
    Room,
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
        let room = &self.fast.room;
        let stats = self.fast.slabs.stats();
        let limit_bytes = room.limit_bytes();
        // Of the same limit, which may change meanwhile.
        let share = |percent: u32| limit_bytes / 100 * u64::from(percent);
        let (high_bytes, low_bytes) = (share(room.high_percent), share(room.low_percent));
        // Not what is live: a rest of room that is no whole slab is of no use.
        let free_bytes = stats.bytes_free() + self.fast.slabs.bytes_to_come(limit_bytes);
        let wanted_bytes = room.wanted_bytes.load(Relaxed);
        let memtable_bytes = self.memtable_bytes();
        let coming_bytes = match stats.has_held() {
            // What a piece replaces leaves no slots to the next one, and writers are told in time.
            true => memtable_bytes,
            false => room.coming_bytes(memtable_bytes),
        };
        let coming_bytes = coming_bytes.max(wanted_bytes).min(limit_bytes / 4);
        let used_bytes = limit_bytes.saturating_sub(free_bytes) + coming_bytes;
        let above_low_bytes = used_bytes.saturating_sub(low_bytes);
        room.excess_bytes.store(above_low_bytes.max(wanted_bytes), Relaxed);
        if used_bytes >= high_bytes && !stats.are_frees_held {
            if !room.is_draining.swap(true, Relaxed) {
                room.begin_anew();
            }
            room.drains_for_copies.store(false, Relaxed);
        } else if used_bytes < low_bytes {
            room.is_draining.store(false, Relaxed);
        }
        if wanted_bytes > 0 {
            room.drains_for_copies.store(false, Relaxed);
        }
        let over = used_bytes.saturating_sub(high_bytes) as f64;
        self.shared.write_throttle.set_fullness(over / (limit_bytes - high_bytes).max(1) as f64);
        if stats.are_frees_held {
            // What leaves now makes no room before they are let go.
            return Need::Nothing;
        }
        if wanted_bytes > 0 && stats.has_empty_slabs() {
            // Of other sizes, or they would have been found.
            return Need::OtherSizes;
        }
        if room.is_draining.load(Relaxed) {
            return Need::Room;
        }
        let sizes = wanted_bytes > 0
            || room.wanted_for_copies.load(Relaxed)
            || stats.file_bytes > limit_bytes;
        match room.sizes_stuck.load(Relaxed) {
            false if sizes => Need::OtherSizes,
            true if wanted_bytes > 0 => Need::Room,
            _ => Need::Nothing,
        }
    }
}

impl FastTier {
    /// Records have left, or slabs: what found no room may look again.
    pub fn room_was_made(&self) {
        self.room.sizes_stuck.store(false, Relaxed);
        self.spill.unblock();
        self.copying.look_again();
    }

    /// Runs `body` while the slots may take more than their share of the tier.
    pub fn overdraw<T>(&self, body: impl FnOnce() -> T) -> T {
        let _overdraft = self.shared.tier0.overdraw(|bytes| self.slabs.set_limit_bytes(bytes));
        body()
    }
}

#[cfg(test)]
mod tests;
