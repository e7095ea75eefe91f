//! What waits for a job: a list with a bound on its bytes.
//!
//! Any thread adds; one job at a time takes. Counted under the lock in both places, so the sum is
//! never below what waits.

use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Most bytes that wait, where memory is plenty; and the share of the memory budget otherwise.
const BYTES_MAX: u64 = 8 << 20;
const MEMORY_SHARE: u64 = 16;
/// Bytes that wake a worker, at most.
const WAKE_BYTES: u64 = 128 << 10;

/// Something that waits.
pub(crate) trait Waits {
    /// Bytes of memory that it takes, about.
    fn bytes(&self) -> u64;
}

/// What [`Waiting::add`] came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It waits. A worker should be told, or has been.
    Waits { wake: bool },
    /// Too much waits.
    Refused,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    items: Mutex<Vec<T>>,
    bytes: AtomicU64,
    bytes_max: u64,
}

impl<T: Waits> Waiting<T> {
    /// Nothing waits; there is room for a part of the memory budget.
    pub fn new(memory_bytes: u64) -> Self {
        let bytes_max = (memory_bytes / MEMORY_SHARE).min(BYTES_MAX);
        Self { items: Mutex::default(), bytes: AtomicU64::new(0), bytes_max }
    }

    /// Bytes that may wait.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.load(Relaxed) == 0
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
    pub fn add(&self, item: T) -> Added {
        if self.has_room(item.bytes()) { self.push(item) } else { Added::Refused }
    }

    /// Takes an item, however much waits.
    pub fn push(&self, item: T) -> Added {
        let bytes = item.bytes();
        let wake_bytes = WAKE_BYTES.min(self.bytes_max / 4);
        let mut items = self.items.lock();
        items.push(item);
        let before = self.bytes.fetch_add(bytes, Relaxed);
        Added::Waits { wake: before < wake_bytes && before + bytes >= wake_bytes }
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
        batch
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.items.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Waits for u64 {
        fn bytes(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn what_waits_is_bounded_and_comes_in_its_order() {
        let waiting = Waiting::new(160);
        assert!(waiting.is_empty() && waiting.take(100).is_empty());
        assert_eq!(waiting.add(1), Added::Waits { wake: false });
        assert_eq!(waiting.add(4), Added::Waits { wake: true }, "a quarter of ten");
        assert_eq!(waiting.add(2), Added::Waits { wake: false });
        assert_eq!(waiting.add(4), Added::Refused);
        assert!(!waiting.is_full() && waiting.has_room(3) && !waiting.has_room(4));
        assert_eq!(waiting.push(4), Added::Waits { wake: false });
        assert!(waiting.is_full());
        assert_eq!(waiting.take(5), [1, 4]);
        assert_eq!(waiting.take(1), [2], "one at the least");
        assert_eq!(waiting.take(100), [4]);
        assert!(waiting.is_empty());
    }
}
