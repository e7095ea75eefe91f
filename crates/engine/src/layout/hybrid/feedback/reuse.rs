//! Whether records that were asked for are asked for again.

use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::AtomicU64;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_popularity::DensityComparison;
use thermocline_popularity::DensitySettings;
use thermocline_popularity::Kind;
/// Looks at whether reads recur are this many reads apart.
const READS_A_LOOK: u64 = 1024;

/// Whether records of a place that were asked for are asked for again sooner than the others there.
#[derive(Debug)]
pub(crate) struct ReuseDetector {
    tracked_reads: AtomicU64,
    other_reads: AtomicU64,
    comparison: Mutex<DensityComparison>,
    /// The last judgement.
    reads_recur: AtomicBool,
}

impl Default for ReuseDetector {
    fn default() -> Self {
        Self {
            tracked_reads: AtomicU64::new(0),
            other_reads: AtomicU64::new(0),
            comparison: Mutex::new(DensityComparison::new(DensitySettings::default())),
            reads_recur: AtomicBool::new(true),
        }
    }
}

impl ReuseDetector {
    /// As it was judged last.
    pub fn reads_recur(&self) -> bool {
        self.reads_recur.load(Relaxed)
    }

    /// A record was read there, which was tracked before. True where it is time for a look.
    pub fn note_read(&self, was_tracked: bool) -> bool {
        let reads = if was_tracked { &self.tracked_reads } else { &self.other_reads };
        (reads.fetch_add(1, Relaxed) + 1).is_multiple_of(READS_A_LOOK)
    }

    /// Takes a look; of the records there so many are tracked, and so many are not.
    pub fn judge(&self, tracked: u64, others: u64) {
        let tracked = Kind { records: tracked, hits: self.tracked_reads.load(Relaxed) };
        let others = Kind { records: others, hits: self.other_reads.load(Relaxed) };
        let reads_recur = self.comparison.lock().observe(tracked, others);
        self.reads_recur.store(reads_recur, Relaxed);
    }
}
