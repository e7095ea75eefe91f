//! Which versions of a record may be read now, in four bytes a record.
//!
//! Several threads may write one record at once, and which of them the store applies last is not
//! known here. So writes that overlap form a group: it begins when a write starts while none is
//! under way and ends when none is. Once a write of a group is acknowledged, the present value is
//! one of that group or later, because all earlier groups had ended before it began; until then
//! it may also be one of the group before. Within a group every order is possible.
//!
//! ```text
//!   word of a record, from its low bits:
//!   issued u13      the newest version given out, modulo 8192
//!   current u5      how far back the present group begins; 31: so far or farther
//!   previous u5     how far back the group before begins; 31: so far or farther
//!   under way u6    writes of the present group that are not acknowledged
//!   acknowledged    one write of the present group is
//!   gone now, gone before     a delete is in the present group, in the one before
//! ```
//!
//! Invariants:
//! 1. A version that cannot be the present one is refused, unless more than 31 writes of its record
//!    overlapped without a break; then the last 4,096 are accepted.
//! 2. Version 0 is no value: the record is not there yet.
//!
//! 3. At most `UNDER_WAY_MAX` writes of one record are under way; another one waits.
//!
//! Threads: any number up to [`THREADS_MAX`], without locks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Threads that may write at once.
pub const THREADS_MAX: u32 = 256;
/// Writes of one record that may be under way.
const UNDER_WAY_MAX: u32 = 63;
const VERSION_MASK: u32 = (1 << 13) - 1;
const BACK_MAX: u32 = 31;
/// Versions accepted where the group's beginning is not known.
const BACK_UNKNOWN: u32 = 4096;

/// The fields of a record's word.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    issued: u32,
    current: u32,
    previous: u32,
    under_way: u32,
    acknowledged: bool,
    gone_now: bool,
    gone_before: bool,
}

impl State {
    fn unpack(word: u32) -> Self {
        Self {
            issued: word & VERSION_MASK,
            current: word >> 13 & 31,
            previous: word >> 18 & 31,
            under_way: word >> 23 & 63,
            acknowledged: word >> 29 & 1 == 1,
            gone_now: word >> 30 & 1 == 1,
            gone_before: word >> 31 == 1,
        }
    }

    fn pack(self) -> u32 {
        self.issued
            | self.current << 13
            | self.previous << 18
            | self.under_way << 23
            | u32::from(self.acknowledged) << 29
            | u32::from(self.gone_now) << 30
            | u32::from(self.gone_before) << 31
    }

    fn begun(mut self, delete: bool) -> Self {
        let farther = |back: u32| (back + 1).min(BACK_MAX);
        // Version 0 means none, so the count goes around it.
        self.issued = match (self.issued + 1) & VERSION_MASK {
            0 => 1,
            version => version,
        };
        if self.under_way == 0 {
            self.previous = farther(self.current);
            self.gone_before = self.gone_now;
            self.current = 0;
            self.gone_now = delete;
            self.acknowledged = false;
        } else {
            self.previous = farther(self.previous);
            self.current = farther(self.current);
            self.gone_now |= delete;
        }
        self.under_way += 1;
        self
    }

    fn ended(mut self) -> Self {
        self.under_way -= 1;
        self.acknowledged = true;
        self
    }
}

/// What may be read by a look-up that began at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    word: u32,
    issued: u32,
    /// How far back the oldest version that may be read lies; none: not known.
    back: Option<u32>,
    absent: bool,
}

impl Window {
    /// The same for a look-up whose moment is not known: any version up to the newest.
    pub fn of_any_age(self) -> Self {
        Self { back: None, ..self }
    }
}

/// The versions of all loaded records.
#[derive(Debug)]
pub struct Versions {
    /// Empty where nothing is updated: then all have `initial` for ever.
    words: Vec<AtomicU32>,
    initial: u32,
}

impl Versions {
    /// All `records` with version 1 where `loaded`, else absent. Where `change` is false nothing
    /// will be written and no memory is taken.
    pub fn new(records: u64, loaded: bool, change: bool) -> Self {
        let initial = u32::from(loaded);
        let word = State { issued: initial, acknowledged: true, ..State::default() }.pack();
        let words = if change { records } else { 0 };
        Self { words: (0..words).map(|_| AtomicU32::new(word)).collect(), initial }
    }

    /// A write of `number` begins; returns the version that it writes.
    pub fn begin(&self, number: u64, delete: bool) -> u16 {
        loop {
            if let Some(version) = self.try_begin(number, delete) {
                return version;
            }
            std::thread::yield_now();
        }
    }

    /// The same, but none where too many writes of `number` are under way.
    pub fn try_begin(&self, number: u64, delete: bool) -> Option<u16> {
        let change = |word| {
            let state = State::unpack(word);
            (state.under_way < UNDER_WAY_MAX).then(|| state.begun(delete).pack())
        };
        let word = &self.words[number as usize];
        let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).ok()?;
        Some(State::unpack(before).begun(delete).issued as u16)
    }

    /// A write of `number` was acknowledged.
    pub fn end(&self, number: u64) {
        let change = |word| Some(State::unpack(word).ended().pack());
        let word = &self.words[number as usize];
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    fn word(&self, number: u64) -> u32 {
        let still = State { issued: self.initial, acknowledged: true, ..State::default() };
        self.words
            .get(number as usize)
            .map_or_else(|| still.pack(), |word| word.load(Ordering::Acquire))
    }

    /// What a look-up of `number` that begins now may find.
    pub fn window(&self, number: u64) -> Window {
        let word = self.word(number);
        let state = State::unpack(word);
        let back = if state.acknowledged { state.current } else { state.previous };
        Window {
            word,
            issued: state.issued,
            back: (back < BACK_MAX).then_some(back),
            absent: if state.acknowledged {
                state.gone_now || state.issued == 0
            } else {
                state.gone_now || state.gone_before || state.issued <= back
            },
        }
    }

    /// Whether a look-up of `number` may have found nothing. `before` is the window of its begin.
    pub fn may_be_absent(&self, number: u64, before: Window) -> bool {
        // A delete may have come and been replaced since.
        let now = self.word(number);
        before.absent
            || (now != before.word && State::unpack(now).gone_now)
            || (now != before.word && State::unpack(now).gone_before)
    }

    /// Whether a look-up of `number` may have found `version`.
    pub fn may_be(&self, number: u64, before: Window, version: u16) -> bool {
        let newest = State::unpack(self.word(number)).issued;
        let since = around(before.issued, newest);
        let Some(back) = before.back else {
            return around(u32::from(version), newest) <= BACK_UNKNOWN;
        };
        version != 0 && around(u32::from(version), newest) <= since + back
    }

    /// Text of what would have been right, for an error.
    pub fn expected(&self, number: u64, before: Window) -> String {
        let newest = State::unpack(self.word(number)).issued;
        let back = before.back.unwrap_or(BACK_UNKNOWN);
        format!("{} to {newest}", before.issued.saturating_sub(back))
    }
}

/// Versions from `old` to `new`, around the end of their range, which leaves 0 out.
fn around(old: u32, new: u32) -> u32 {
    if new >= old { new - old } else { new + VERSION_MASK - old }
}

/// How many records each thread has inserted. Their numbers are `records + index * threads +
/// thread`, so no two threads insert the same number.
#[derive(Debug)]
pub struct Inserted {
    records: u64,
    /// A line of the processor's cache for each.
    counts: Vec<Count>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

impl Inserted {
    /// Nothing inserted by any of `threads` into `records`.
    pub fn new(records: u64, threads: u32) -> Self {
        Self { records, counts: (0..threads).map(|_| Count::default()).collect() }
    }

    /// The number of the next record of `thread`.
    pub fn next(&self, thread: u32) -> u64 {
        let index = self.counts[thread as usize].0.load(Ordering::Relaxed);
        self.number(thread.into(), index)
    }

    fn number(&self, thread: u64, index: u64) -> u64 {
        self.records + index * self.counts.len() as u64 + thread
    }

    /// The newest insert of `thread` was acknowledged.
    pub fn acknowledged(&self, thread: u32) {
        self.counts[thread as usize].0.fetch_add(1, Ordering::Release);
    }

    /// Whether `number` was acknowledged.
    pub fn holds(&self, number: u64) -> bool {
        let threads = self.counts.len() as u64;
        let Some(at) = number.checked_sub(self.records).filter(|_| threads > 0) else {
            return true;
        };
        let count = self.counts[(at % threads) as usize].0.load(Ordering::Acquire);
        at / threads < count
    }

    /// All acknowledged inserts.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
    }

    /// The record that is `age` inserts old, counting the loaded ones in the order of their
    /// numbers as the oldest; 0 is the newest.
    pub fn by_age(&self, age: u64) -> u64 {
        let threads = self.counts.len() as u64;
        let (back, thread) = (age / threads, age % threads);
        let count = self.counts[thread as usize].0.load(Ordering::Acquire);
        if back < count {
            return self.number(thread, count - 1 - back);
        }
        // Threads insert about evenly, so what is older than this thread's inserts was loaded.
        let beyond = (back - count) * threads + thread;
        self.records - 1 - beyond.min(self.records - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_leaves_one_version_and_a_write_under_way_two() {
        let versions = Versions::new(4, true, true);
        let before = versions.window(2);
        assert!(versions.may_be(2, before, 1) && !versions.may_be_absent(2, before));
        assert!(!versions.may_be(2, before, 0) && !versions.may_be(2, before, 2));
        assert_eq!(versions.begin(2, false), 2);
        let during = versions.window(2);
        assert!(versions.may_be(2, before, 1) && versions.may_be(2, before, 2));
        versions.end(2);
        let after = versions.window(2);
        assert!(!versions.may_be(2, after, 1), "version 1 was replaced before the look-up began");
        assert!(versions.may_be(2, after, 2) && !versions.may_be(2, after, 3));
        assert!(versions.may_be(2, during, 1), "it began before the write was acknowledged");
        assert!(versions.may_be(0, versions.window(0), 1));
    }

    #[test]
    fn of_writes_that_overlap_any_may_be_the_last() {
        let versions = Versions::new(1, true, true);
        let (second, third) = (versions.begin(0, false), versions.begin(0, false));
        versions.end(0);
        let window = versions.window(0);
        assert!(!versions.may_be(0, window, 1));
        assert!(versions.may_be(0, window, second) && versions.may_be(0, window, third));
        versions.end(0);
        assert!(versions.may_be(0, versions.window(0), second));
        let fourth = versions.begin(0, false);
        assert!(versions.may_be(0, versions.window(0), second), "the fourth is under way");
        versions.end(0);
        let window = versions.window(0);
        assert!(!versions.may_be(0, window, third) && versions.may_be(0, window, fourth));
    }

    #[test]
    fn one_write_more_than_are_told_apart_waits_for_another() {
        let versions = Versions::new(2, true, true);
        for _ in 0..UNDER_WAY_MAX {
            versions.try_begin(0, false).unwrap();
        }
        assert_eq!(versions.try_begin(0, false), None);
        assert!(versions.try_begin(1, false).is_some(), "another record has its own count");
        versions.end(0);
        assert!(versions.try_begin(0, false).is_some());
    }

    #[test]
    fn a_deleted_record_is_absent_until_it_is_written_again() {
        let versions = Versions::new(1, true, true);
        versions.begin(0, true);
        assert!(versions.may_be_absent(0, versions.window(0)));
        versions.end(0);
        let window = versions.window(0);
        assert!(versions.may_be_absent(0, window) && !versions.may_be(0, window, 1));
        let version = versions.begin(0, false);
        versions.end(0);
        assert!(versions.may_be_absent(0, window), "it began when the record was gone");
        let window = versions.window(0);
        assert!(!versions.may_be_absent(0, window) && versions.may_be(0, window, version));
        let empty = Versions::new(1, false, true);
        assert!(empty.may_be_absent(0, empty.window(0)));
        empty.begin(0, false);
        assert!(empty.may_be_absent(0, empty.window(0)));
        empty.end(0);
        assert!(!empty.may_be_absent(0, empty.window(0)));
    }

    #[test]
    fn versions_go_around_without_losing_the_present_one() {
        let versions = Versions::new(1, true, true);
        for _ in 0..20_000 {
            let before = versions.window(0);
            let version = versions.begin(0, false);
            versions.end(0);
            assert!(version > 0 && versions.may_be(0, before, version));
            let after = versions.window(0);
            assert!(versions.may_be(0, after, version));
            assert!(!versions.may_be(0, after, if version == 1 { 8191 } else { version - 1 }));
        }
    }

    #[test]
    fn inserts_of_threads_are_disjoint_and_found_by_age() {
        let inserted = Inserted::new(100, 3);
        assert_eq!((inserted.next(0), inserted.next(2), inserted.by_age(0)), (100, 102, 99));
        for thread in [0, 1, 2, 0, 1, 2] {
            inserted.acknowledged(thread);
        }
        assert_eq!((inserted.next(1), inserted.total()), (107, 6));
        let by_age: Vec<_> = (0..8).map(|age| inserted.by_age(age)).collect();
        assert_eq!(by_age, [103, 104, 105, 100, 101, 102, 99, 98]);
        assert!(inserted.holds(105) && !inserted.holds(106) && inserted.holds(3));
    }
}
