//! How much dearer it is to read a record of the slow tier than one of the fast tier.
//!
//! Memory that keeps a record of the slow tier spares a read there, and memory that keeps one of
//! the fast tier spares one here. Which of the two is worth more follows from what the devices do,
//! not from what they are called: reads that wait for a device at its limit are dear, and where
//! processors are the limit all cost about the same.
//!
//! ```text
//!   mean wait, slow / fast     1 ... 1.4 ... 2 ... 2.8 ... and more
//!   worth of a fast hit          1     1/2    1/4    1/8
//! ```
//! The worth is the inverse ratio, squared: at a device at its limit the number of waiting threads
//! bounds the wait, so the wait says too little about what one more read costs. Measured on two
//! devices of which the slow one does 10,000 reads a second: 5 where reads are bound by it (8
//! threads), 1.3 where processors are the limit.
//!
//! Invariant: the worth changes at the ends of windows only.

/// Reads of the slow tier in a window, and of the fast tier at least.
const WINDOW_SLOW: u64 = 4096;
const WINDOW_FAST: u64 = 256;
/// Share of the newest window in the mean of them.
const NEWEST: f64 = 0.25;
/// Least worth of a hit of a record that the fast tier has; one that only tables have is 1.
pub const WORTH_MIN: f64 = 0.125;

/// Reads of a tier, since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub reads: u64,
    /// Nanoseconds that callers waited for them.
    pub ns: u64,
}

impl Waits {
    fn since(self, before: Self) -> Self {
        let reads = self.reads.saturating_sub(before.reads);
        Self { reads, ns: self.ns.saturating_sub(before.ns) }
    }

    fn mean_ns(self) -> f64 {
        self.ns as f64 / self.reads.max(1) as f64
    }
}

/// See the header. One owner at a time.
#[derive(Clone, Debug, Default)]
pub struct ReadCost {
    /// Fast and slow, when the window began.
    since: [Waits; 2],
    ratio: Option<f64>,
}

impl ReadCost {
    /// Takes what was waited for so far; true where a window has ended.
    pub fn observe(&mut self, fast: Waits, slow: Waits) -> bool {
        let (of_fast, of_slow) = (fast.since(self.since[0]), slow.since(self.since[1]));
        if of_slow.reads < WINDOW_SLOW || of_fast.reads < WINDOW_FAST {
            return false;
        }
        self.since = [fast, slow];
        // Clocks that stand still tell nothing.
        if of_fast.ns == 0 || of_slow.ns == 0 {
            return false;
        }
        let newest = of_slow.mean_ns() / of_fast.mean_ns();
        let before = self.ratio.unwrap_or(newest);
        self.ratio = Some(before + NEWEST * (newest - before));
        true
    }

    /// How many times as long a read of the slow tier takes; none before it is known.
    pub fn ratio(&self) -> Option<f64> {
        self.ratio
    }

    /// What a hit of a record is worth that the fast tier has too, where one of a record that only
    /// tables have is 1: a power of two, [`WORTH_MIN`] before more is known.
    pub fn worth_of_fast_hit(&self) -> f64 {
        let Some(ratio) = self.ratio else { return WORTH_MIN };
        let halvings = (2.0 * ratio.max(1.0).log2()).round();
        0.5f64.powf(halvings).max(WORTH_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = WINDOW_SLOW;

    /// Windows of reads, each with these mean waits of fast and slow.
    fn after(windows: &[(u64, u64)]) -> ReadCost {
        let mut cost = ReadCost::default();
        let (mut fast, mut slow) = (Waits::default(), Waits::default());
        for (fast_ns, slow_ns) in windows {
            fast = Waits { reads: fast.reads + WINDOW, ns: fast.ns + WINDOW * fast_ns };
            slow = Waits { reads: slow.reads + WINDOW, ns: slow.ns + WINDOW * slow_ns };
            cost.observe(fast, slow);
        }
        cost
    }

    #[test]
    fn a_hit_that_spares_a_fast_read_is_worth_less_the_longer_slow_ones_take() {
        assert_eq!(after(&[]).worth_of_fast_hit(), WORTH_MIN);
        let worth = |slow_ns| after(&[(100, slow_ns)]).worth_of_fast_hit();
        assert_eq!([50, 100, 118].map(worth), [1.0; 3]);
        assert_eq!([120, 167].map(worth), [0.5; 2]);
        assert_eq!([169, 237].map(worth), [0.25; 2]);
        assert_eq!([239, 1000, 1_000_000].map(worth), [0.125; 3]);
    }

    #[test]
    fn the_ratio_follows_in_some_windows() {
        let mut windows = vec![(100, 800)];
        assert_eq!(after(&windows).ratio(), Some(8.0));
        windows.push((100, 100));
        assert_eq!(after(&windows).ratio(), Some(6.25));
        windows.extend([(100, 100); 20]);
        assert_eq!(after(&windows).worth_of_fast_hit(), 1.0);
    }

    #[test]
    fn few_reads_of_either_kind_and_a_clock_that_stands_still_tell_nothing() {
        let few = Waits { reads: WINDOW_FAST - 1, ns: 1000 };
        let many = Waits { reads: WINDOW_SLOW, ns: 1000 };
        let mut cost = ReadCost::default();
        assert!(!cost.observe(few, many));
        assert!(!cost.observe(many, Waits { reads: WINDOW_SLOW - 1, ns: 1000 }));
        assert!(!cost.observe(Waits { ns: 0, ..many }, many));
        assert_eq!(cost.ratio(), None);
        let more = Waits { reads: 2 * WINDOW_SLOW, ns: 2000 };
        assert!(cost.observe(more, more));
        assert_eq!(cost.ratio(), Some(0.5));
    }
}
