//! What statistics say of asynchronous requests.

use serde::{Deserialize, Serialize};
use thermocline_foundation::sync::Mutex;

/// Asynchronous requests: those of now, and counts since opening.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Writes that wait for a logger.
    pub waiting_writes: u64,
    /// Transactions that wait for a reader, to look at what they build on.
    #[serde(default)]
    pub waiting_looks: u64,
    /// Gets that wait for a reader.
    pub waiting_gets: u64,
    /// Pages of scans that do.
    pub waiting_pages: u64,
    /// Requests that wait or are carried out; `request_queue` bounds them.
    pub held: u64,
    /// Their bytes; `request_queue_bytes` bounds them.
    pub held_bytes: u64,
    /// Threads that were started for requests.
    pub threads: u64,
    /// Batches that were written.
    pub writes: u64,
    /// Looks of readers at what transactions build on; memory decides about the others.
    #[serde(default)]
    pub looks: u64,
    /// Gets that a reader answered; memory answers the others at once.
    pub gets: u64,
    /// Pages of scans.
    pub pages: u64,
    /// Requests that were refused as `Busy`.
    pub refused: u64,
    /// Groups in which loggers took writes.
    pub groups: u64,
    /// Writes that they took.
    pub grouped_writes: u64,
    /// Writes of the largest group.
    pub largest_group: u64,
    /// Each logger that was started, in this order.
    #[serde(default)]
    pub loggers: Vec<LoggerStats>,
}

/// What a logger has written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoggerStats {
    /// Groups of writes.
    pub groups: u64,
    /// Bytes of these, as batches.
    pub bytes: u64,
    /// Seconds from taking a group to its end: log, memtable, and the groups before it.
    pub busy_s: f64,
}

impl LoggerStats {
    /// Seconds of a group, on average; 0 before the first.
    pub fn mean_s(&self) -> f64 {
        if self.groups > 0 { self.busy_s / self.groups as f64 } else { 0.0 }
    }

    /// Bytes a second, while it was at work.
    pub fn bytes_per_s(&self) -> f64 {
        if self.busy_s > 0.0 { self.bytes as f64 / self.busy_s } else { 0.0 }
    }
}

/// Counts of each logger.
#[derive(Debug, Default)]
pub(super) struct LoggerFigures(Mutex<Vec<LoggerStats>>);

impl LoggerFigures {
    /// One more was started. Says which it is.
    pub fn started(&self) -> usize {
        let mut loggers = self.0.lock();
        loggers.push(LoggerStats::default());
        loggers.len() - 1
    }

    /// The logger has written a group of so many bytes.
    pub fn wrote(&self, logger: usize, bytes: u64, elapsed_ns: u64) {
        let mut loggers = self.0.lock();
        let figures = &mut loggers[logger];
        figures.groups += 1;
        figures.bytes += bytes;
        figures.busy_s += elapsed_ns as f64 / 1e9;
    }

    pub fn stats(&self) -> Vec<LoggerStats> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_logger_has_its_own_figures() {
        let figures = LoggerFigures::default();
        let (first, second) = (figures.started(), figures.started());
        figures.wrote(first, 1000, 1_000_000);
        figures.wrote(first, 3000, 3_000_000);
        figures.wrote(second, 500, 100_000_000);
        let stats = figures.stats();
        assert_eq!((stats[0].groups, stats[0].bytes, stats[1].groups), (2, 4000, 1));
        assert!((stats[0].mean_s() - 0.002).abs() < 1e-9 && (stats[1].mean_s() - 0.1).abs() < 1e-9);
        assert!((stats[0].bytes_per_s() - 1e6).abs() < 1.0, "{stats:?}");
        let none = LoggerStats::default();
        assert_eq!((none.mean_s(), none.bytes_per_s()), (0.0, 0.0));
    }
}
