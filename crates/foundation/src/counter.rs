//! Counters that many threads bump without passing a cache line around.

#[cfg(loom)]
use crate::sync::atomic::AtomicU64;
use crossbeam_utils::CachePadded;
// No code decides by a count, so it is no point of scheduling under `--cfg shuttle`.
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CELLS: usize = 8;

thread_local! {
    static CELL: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % CELLS
    };
}

/// A sum over a few cells, each on a cache line of its own; a thread always adds to the same cell.
///
/// Reading walks the cells and sees each addition that happened before, but is not a snapshot of
/// all of them.
#[derive(Debug, Default)]
pub struct Counter {
    cells: [CachePadded<AtomicU64>; CELLS],
}

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        CELL.with(|&cell| self.cells[cell].fetch_add(amount, Relaxed));
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.cells.iter().map(|cell| cell.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_of_many_threads_are_all_counted() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 20_000);
    }
}
