//! Places of a table's records that its writer hands over in memory to what enters them into an
//! index, so that the table need not be read back (SLM-DB, section 3.2).
//!
//! 1. What is handed over, and what is being gathered, takes no more than [`HandOver`] allows. A
//!    table for which nothing is left is read back.
//! 2. It is of use to a process that lives: after a crash tables are read back.
//!
//! Threads: any.

use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_table::Places;

/// Of the memory that is left, the part that a table is promised: another may be written beside it.
const TABLES: u64 = 2;

/// The memory of all places.
#[derive(Debug)]
pub(crate) struct HandOver {
    bytes_max: u64,
    bytes: Mutex<u64>,
}

impl HandOver {
    /// At most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, bytes: Mutex::new(0) }
    }

    /// Bytes that are taken or promised.
    pub fn bytes(&self) -> u64 {
        *self.bytes.lock()
    }

    /// Memory for the places of a table that is about to be written.
    pub fn promise(self: &Arc<Self>) -> Promise {
        let mut taken = self.bytes.lock();
        let bytes = (self.bytes_max - *taken) / TABLES;
        *taken += bytes;
        Promise { bytes, of: Arc::clone(self) }
    }
}

/// Memory that is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Promise {
    bytes: u64,
    of: Arc<HandOver>,
}

impl Promise {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// These places, and no more memory than they take.
    pub fn keep(mut self, places: Places) -> Handed {
        let spare = self.bytes.saturating_sub(places.memory_bytes());
        *self.of.bytes.lock() -= spare;
        self.bytes -= spare;
        Handed { places, _promise: self }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        *self.of.bytes.lock() -= self.bytes;
    }
}

/// The places of a table.
#[derive(Debug)]
pub(crate) struct Handed {
    pub places: Places,
    _promise: Promise,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_promised_stays_below_the_limit_and_comes_back() {
        let all = Arc::new(HandOver::new(1000));
        let (first, second) = (all.promise(), all.promise());
        assert_eq!((first.bytes(), second.bytes(), all.bytes()), (500, 250, 750));
        let kept = first.keep(Places::default());
        assert_eq!(all.bytes(), 250);
        drop((kept, second));
        assert_eq!(all.bytes(), 0);
    }
}
