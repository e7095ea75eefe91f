//! Whether what was asked for is asked for again sooner than what was not.
//!
//! To move a record up because it was read costs a write and another record's place. That pays
//! where reads recur; where every record is asked for alike it is work for nothing, and so it is
//! once all that is hot has moved up. What tells is the hits for each record, over a while, of the
//! records that are tracked and of the others: their hit densities (LHD, Beckmann, Chen and Cidon,
//! NSDI 2018, section 3, ranks single objects by it; two kinds need two counters).
//!
//! ```text
//!   hits for each record, tracked / others    1.06 .......... 1.12
//!                                   alike  <─┘   as before   └─>  reads recur
//! ```
//! Of a steady skew little is left to see on the slow tier once the hottest have moved up: with
//! exponent 0.99 and the hottest 24 % away, the tracked of the rest are 1.2 times as dense as the
//! others. So the limits are close to 1, and a window has hits enough to tell: with 2,048 expected
//! the deviation is 2 %.
//!
//! Where one kind is hardly there, nothing can be told, and reads are taken to recur.
//!
//! Invariant: the judgement changes at the ends of windows only, or where nothing can be told.

/// A kind with less than this share of the records is hardly there.
const KIND_SHARE_MIN: u64 = 64;

/// What is known of a kind of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// Records of it now.
    pub records: u64,
    /// Reads of these since the store was opened.
    pub hits: u64,
}

/// Limits of the judgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DensitySettings {
    /// Hits of both kinds in a window, at least.
    pub window: u64,
    /// Hits that each kind would have had in a window if both were alike, at least.
    pub expected_hits_min: f64,
    /// From so many times the others' density on reads recur.
    pub denser: f64,
    /// Below so many they do not.
    pub alike: f64,
}

impl Default for DensitySettings {
    fn default() -> Self {
        Self { window: 8192, expected_hits_min: 2048.0, denser: 1.12, alike: 1.06 }
    }
}

/// See the header. One owner at a time.
#[derive(Clone, Debug)]
pub struct DensityComparison {
    settings: DensitySettings,
    /// Hits of both kinds when the window began.
    since: [u64; 2],
    /// Sums of both kinds' records over the looks of this window, for they come and go.
    records: [u64; 2],
    is_denser: bool,
}

impl DensityComparison {
    /// Reads are taken to recur until more is known.
    pub fn new(settings: DensitySettings) -> Self {
        Self { settings, since: [0; 2], records: [0; 2], is_denser: true }
    }

    /// Takes what is known of tracked records and of the others; answers whether the tracked are
    /// denser. To be asked several times in a window, at even distances.
    pub fn observe(&mut self, tracked: Kind, others: Kind) -> bool {
        let kinds = [tracked, others];
        if tracked.records.min(others.records) * KIND_SHARE_MIN < tracked.records + others.records {
            (self.since, self.records) = (kinds.map(|kind| kind.hits), [0; 2]);
            self.is_denser = true;
            return true;
        }
        let hits = [0, 1].map(|kind| kinds[kind].hits.saturating_sub(self.since[kind]) as f64);
        [0, 1].into_iter().for_each(|kind| self.records[kind] += kinds[kind].records);
        let records = self.records.map(|sum| sum as f64);
        let (all_hits, all_records) = (hits[0] + hits[1], (records[0] + records[1]).max(1.0));
        let expected = records.map(|records| all_hits * records / all_records);
        let is_over = all_hits >= self.settings.window as f64
            && expected.iter().all(|expected| *expected >= self.settings.expected_hits_min);
        if is_over {
            let limit = if self.is_denser { self.settings.alike } else { self.settings.denser };
            self.is_denser = hits[0] / expected[0] >= limit * hits[1] / expected[1];
            self.since = kinds.map(|kind| kind.hits);
            self.records = [0; 2];
        }
        self.is_denser
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comparison of 10,000 tracked records with 30,000 others, after windows of these hits.
    fn after(windows: &[[u64; 2]]) -> DensityComparison {
        let mut comparison = DensityComparison::new(DensitySettings::default());
        windows.iter().for_each(|hits| _ = observe(&mut comparison, *hits));
        comparison
    }

    /// One more window of so many hits of each kind.
    fn observe(comparison: &mut DensityComparison, hits: [u64; 2]) -> bool {
        let [tracked, others] = comparison.since;
        let tracked = Kind { records: 10_000, hits: tracked + hits[0] };
        comparison.observe(tracked, Kind { records: 30_000, hits: others + hits[1] })
    }

    #[test]
    fn records_that_are_asked_for_alike_are_not_denser_however_many_there_are() {
        assert!(!observe(&mut after(&[]), [3000, 9000]));
        assert!(observe(&mut after(&[]), [6000, 9000]), "twice as often");
    }

    #[test]
    fn a_judgement_changes_only_with_clear_windows() {
        let [alike, between, denser] = [[3000, 9000], [3270, 9000], [3370, 9000]];
        assert!(observe(&mut after(&[]), between), "1.09 times as often keeps it");
        assert!(!observe(&mut after(&[alike]), between), "and does not bring it back");
        assert!(observe(&mut after(&[alike, between]), denser));
        assert!(!observe(&mut after(&[alike, denser]), alike));
    }

    #[test]
    fn a_window_waits_until_both_kinds_could_have_had_hits_enough() {
        assert!(observe(&mut after(&[]), [0, 8191]), "2,048 of the tracked are not to be expected");
        assert!(!observe(&mut after(&[]), [0, 8192]));
    }

    #[test]
    fn where_one_kind_is_hardly_there_reads_are_taken_to_recur() {
        let many = Kind { records: 100_000, hits: 1 << 20 };
        let few = |records| Kind { records, hits: 12_000 };
        for records in [0, 1587] {
            assert!(after(&[[3000, 9000]]).observe(few(records), many));
            assert!(after(&[[3000, 9000]]).observe(many, few(records)));
        }
        assert!(!after(&[[3000, 9000]]).observe(few(1588), many));
        let mut comparison = after(&[[3000, 9000]]);
        assert!(comparison.observe(Kind::default(), many));
        assert!(!observe(&mut comparison, [3000, 9000]), "a new window has begun");
    }

    #[test]
    fn records_that_come_in_a_window_count_for_as_long_as_they_were_there() {
        let kinds = |looks: u64, records: u64| {
            // Tracked records are as dense as the others by the last look's numbers.
            let tracked = Kind { records, hits: looks * 1000 };
            (tracked, Kind { records: 30_000, hits: looks * 3000 })
        };
        let mut comparison = DensityComparison::new(DensitySettings {
            denser: 1.5,
            alike: 1.5,
            ..DensitySettings::default()
        });
        for (look, records) in [0, 2500, 5000, 7500, 10_000].into_iter().enumerate() {
            let (tracked, others) = kinds(look as u64, records);
            assert!(comparison.observe(tracked, others), "{records}");
        }
        assert_eq!(comparison.since, [4000, 12_000], "the window is over");
    }
}
