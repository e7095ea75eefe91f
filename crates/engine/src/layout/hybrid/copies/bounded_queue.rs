//! What waits for a job: a list with a bound on its bytes.
//!
//! A job is due once enough has gathered: each has locks to take and edits to sync, and wakes every
//! worker when it ends, which for one record at a time cost a fifth of the throughput of YCSB-A.
//! What has not gathered yet waits; it is only of use, never needed.
//!
//! Any thread adds; one job at a time takes. Counted under the lock in both places, so the sums are
//! never below what waits.

use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Most bytes that wait, where memory is plenty; and the share of the memory budget otherwise.
const BYTES_MAX: u64 = 8 << 20;
const MEMORY_SHARE: u64 = 16;
/// Share of the memory budget from which a job is due, and its bounds; and items, however small.
const DUE_SHARE: u64 = 512;
const DUE_BYTES_MIN: u64 = 128 << 10;
const DUE_BYTES_MAX: u64 = 1 << 20;
const DUE_ITEMS: usize = 256;

/// What a record costs while it waits, beside its key and value: without it, any number of small
/// ones would wait.
pub(crate) const RECORD_OVERHEAD_BYTES: u64 = 96;

/// Something that waits.
pub(crate) trait Waits {
    /// Bytes of memory that it takes, about; never none.
    fn bytes(&self) -> u64;
}

/// What [`BoundedQueue::add`] came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// It waits. A worker should be told, or has been.
    Waits { wake: bool },
    /// Too much waits.
    Refused,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct BoundedQueue<T> {
    items: Mutex<Vec<T>>,
    bytes: AtomicU64,
    len: AtomicUsize,
    bytes_max: u64,
    due_bytes: u64,
}

impl<T: Waits> BoundedQueue<T> {
    /// Nothing waits; there is room for a part of the memory budget.
    pub fn new(memory_bytes: u64) -> Self {
        let bytes_max = (memory_bytes / MEMORY_SHARE).min(BYTES_MAX);
        let due_bytes = (memory_bytes / DUE_SHARE).clamp(DUE_BYTES_MIN, DUE_BYTES_MAX);
        let due_bytes = due_bytes.min(bytes_max / 4);
        let (bytes, len) = (AtomicU64::new(0), AtomicUsize::new(0));
        Self { items: Mutex::default(), bytes, len, bytes_max, due_bytes }
    }

    /// Bytes that may wait.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// How many items wait.
    pub fn count(&self) -> u64 {
        self.len.load(Relaxed) as u64
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.load(Relaxed) == 0
    }

    /// Enough has gathered for a job; in a hurry, where a caller waits for background work,
    /// anything is enough.
    pub fn is_due(&self, in_hurry: bool) -> bool {
        let enough =
            self.bytes.load(Relaxed) >= self.due_bytes || self.len.load(Relaxed) >= DUE_ITEMS;
        enough || in_hurry && !self.is_empty()
    }

    /// There is hardly room for more.
    pub fn is_full(&self) -> bool {
        self.bytes.load(Relaxed) > self.bytes_max / 8 * 7
    }

    /// There is room for so many bytes.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.bytes.load(Relaxed) + bytes <= self.bytes_max
    }

    /// Takes an item, unless too much waits.
    pub fn add(&self, item: T) -> Queued {
        if self.has_room(item.bytes()) { self.push(item) } else { Queued::Refused }
    }

    /// Twice as much waits as may.
    pub fn is_overfull(&self) -> bool {
        self.bytes.load(Relaxed) > 2 * self.bytes_max
    }

    /// Takes an item, however much waits.
    pub fn push(&self, item: T) -> Queued {
        let bytes = item.bytes();
        let mut items = self.items.lock();
        items.push(item);
        let was_due = self.is_due(false);
        self.bytes.fetch_add(bytes, Relaxed);
        self.len.fetch_add(1, Relaxed);
        Queued::Waits { wake: !was_due && self.is_due(false) }
    }

    /// The oldest items up to `bytes_max`, one at the least.
    pub fn take(&self, bytes_max: u64) -> Vec<T> {
        let mut items = self.items.lock();
        let mut bytes = 0;
        let fits = items.iter().take_while(|item| {
            bytes += item.bytes();
            bytes <= bytes_max
        });
        let count = fits.count().max(1).min(items.len());
        let batch: Vec<_> = items.drain(..count).collect();
        self.bytes.fetch_sub(batch.iter().map(Waits::bytes).sum(), Relaxed);
        self.len.fetch_sub(count, Relaxed);
        batch
    }

    /// What `of` says of each item, the oldest first. It is to be quick: others wait to add.
    pub fn map<U>(&self, of: impl FnMut(&T) -> U) -> Vec<U> {
        self.items.lock().iter().map(of).collect()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.items.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::until;

    impl Waits for u64 {
        fn bytes(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn what_waits_is_bounded_and_comes_in_its_order() {
        let waiting = BoundedQueue::new(160);
        assert!(waiting.is_empty() && waiting.take(100).is_empty());
        assert_eq!(waiting.add(1), Queued::Waits { wake: false });
        assert_eq!(waiting.add(4), Queued::Waits { wake: true }, "a quarter of ten");
        assert_eq!(waiting.add(2), Queued::Waits { wake: false });
        assert_eq!(waiting.add(4), Queued::Refused);
        assert!(!waiting.is_full() && waiting.has_room(3) && !waiting.has_room(4));
        assert_eq!(waiting.push(4), Queued::Waits { wake: false });
        assert!(waiting.is_full());
        assert_eq!(waiting.take(5), [1, 4]);
        assert_eq!(waiting.take(1), [2], "one at the least");
        assert_eq!(waiting.take(100), [4]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn however_small_they_are_only_so_many_wait() {
        let waiting = BoundedQueue::new(1 << 20);
        for bytes in [1, 96, 97, 4000] {
            let most = waiting.bytes_max() / bytes;
            (0..most).for_each(|_| assert_ne!(waiting.add(bytes), Queued::Refused));
            assert_eq!(waiting.add(bytes), Queued::Refused);
            assert_eq!(waiting.len() as u64, most);
            assert!(waiting.is_full() && !waiting.is_overfull());
            // What must not be refused may come in spite of it.
            until("more than may wait", || {
                waiting.push(bytes);
                waiting.is_overfull()
            });
            assert_eq!(waiting.len() as u64, 2 * waiting.bytes_max() / bytes + 1);
            until("an empty queue", || {
                waiting.take(bytes * 100);
                waiting.is_empty()
            });
            assert_eq!(waiting.len(), 0);
        }
    }

    #[test]
    fn a_job_is_due_once_enough_has_gathered_or_a_caller_is_in_a_hurry() {
        let waiting = BoundedQueue::new(1 << 20);
        assert!(!waiting.is_due(false) && !waiting.is_due(true));
        for number in 1..DUE_ITEMS {
            assert_eq!(waiting.add(1), Queued::Waits { wake: false });
            assert!(waiting.is_due(true) && !waiting.is_due(false), "{number} items");
        }
        assert_eq!(waiting.add(1), Queued::Waits { wake: true });
        assert_eq!(waiting.add(1), Queued::Waits { wake: false }, "workers know");
        assert!(waiting.is_due(false));
        assert_eq!(waiting.take(2).len(), 2);
        assert!(!waiting.is_due(false));
        assert_eq!(waiting.add(16 << 10), Queued::Waits { wake: true }, "a quarter of the bytes");
    }

    #[test]
    fn the_more_memory_the_more_gathers() {
        for (memory_mib, due_kib) in [(8, 128), (64, 128), (256, 512), (512, 1024), (4096, 1024)] {
            let waiting = BoundedQueue::new(memory_mib << 20);
            assert_eq!(waiting.add((due_kib << 10) - 1), Queued::Waits { wake: false });
            assert_eq!(waiting.add(1), Queued::Waits { wake: true }, "{memory_mib} MiB");
        }
    }
}
