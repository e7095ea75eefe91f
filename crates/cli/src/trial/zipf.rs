//! Ranks with Zipf's popularity: rank r is drawn in proportion to 1 / (r + 1)^theta.
//!
//! The sums are kept in a table, so that a draw is a binary search and exact. The caller lays the
//! ranks over its items by a bijection; a hash modulo the count would leave out a third of them.

use thermocline_foundation::random::Random;

/// The distribution over a number of ranks.
#[derive(Debug)]
pub struct Zipf {
    /// Sum of the weights up to and including each rank.
    sums: Vec<f64>,
}

impl Zipf {
    /// `count` ranks, at least one.
    pub fn new(count: usize, theta: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: usize| 1.0 / ((rank + 1) as f64).powf(theta);
        let sums = (0..count.max(1)).map(|rank| {
            sum += weight(rank);
            sum
        });
        Self { sums: sums.collect() }
    }

    /// A rank, 0 being the most popular.
    pub fn draw(&self, random: &mut Random) -> usize {
        let total = self.sums.last().copied().unwrap_or(1.0);
        let point = random.unit() * total;
        self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_falls_with_rank_as_the_formula_says() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = Random::new(7);
        let mut counts = vec![0u32; 1000];
        (0..200_000).for_each(|_| counts[zipf.draw(&mut random)] += 1);
        let total: f64 = (1..=1000).map(|rank| 1.0 / f64::from(rank).powf(0.99)).sum();
        for rank in [0usize, 1, 9] {
            let expected = 200_000.0 / ((rank + 1) as f64).powf(0.99) / total;
            let ratio = f64::from(counts[rank]) / expected;
            assert!((0.9..1.1).contains(&ratio), "rank {rank}: {ratio}");
        }
        assert_eq!(Zipf::new(1, 0.99).draw(&mut random), 0);
    }
}
