//! How full the fast tier is, and by which step room is made.
//!
//! Work begins at the high watermark and ends at the low one (PrismDB, section 4.2). Both are
//! counted with the records that are about to come. The steps go from the cheapest to the dearest
//! ([`EvictionStep`]); each has its turn when the one before it has found too little.

/// How long a dearer step is tried before the cheapest is again.
pub(crate) const RETRY_NS: u64 = 1_000_000_000;
/// Records that are about to come want this share of the slots' room at most.
const COMING_SHARE: u64 = 4;

/// Records are few where they come to less than this share of a table: a demotion of so few costs a
/// table's file, a sync and an edit for next to no room.
const FEW_OF_TABLE: u64 = 64;
/// And no more than this share of what a range has of the fast tier in the mean, where that is
/// small: a tenth of it may come and go (`rules/pinning.rs`).
const FEW_OF_RANGE: u64 = 16;

/// By what room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionStep {
    /// A sweep for clean copies, for as long as it finds many.
    Sweep,
    /// A demotion of cold records.
    Cold,
    /// A demotion of hot records.
    Hot,
}

impl EvictionStep {
    /// From the cheapest to the dearest.
    const ALL: [Self; 3] = [Self::Sweep, Self::Cold, Self::Hot];
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

/// The slots and what is about to come, as one look sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Bytes that files of slabs may take.
    pub limit_bytes: u64,
    /// Bytes that files of slabs take.
    pub file_bytes: u64,
    /// Bytes of free slots, and of slabs that could still be made.
    pub free_bytes: u64,
    /// Bytes of memtables, whose records are about to want slots.
    pub memtable_bytes: u64,
    /// Slots that are freed are held until a copy of the store is done.
    pub are_frees_held: bool,
    /// There are slabs without records.
    pub has_empty_slabs: bool,
}

/// What a look comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    pub need: Need,
    /// How far above the high watermark: 0 there or below, 1 where the room ends.
    pub over: f64,
}

/// Bytes of cold records that are too few for a demotion, where there are so many ranges.
pub(crate) fn few_bytes(table_bytes: u64, limit_bytes: u64, ranges: usize) -> u64 {
    let of_range = limit_bytes / ranges.max(1) as u64;
    (table_bytes / FEW_OF_TABLE).min(of_range / FEW_OF_RANGE)
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Fullness {
    high_percent: u32,
    low_percent: u32,
    /// The fast tier is less than a tenth of the data, or was and is hardly more.
    is_small_tier: bool,
    /// Bytes of records that found no slot.
    wanted_bytes: u64,
    /// Copies that memory gave up found no slot.
    wanted_for_copies: bool,
    /// Work has begun at the high watermark and has not come to the low one.
    is_draining: bool,
    /// Bytes above the low watermark, or bytes that found no slot where those are more.
    excess_bytes: u64,
    /// Nothing that is under way or could begin makes room.
    is_stuck: bool,
    /// No slab could be emptied since records last left.
    sizes_stuck: bool,
    /// The place in [`EvictionStep::ALL`] of the step that is tried now.
    step: usize,
    /// When that took the turn of another.
    turned_ns: u64,
}

impl Fullness {
    /// A fast tier that is empty; work begins and ends at these shares of its room.
    pub fn new(low_percent: u32, high_percent: u32) -> Self {
        Self {
            high_percent,
            low_percent,
            is_small_tier: false,
            wanted_bytes: 0,
            wanted_for_copies: false,
            is_draining: false,
            excess_bytes: 0,
            is_stuck: false,
            sizes_stuck: false,
            step: 0,
            turned_ns: 0,
        }
    }

    /// Tables have so many times the bytes of the fast tier. Between seven and nine times the last
    /// answer stays, for a change is a reason for merges.
    pub fn note_tables(&mut self, times: u64) {
        match times {
            9.. => self.is_small_tier = true,
            ..7 => self.is_small_tier = false,
            _ => {}
        }
    }

    /// The fast tier is less than a tenth of the data, or was and is hardly more.
    pub fn is_small_tier(&self) -> bool {
        self.is_small_tier
    }

    /// Records of so many bytes found no slot, where slots may have `limit_bytes`.
    pub fn want(&mut self, bytes: u64, limit_bytes: u64) {
        self.wanted_bytes = self.wanted_bytes.max(bytes.min(limit_bytes / COMING_SHARE));
    }

    /// Records found slots.
    pub fn found(&mut self) {
        self.wanted_bytes = 0;
    }

    /// Records that are written find no slots.
    pub fn is_wanted(&self) -> bool {
        self.wanted_bytes > 0
    }

    /// Copies that memory gave up found no slot; they wait.
    pub fn want_for_copies(&mut self) {
        self.wanted_for_copies = true;
    }

    /// A change of slot sizes begins, for copies too.
    pub fn begin_other_sizes(&mut self) {
        self.wanted_for_copies = false;
    }

    /// No slab can give its room to another size as things are: records must leave where others
    /// want their slots.
    pub fn sizes_are_stuck(&mut self) {
        self.sizes_stuck = true;
        self.is_draining |= self.is_wanted();
    }

    /// Records have left, or slabs: slabs may be emptied again.
    pub fn room_was_made(&mut self) {
        self.sizes_stuck = false;
    }

    /// The step that is tried now. A step that found little a while ago may find more, so the
    /// cheapest is tried again, unless a step is under way: it may need longer than that to find
    /// little, and the next would never have its turn.
    pub fn eviction_step(&mut self, now_ns: u64, is_under_way: bool) -> EvictionStep {
        if now_ns.saturating_sub(self.turned_ns) > RETRY_NS && !is_under_way {
            self.begin_anew();
        }
        EvictionStep::ALL[self.step]
    }

    /// This step found too little: from now on the next is tried, unless another than this is
    /// already. The last one stays, for what it does not find is not there.
    pub fn found_little(&mut self, step: EvictionStep, now_ns: u64) {
        let at = step as usize;
        if self.step == at && at + 1 < EvictionStep::ALL.len() {
            self.step = at + 1;
            self.turned_ns = now_ns;
        }
    }

    /// The cheapest step is tried next: it is another time, or records have left.
    pub fn begin_anew(&mut self) {
        self.step = 0;
    }

    /// Room is being made.
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Bytes that should leave, as of the last look.
    pub fn excess_bytes(&self) -> u64 {
        self.excess_bytes
    }

    /// No room will be made by waiting.
    pub fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// The plan found something to do for `need`, or found that something is under way, or neither.
    pub fn planned(&mut self, need: Need, is_at_it: bool) {
        self.is_stuck = need != Need::Nothing && !is_at_it;
    }

    /// Looks how full the fast tier is.
    pub fn look(&mut self, seen: Seen) -> Look {
        let limit_bytes = seen.limit_bytes;
        let share = |percent: u32| limit_bytes / 100 * u64::from(percent);
        let (high_bytes, low_bytes) = (share(self.high_percent), share(self.low_percent));
        let coming_bytes = seen.memtable_bytes.max(self.wanted_bytes);
        let coming_bytes = coming_bytes.min(limit_bytes / COMING_SHARE);
        let used_bytes = limit_bytes.saturating_sub(seen.free_bytes) + coming_bytes;
        self.excess_bytes = used_bytes.saturating_sub(low_bytes).max(self.wanted_bytes);
        if used_bytes >= high_bytes && !seen.are_frees_held {
            if !self.is_draining {
                self.is_draining = true;
                self.begin_anew();
            }
        } else if used_bytes < low_bytes {
            self.is_draining = false;
        }
        let over_bytes = used_bytes.saturating_sub(high_bytes) as f64;
        let over = over_bytes / (limit_bytes - high_bytes).max(1) as f64;
        Look { need: self.need(seen), over }
    }

    fn need(&self, seen: Seen) -> Need {
        if seen.are_frees_held {
            // What leaves now makes no room before they are let go.
            return Need::Nothing;
        }
        if self.is_wanted() && seen.has_empty_slabs {
            // Of other sizes, or they would have been found.
            return Need::OtherSizes;
        }
        if self.is_draining {
            return Need::Room;
        }
        let sizes =
            self.is_wanted() || self.wanted_for_copies || seen.file_bytes > seen.limit_bytes;
        match self.sizes_stuck {
            false if sizes => Need::OtherSizes,
            true if self.is_wanted() => Need::Room,
            _ => Need::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
