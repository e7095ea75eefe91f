//! Estimated statistics of key ranges, for the approximate policy (§5.3, §6).
//!
//! Scoring a range object by object takes the processor's time for every object. The paper divides
//! the key space into buckets of 64 K keys, each with four fields (keys on the fast tier, and
//! bitmaps of what is popular, on the fast tier, on the slow tier), and scores a range by the sum
//! over the buckets it overlaps, each weighted by the overlapped share.
//!
//! A bitmap wants keys that count from zero. Ours are byte strings, and bits by hash go wrong as
//! soon as keys are removed: two keys of one bit vanish together. So a bucket knows the four
//! fields for a **sample** instead: every key whose hash has five certain bits zero (one of 32) is
//! known exactly, with its bytes on either tier and its value. A key outside the sample costs one
//! test of its hash and no lock, on every path.
//!
//! ```text
//!   ──[ bucket ................ )[ bucket ................ )[ bucket ......      boundaries: keys
//!        x    x  x     x   x        x  x    x     x            x  x              sampled keys
//!              [ candidate range ............... )
//!        by key from the sample        by the bucket's totals if all of it is inside
//! ```
//!
//! The sample is in memory only. After an opening its owner tells what is on the fast tier. Merges
//! tell what is on the slow tier, and reads tell which of that a promotion could want.
//!
//! Invariants:
//! 1. The first bucket begins at the empty key; buckets are disjoint, ascending, and cover all
//!    keys.
//! 2. A bucket's totals are those of its sample, by value.
//! 3. With `sample_shift` 0 every key is in the sample and an estimate is exact, but for values
//!    that changed since they were last touched or refreshed.
//! 4. Otherwise the relative standard error of a count of `n` keys is `sqrt((2^shift - 1) / n)`:
//!    3.5 percent for the 25 K fast records of a range. A score goes with the square of that count,
//!    so its error is about twice that: fit to rank ranges, not to predict bytes.
//! 5. Memory: about 100 bytes and the key for each sampled key, hence 3 to 4 bytes a key.

use crate::pinning::Pinning;
use crate::score::{RangeStatistics, coldness};
use crate::{ClockTracker, VALUES};
use std::collections::BTreeMap;
use std::ops::Bound;
use thermocline_foundation::sync::Mutex;

/// Size and precision of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// Keys of a bucket; it is divided at twice as many. The paper has as many as a table.
    pub bucket_keys: usize,
    /// One of `2^sample_shift` keys is sampled; at most 16.
    pub sample_shift: u32,
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self { bucket_keys: 64 << 10, sample_shift: 5 }
    }
}

/// What is known of a sampled key. Zero bytes: not on that tier.
#[derive(Clone, Copy, Debug)]
struct Sampled {
    key_hash: u64,
    fast_bytes: u32,
    slow_bytes: u32,
    value: Option<u8>,
}

/// Sums over the keys of one value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Total {
    fast_objects: i64,
    fast_bytes: i64,
    slow_objects: i64,
    slow_bytes: i64,
    overlap_bytes: i64,
}

/// Sums by value; the last is for keys that are not tracked.
type Totals = [Total; VALUES + 1];

#[derive(Debug, Default)]
struct Bucket {
    start: Box<[u8]>,
    sample: BTreeMap<Box<[u8]>, Sampled>,
    totals: Totals,
}

/// See the header.
#[derive(Debug)]
pub struct Buckets {
    settings: BucketSettings,
    buckets: Mutex<Vec<Bucket>>,
}

impl Total {
    fn add(&mut self, key: &Sampled, sign: i64) {
        let (fast, slow) = (i64::from(key.fast_bytes), i64::from(key.slow_bytes));
        self.fast_objects += sign * i64::from(fast > 0);
        self.fast_bytes += sign * fast;
        self.slow_objects += sign * i64::from(slow > 0);
        self.slow_bytes += sign * slow;
        if fast > 0 {
            self.overlap_bytes += sign * slow;
        }
    }
}

fn class(value: Option<u8>) -> usize {
    value.map_or(VALUES, |value| usize::from(value).min(VALUES - 1))
}

fn statistics(totals: &Totals, factor: f64, pinning: &Pinning) -> RangeStatistics {
    let mut range = RangeStatistics::default();
    for (index, total) in totals.iter().enumerate() {
        let value = (index < VALUES).then_some(index as u8);
        let pinned = pinning.probability(value);
        range.add(&RangeStatistics {
            fast_objects: total.fast_objects as f64 * factor,
            fast_bytes: total.fast_bytes as f64 * factor,
            slow_objects: total.slow_objects as f64 * factor,
            slow_bytes: total.slow_bytes as f64 * factor,
            overlap_bytes: total.overlap_bytes as f64 * factor * (1.0 - pinned),
            coldness: total.fast_objects as f64 * factor * coldness(value),
            pinned_bytes: total.fast_bytes as f64 * factor * pinned,
        });
    }
    range
}

impl Bucket {
    /// Changes what is known of a key; a key on neither tier is forgotten.
    fn change(&mut self, key: &[u8], key_hash: u64, change: impl FnOnce(&mut Sampled)) {
        let known = self.sample.get(key).copied();
        let mut new =
            known.unwrap_or(Sampled { key_hash, fast_bytes: 0, slow_bytes: 0, value: None });
        change(&mut new);
        if let Some(old) = known {
            self.totals[class(old.value)].add(&old, -1);
        }
        if new.fast_bytes == 0 && new.slow_bytes == 0 {
            self.sample.remove(key);
            return;
        }
        self.totals[class(new.value)].add(&new, 1);
        match self.sample.get_mut(key) {
            Some(place) => *place = new,
            None => drop(self.sample.insert(key.into(), new)),
        }
    }

    /// Keeps what is below `boundary`, returns the rest as a bucket.
    fn split(&mut self, boundary: &[u8]) -> Self {
        let sample = self.sample.split_off(boundary);
        let mut upper = Self { start: boundary.into(), sample, totals: Totals::default() };
        for key in upper.sample.values() {
            self.totals[class(key.value)].add(key, -1);
            upper.totals[class(key.value)].add(key, 1);
        }
        upper
    }
}

/// The bucket that a key belongs to.
fn bucket_of(buckets: &[Bucket], key: &[u8]) -> usize {
    buckets.partition_point(|bucket| *bucket.start <= *key).saturating_sub(1)
}

impl Buckets {
    /// One bucket for all keys; boundaries come as it is filled.
    pub fn new(settings: BucketSettings) -> Self {
        Self { settings, buckets: Mutex::new(vec![Bucket::default()]) }
    }

    /// Buckets now.
    pub fn len(&self) -> usize {
        self.buckets.lock().len()
    }

    /// Whether nothing is known of any key.
    pub fn is_empty(&self) -> bool {
        self.buckets.lock().iter().all(|bucket| bucket.sample.is_empty())
    }

    /// A record came to the fast tier by a flush, or another version of it did.
    ///
    /// Clean copies, which promotion makes, are not to be told: they replace nothing on the slow
    /// tier and are dropped without I/O, so they are neither benefit nor cost of a demotion.
    pub fn insert_fast(&self, key: &[u8], key_hash: u64, bytes: u32) {
        self.change(key, key_hash, |known| known.fast_bytes = bytes.max(1));
    }

    /// A record left the fast tier by demotion or deletion, or is a clean copy from now on.
    pub fn remove_fast(&self, key: &[u8], key_hash: u64) {
        self.change(key, key_hash, |known| known.fast_bytes = 0);
    }

    /// A record was written to a table of the slow tier, or found there. With several runs a key
    /// counts once.
    pub fn insert_slow(&self, key: &[u8], key_hash: u64, bytes: u32) {
        self.change(key, key_hash, |known| known.slow_bytes = bytes.max(1));
    }

    /// No table has this key any more.
    pub fn remove_slow(&self, key: &[u8], key_hash: u64) {
        self.change(key, key_hash, |known| known.slow_bytes = 0);
    }

    /// The tracker's value of a key changed; `None` if it was evicted.
    pub fn touch(&self, key: &[u8], key_hash: u64, value: Option<u8>) {
        self.change(key, key_hash, |known| known.value = value);
    }

    /// Asks the tracker for the values of all sampled keys of the buckets that a range overlaps.
    /// Done before candidates are scored, it spares reads from telling both tracker and buckets.
    pub fn refresh(&self, from: &[u8], to: Option<&[u8]>, tracker: &ClockTracker) {
        let mut buckets = self.buckets.lock();
        let first = bucket_of(&buckets, from);
        for bucket in &mut buckets[first..] {
            if to.is_some_and(|to| *bucket.start >= *to) {
                break;
            }
            for key in bucket.sample.values_mut() {
                let value = tracker.value(key.key_hash);
                if value != key.value {
                    bucket.totals[class(key.value)].add(key, -1);
                    key.value = value;
                    bucket.totals[class(value)].add(key, 1);
                }
            }
        }
    }

    /// Estimates a range from `from` up to but without `to`, or to the end.
    pub fn estimate(&self, from: &[u8], to: Option<&[u8]>, pinning: &Pinning) -> RangeStatistics {
        let factor = self.factor();
        let mut range = RangeStatistics::default();
        if to.is_some_and(|to| to <= from) {
            return range;
        }
        let buckets = self.buckets.lock();
        for index in bucket_of(&buckets, from)..buckets.len() {
            let bucket = &buckets[index];
            if to.is_some_and(|to| *bucket.start >= *to) {
                break;
            }
            let ends_inside = match (buckets.get(index + 1), to) {
                (_, None) => true,
                (Some(next), Some(to)) => *next.start <= *to,
                (None, Some(_)) => false,
            };
            if *bucket.start >= *from && ends_inside {
                range.add(&statistics(&bucket.totals, factor, pinning));
                continue;
            }
            // The overlapped share, field by field: what of the sample lies inside.
            let end = to.map_or(Bound::Unbounded, Bound::Excluded);
            let mut totals = Totals::default();
            for (_, key) in bucket.sample.range::<[u8], _>((Bound::Included(from), end)) {
                totals[class(key.value)].add(key, 1);
            }
            range.add(&statistics(&totals, factor, pinning));
        }
        range
    }

    /// Estimates the bytes of the records of a range, from `from` up to but without `to`, that are
    /// on the slow tier only and that `is_wanted` says of by key and hash.
    ///
    /// One sampled key after another, where [`Buckets::estimate`] knows sums by value: a key of the
    /// value at which pinning draws is wanted or not, and one that came up as a clean copy is there
    /// already, of which the sums know nothing.
    pub fn slow_bytes_of(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        is_wanted: impl Fn(&[u8], u64) -> bool,
    ) -> f64 {
        if to.is_some_and(|to| to <= from) {
            return 0.0;
        }
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let buckets = self.buckets.lock();
        let mut bytes = 0;
        for bucket in &buckets[bucket_of(&buckets, from)..] {
            if to.is_some_and(|to| *bucket.start >= *to) {
                break;
            }
            let sampled = bucket.sample.range::<[u8], _>((Bound::Included(from), end));
            let wanted = sampled.filter(|(key, known)| {
                known.slow_bytes > 0 && known.fast_bytes == 0 && is_wanted(key, known.key_hash)
            });
            bytes += wanted.map(|(_, known)| u64::from(known.slow_bytes)).sum::<u64>();
        }
        bytes as f64 * self.factor()
    }

    /// Keys for each that is sampled.
    fn factor(&self) -> f64 {
        f64::from(1u32 << self.settings.sample_shift.min(16))
    }

    /// Forgets everything but the settings, for an engine that counts anew.
    pub fn clear(&self) {
        *self.buckets.lock() = vec![Bucket::default()];
    }

    fn change(&self, key: &[u8], key_hash: u64, change: impl FnOnce(&mut Sampled)) {
        let mask = (1u64 << self.settings.sample_shift.min(16)) - 1;
        // Bits in the middle: the trackers use those at both ends.
        if (key_hash >> 24) & mask != 0 {
            return;
        }
        let mut buckets = self.buckets.lock();
        let index = bucket_of(&buckets, key);
        buckets[index].change(key, key_hash, change);
        let keys = buckets[index].sample.len() << self.settings.sample_shift.min(16);
        if keys > 2 * self.settings.bucket_keys.max(1) && buckets[index].sample.len() > 1 {
            split_in_the_middle(&mut buckets, index);
        }
    }
}

/// Divides a bucket at the median of its sample, and drops buckets in which nothing is left: keys
/// that grow with time would leave one behind for each that they fill.
fn split_in_the_middle(buckets: &mut Vec<Bucket>, index: usize) {
    let middle = buckets[index].sample.len() / 2;
    let Some(boundary) = buckets[index].sample.keys().nth(middle).cloned() else { return };
    let upper = buckets[index].split(&boundary);
    buckets.insert(index + 1, upper);
    buckets.retain(|bucket| bucket.start.is_empty() || !bucket.sample.is_empty());
}
