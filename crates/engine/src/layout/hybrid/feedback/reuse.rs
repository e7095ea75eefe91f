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
    /// Unless it is judged, reads recur.
    is_judged: bool,
    /// The last judgement.
    reads_recur: AtomicBool,
}

impl ReuseDetector {
    /// Reads recur until they are judged, and always unless they are to be.
    pub fn new(is_judged: bool) -> Self {
        Self {
            is_judged,
            tracked_reads: AtomicU64::new(0),
            other_reads: AtomicU64::new(0),
            comparison: Mutex::new(DensityComparison::new(DensitySettings::default())),
            reads_recur: AtomicBool::new(true),
        }
    }

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
        self.reads_recur.store(reads_recur || !self.is_judged, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_do_not_recur_are_found_out_unless_they_are_not_judged() {
        for is_judged in [true, false] {
            let detector = ReuseDetector::new(is_judged);
            let mut looks = 0;
            for _ in 0..64 * READS_A_LOOK {
                // As many of the tracked as of the others.
                looks += u64::from(detector.note_read(true)) + u64::from(detector.note_read(false));
                detector.judge(1000, 1000);
            }
            assert_eq!((looks, detector.reads_recur()), (128, !is_judged));
        }
    }
}
