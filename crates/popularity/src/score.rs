//! Which key range to demote: the cost-benefit score of multi-tiered storage compaction (§5.2).
//!
//! Records on the fast tier are demoted by ranges; a range is what `i` consecutive tables of the
//! slow tier span. The score of a range is benefit over cost (equation 1):
//!
//! ```text
//!                 Σ coldness(j)              coldness(j) = 1 / (value(j) + 1); 1 if not tracked
//!   MSC = ─────────────────────────────      F = slow bytes / fast bytes     the fanout
//!          F · (2 − o) / (1 − p)  +  1       p = popular (pinned) share of the fast bytes
//!                                            o = share of the slow bytes that are replaced
//! ```
//!
//! The sum is over all objects of the range on the fast tier. The cost is slow-tier I/O for each
//! byte that moves down: with `t_n` fast bytes and `t_f` slow ones, `t_f` are read and
//! `(1-p) t_n + (1-o) t_f` written, for `(1-p) t_n` that move. All shares are by bytes, because
//! objects differ in size. What is replaced are older versions of the objects that move: in the
//! paper a merge leaves out those of popular objects too, here it knows what it merges only, so
//! that they are written again and do not count in `o`.
//!
//! **Several sorted runs.** The paper keeps one run a range, so every demotion rewrites all slow
//! bytes of it. If runs may overlap, a demotion may rewrite some of them, or none and begin another
//! run. The formula stays; `t_f` and `o` are those of the runs that *are* rewritten, so a demotion
//! into a new run costs 1 a byte. What is cheapest now is dear later: if each demotion merged the
//! newest run alone once all are there, that run would take everything in, and be rewritten every
//! time. A merge of more runs pays for the demotions after it, which may begin runs again, so
//! [`best_merge`] takes the mean over those: with `n` runs made room for beside its own, it costs
//!
//! ```text
//!   (cost of the merge + n · cost of a demotion into a new run) / (1 + n)
//! ```
//!
//! **A tier that wears out.** What is read costs time, what is written wears the tier out. Where
//! its budget of writes ([`WriteBudget`](crate::WriteBudget)) is short, [`best_merge`] counts what
//! is read for less, and for nothing where the budget is spent: the score is then benefit for each
//! byte written.
//!
//! Invariants:
//! 1. A score is finite and not negative; 0 when nothing would move.
//! 2. More slow bytes never raise a score; more cold objects of the same bytes never lower it.
//! 3. With one run, all of it rewritten and no scarcity, [`best_merge`] scores as [`score`].

use thermocline_foundation::random::Random;

/// Candidates that the power of k choices looks at by default (§5.3).
pub const CANDIDATES: usize = 8;

/// What is known of a candidate range, exact or estimated. Fractions of objects are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RangeStatistics {
    /// Objects on the fast tier, `t_n`; clean copies of slow ones do not count.
    pub fast_objects: f64,
    pub fast_bytes: f64,
    /// Objects on the slow tier, in all runs, `t_f`.
    pub slow_objects: f64,
    pub slow_bytes: f64,
    /// Slow bytes that a demotion replaces, of keys that are on the fast tier, too, and move: `o`
    /// times `slow_bytes`.
    pub overlap_bytes: f64,
    /// Sum of the coldness of the fast objects, each in `(0, 1]`.
    pub coldness: f64,
    /// Fast bytes that stay because they are pinned: `p` times `fast_bytes`.
    pub pinned_bytes: f64,
}

impl RangeStatistics {
    /// `p`, the popular share of the fast bytes.
    pub fn pinned_share(&self) -> f64 {
        share(self.pinned_bytes, self.fast_bytes)
    }

    /// `o`, the share of the slow bytes that newer ones replace.
    pub fn overlap_share(&self) -> f64 {
        share(self.overlap_bytes, self.slow_bytes)
    }

    /// Bytes that a demotion moves down, `(1 - p) t_n`.
    pub fn moved_bytes(&self) -> f64 {
        self.fast_bytes * (1.0 - self.pinned_share())
    }

    /// Bytes read from and written to the slow tier if all its runs are rewritten.
    pub fn io_bytes(&self) -> f64 {
        self.slow_bytes * (2.0 - self.overlap_share()) + self.moved_bytes()
    }

    /// Of those, bytes written: what wears the slow tier out.
    pub fn written_bytes(&self) -> f64 {
        self.slow_bytes * (1.0 - self.overlap_share()) + self.moved_bytes()
    }

    /// Adds the statistics of a neighbouring range.
    pub fn add(&mut self, other: &Self) {
        self.fast_objects += other.fast_objects;
        self.fast_bytes += other.fast_bytes;
        self.slow_objects += other.slow_objects;
        self.slow_bytes += other.slow_bytes;
        self.overlap_bytes += other.overlap_bytes;
        self.coldness += other.coldness;
        self.pinned_bytes += other.pinned_bytes;
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// How cold a key of this value is, in `(0, 1]`; 1 if it is not tracked (§5.2).
pub fn coldness(value: Option<u8>) -> f64 {
    1.0 / (f64::from(value.unwrap_or(0)) + 1.0)
}

/// Equation 1; see the header.
pub fn score(range: &RangeStatistics) -> f64 {
    let moved = range.moved_bytes();
    if moved <= 0.0 { 0.0 } else { range.coldness * moved / range.io_bytes() }
}

/// One sorted run of the slow tier within a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    pub bytes: f64,
    /// Of these, bytes that a newer version replaces which is merged too, from the fast tier or a
    /// newer run.
    pub overlap_bytes: f64,
}

/// Which runs a demotion should rewrite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Merge {
    /// So many of the newest runs; 0 begins another run.
    pub runs: usize,
    pub score: f64,
    /// Bytes written to the slow tier, if all that would move does.
    pub written_bytes: f64,
}

/// The best choice of newest runs to rewrite so that at most `runs_max` remain.
///
/// `runs` is ordered from the newest to the oldest; only a prefix may be merged, or an old version
/// would come to lie above a newer one. With `runs_max` 1 all are merged, as in the paper. Its cost
/// is the mean of this demotion and those that may begin a run after it (see the header); ties go
/// to the merge of more runs, which leaves less to search.
///
/// `scarcity` says how short the budget of writes is, from 0 (or none) to 1: that share of what is
/// read is not counted.
pub fn best_merge(range: &RangeStatistics, runs: &[Run], runs_max: usize, scarcity: f64) -> Merge {
    let runs_max = runs_max.max(1);
    let scarcity = scarcity.clamp(0.0, 1.0);
    let mut merged = RangeStatistics { slow_bytes: 0.0, overlap_bytes: 0.0, ..*range };
    let mut best = None;
    for count in 0..=runs.len() {
        if let Some(run) = count.checked_sub(1).and_then(|index| runs.get(index)) {
            merged.slow_bytes += run.bytes;
            merged.overlap_bytes += run.overlap_bytes;
        }
        // It leaves all runs but these, and its own.
        let left = runs.len() - count + 1;
        let Some(room) = runs_max.checked_sub(left) else { continue };
        let (room, moved) = (room as f64, merged.moved_bytes());
        let (io_bytes, written_bytes) = (merged.io_bytes(), merged.written_bytes());
        let cost_bytes = io_bytes - scarcity * (io_bytes - written_bytes);
        let mean_bytes = (cost_bytes + room * moved) / (1.0 + room);
        let score = if moved <= 0.0 { 0.0 } else { merged.coldness * moved / mean_bytes };
        let merge = Merge { runs: count, score, written_bytes };
        if best.is_none_or(|best: Merge| merge.score >= best.score) {
            best = Some(merge);
        }
    }
    best.unwrap_or(Merge { runs: runs.len(), score: 0.0, written_bytes: 0.0 })
}

/// How the range is chosen (§5.3). The paper measures 2.5 times the slow-tier writes for `Random`,
/// and fifteen times the processor's time for `Precise`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Statistics counted object by object.
    Precise,
    /// Statistics estimated from buckets.
    #[default]
    Approximate,
    /// Any range, without statistics: the baseline.
    Random,
}

/// Draws `k` different candidates; fewer if there are no more. A candidate is the number of the
/// first of `width` consecutive tables out of `tables` (§5.2: `width` is 1 by default).
pub fn power_of_k(tables: usize, width: usize, k: usize, random: &mut Random) -> Vec<usize> {
    let candidates = (tables + 1).saturating_sub(width.max(1)).max(usize::from(tables > 0));
    let mut drawn = Vec::with_capacity(k.min(candidates));
    // Floyd's sample without replacement: k draws, whatever the number of candidates.
    for last in candidates - k.min(candidates)..candidates {
        let draw = random.below(last as u64 + 1) as usize;
        drawn.push(if drawn.contains(&draw) { last } else { draw });
    }
    drawn
}

/// The candidate to demote: the one of the highest score, the first of equals; with `Random` any.
/// `None` when no candidate has anything to move.
pub fn choose(
    policy: Policy,
    candidates: &[usize],
    random: &mut Random,
    mut score_of: impl FnMut(usize) -> f64,
) -> Option<usize> {
    if policy == Policy::Random {
        let count = candidates.len() as u64;
        return (count > 0).then(|| candidates[random.below(count) as usize]);
    }
    let mut best: Option<(usize, f64)> = None;
    for &candidate in candidates {
        let score = score_of(candidate);
        if score > best.map_or(0.0, |(_, score)| score) {
            best = Some((candidate, score));
        }
    }
    best.map(|(candidate, _)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(coldness: f64) -> RangeStatistics {
        RangeStatistics { fast_bytes: 1000.0, coldness, ..RangeStatistics::default() }
    }

    #[test]
    fn a_short_budget_of_writes_prefers_the_merge_that_writes_less_though_it_reads_more() {
        let newest = Run { bytes: 3000.0, overlap_bytes: 0.0 };
        // All of it is replaced: it is read, and nothing of it written again.
        let oldest = Run { bytes: 8000.0, overlap_bytes: 8000.0 };
        let best = |scarcity| best_merge(&range(10.0), &[newest, oldest], 2, scarcity);
        assert_eq!(best(0.0).runs, 1);
        assert_eq!(best(1.0).runs, 2);
        assert_eq!(best(1.0).written_bytes, 4000.0);
        // Beside its own 4,000 it saves a merge to the demotion after it, which writes 1,000.
        assert_eq!(best(1.0).score, 10.0 * 1000.0 / 2500.0);
    }

    #[test]
    fn a_short_budget_of_writes_chooses_the_range_with_the_most_benefit_for_a_byte_written() {
        let score = |coldness, bytes, scarcity| {
            let run = Run { bytes, overlap_bytes: 0.0 };
            best_merge(&range(coldness), &[run], 1, scarcity).score
        };
        assert!(score(100.0, 1000.0, 0.0) < score(50.0, 100.0, 0.0));
        assert!(score(100.0, 1000.0, 1.0) > score(50.0, 100.0, 1.0));
        assert_eq!(score(100.0, 1000.0, 1.0), 100.0 * 1000.0 / 2000.0);
        assert_eq!(score(100.0, 1000.0, 7.0), score(100.0, 1000.0, 1.0), "no more than all");
    }
}
