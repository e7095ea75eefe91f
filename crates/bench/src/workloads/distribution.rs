//! Which record an operation is about: distributions of ranks, exact and seeded.
//!
//! A rank is a place in the order of popularity, 0 the most popular where ranks differ. The stream
//! maps ranks to records by a permutation, so each record has exactly one rank and popular records
//! lie anywhere among the keys. The one exception is `zipf-ycsb`, YCSB's own generator, which
//! hashes 10^10 ranks onto the records and is there to compare with published figures.
//!
//! Sources: Zipf as `zipf` draws it, exact for every exponent; prefix_dist as in RocksDB's
//! `db_bench` (mixgraph; Cao et al., FAST 2020).
//!
//! Threads: a prepared [`Chooser`] is read-only and shared.

use super::zipf::Zipf;
use crate::Failure;
use std::fmt;
use std::str::FromStr;
use thermocline_foundation::random::{Random, mix};

/// How popular records are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Rank r in proportion to (r + 1)^-alpha.
    Zipf {
        /// The exponent.
        alpha: f64,
    },
    /// YCSB's scrambled Zipf: ranks of 10^10 items, hashed modulo the records.
    ZipfYcsb {
        /// The exponent.
        alpha: f64,
    },
    /// A set of records takes 95 % of the operations; inside and outside all are alike.
    Hotspot {
        /// Share of the records in the set.
        share: f64,
        /// Where it begins, as a share of the ranks.
        from: f64,
    },
    /// Zipf over the age of records, newest first, inserts of the run included.
    Latest {
        /// The exponent.
        alpha: f64,
    },
    /// Meta's key ranges of different popularity with a power law inside each.
    Prefix(PrefixParameters),
}

/// Parameters of `prefix_dist`, named as in db_bench.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixParameters {
    /// `key_dist_a` and `_b`: inside a range.
    pub key: [f64; 2],
    /// `keyrange_num`.
    pub ranges: u64,
    /// `keyrange_dist_a` to `_d`: among the ranges.
    pub range: [f64; 4],
}

/// Share of the operations that a hotspot takes.
pub const HOTSPOT_OPERATIONS: f64 = 0.95;
/// Items of YCSB's scrambled generator.
const YCSB_ITEMS: u64 = 10_000_000_000;

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Zipf { alpha } => write!(f, "zipf-{alpha}"),
            Self::ZipfYcsb { alpha: _ } => write!(f, "zipf-ycsb"),
            Self::Hotspot { share, from: _ } => {
                write!(f, "hotspot-{}", (share * 1e4).round() / 1e2)
            }
            Self::Latest { .. } => write!(f, "latest"),
            Self::Prefix(_) => write!(f, "prefix"),
        }
    }
}

impl FromStr for Distribution {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let number = |text: &str, low: f64, high: f64| {
            text.parse::<f64>().ok().filter(|value| (low..=high).contains(value))
        };
        let found = match text {
            "uniform" => Some(Self::Uniform),
            "latest" => Some(Self::Latest { alpha: 0.99 }),
            "zipf-ycsb" => Some(Self::ZipfYcsb { alpha: 0.99 }),
            _ => match text.split_once('-') {
                Some(("zipf", alpha)) => {
                    number(alpha, 0.01, 10.0).map(|alpha| Self::Zipf { alpha })
                }
                Some(("hotspot", share)) => number(share, 0.01, 100.0)
                    .map(|share| Self::Hotspot { share: share / 100.0, from: 0.0 }),
                _ => None,
            },
        };
        found.ok_or_else(|| {
            format!(
                "'{text}' is not a distribution; there are uniform, zipf-ALPHA (such as \
                 zipf-0.99), zipf-ycsb, hotspot-PERCENT (such as hotspot-5) and latest"
            )
            .into()
        })
    }
}

/// A distribution over a number of records, ready to draw from.
#[derive(Clone, Debug)]
pub struct Chooser {
    distribution: Distribution,
    records: u64,
    zipf: Option<Zipf>,
    /// Of `prefix_dist`: the end of each range's share of `0..last`, and the range it belongs to.
    ranges: Vec<(u64, u64)>,
}

impl Chooser {
    /// `distribution` over `records` records.
    pub fn new(distribution: Distribution, records: u64) -> Self {
        let zipf = match distribution {
            Distribution::Zipf { alpha } | Distribution::Latest { alpha } => {
                Some(Zipf::new(records, alpha))
            }
            Distribution::ZipfYcsb { alpha } => Some(Zipf::new(YCSB_ITEMS, alpha)),
            _ => None,
        };
        let ranges = match &distribution {
            Distribution::Prefix(parameters) => prefix_ranges(parameters),
            _ => Vec::new(),
        };
        Self { distribution, records, zipf, ranges }
    }

    /// The distribution.
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// Records that it is over.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next rank, below the number of records.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        match (&self.distribution, &self.zipf) {
            (Distribution::ZipfYcsb { .. }, Some(zipf)) => fnv1a(zipf.draw(random)) % self.records,
            (_, Some(zipf)) => zipf.draw(random),
            (Distribution::Hotspot { share, from }, _) => {
                let (first, hot) = self.hot_set(*share, *from);
                if hot == self.records || random.unit() < HOTSPOT_OPERATIONS {
                    return first + random.below(hot);
                }
                let cold = random.below(self.records - hot);
                if cold < first { cold } else { cold + hot }
            }
            (Distribution::Prefix(parameters), _) => self.draw_prefix(parameters, random),
            _ => random.below(self.records),
        }
    }

    /// First rank and size of a hot set.
    fn hot_set(&self, share: f64, from: f64) -> (u64, u64) {
        let hot = ((self.records as f64 * share).round() as u64).clamp(1, self.records);
        (((self.records as f64 * from) as u64).min(self.records - hot), hot)
    }

    fn range_size(&self, parameters: &PrefixParameters) -> u64 {
        (self.records / parameters.ranges).max(1)
    }

    fn draw_prefix(&self, parameters: &PrefixParameters, random: &mut Random) -> u64 {
        let last = self.ranges.last().map_or(1, |(end, _)| *end);
        let at = random.below(last);
        let index = self.ranges.partition_point(|(end, _)| *end <= at);
        let range = self.ranges.get(index).map_or(0, |(_, range)| *range);
        let size = self.range_size(parameters);
        let [a, b] = parameters.key;
        let seed = (random.unit() / a).powf(1.0 / b) as u64;
        // db_bench seeds a generator with it; a hash scatters the popular keys of a range alike.
        ((range * size) + mix(seed) % size).min(self.records - 1)
    }

    /// The share of draws that the `top` most popular records take, as exactly as it can be known.
    pub fn mass(&self, top: u64) -> f64 {
        if top == 0 || top >= self.records {
            return f64::from(u8::from(top > 0));
        }
        let records = self.records as f64;
        match &self.distribution {
            Distribution::Uniform => top as f64 / records,
            Distribution::Zipf { alpha } | Distribution::Latest { alpha } => {
                power_sum(top, *alpha) / power_sum(self.records, *alpha)
            }
            Distribution::Hotspot { share, from } => {
                let hot = self.hot_set(*share, *from).1;
                let inside = if hot == self.records { 1.0 } else { HOTSPOT_OPERATIONS };
                let cold = (self.records - hot).max(1) as f64;
                let beyond = top.saturating_sub(hot) as f64;
                inside * (top.min(hot) as f64 / hot as f64) + (1.0 - inside) * beyond / cold
            }
            Distribution::ZipfYcsb { alpha } => top_of(self.ycsb_weights(*alpha), top),
            Distribution::Prefix(parameters) => top_of(self.prefix_weights(parameters), top),
        }
    }

    /// Weight of each record: the first ranks where they are hashed to, the endless rest evenly.
    fn ycsb_weights(&self, alpha: f64) -> Vec<f64> {
        let exact = (self.records * 4).min(YCSB_ITEMS);
        let whole = power_sum(YCSB_ITEMS, alpha);
        let mut weights = vec![0.0; self.records as usize];
        for rank in 0..exact {
            let weight = ((rank + 1) as f64).powf(-alpha) / whole;
            weights[(fnv1a(rank) % self.records) as usize] += weight;
        }
        let rest = (1.0 - power_sum(exact, alpha) / whole) / self.records as f64;
        weights.iter_mut().for_each(|weight| *weight += rest);
        weights
    }

    fn prefix_weights(&self, parameters: &PrefixParameters) -> Vec<f64> {
        let size = self.range_size(parameters);
        let [a, b] = parameters.key;
        // Seeds 0..last; the share up to x is a x^b.
        let last = (1.0 / a).powf(1.0 / b);
        let mut inside = vec![0.0; size as usize];
        let share = |x: f64| (a * x.powf(b)).min(1.0);
        let mut before = 0.0;
        for seed in 0..last.ceil() as u64 {
            let up_to = share((seed + 1) as f64);
            inside[(mix(seed) % size) as usize] += up_to - before;
            before = up_to;
        }
        let mut weights = vec![0.0; self.records as usize];
        let (mut begin, whole) = (0, self.ranges.last().map_or(1, |(end, _)| *end) as f64);
        for (end, range) in &self.ranges {
            let weight = (end - begin) as f64 / whole;
            begin = *end;
            for (offset, share) in inside.iter().enumerate() {
                let at = (range * size + offset as u64).min(self.records - 1);
                weights[at as usize] += weight * share;
            }
        }
        weights
    }
}

fn top_of(mut weights: Vec<f64>, top: u64) -> f64 {
    weights.sort_unstable_by(|a, b| b.total_cmp(a));
    weights.iter().take(top as usize).sum()
}

/// Ranges by their share, as db_bench's `InitiateExpDistribution` makes them, in a fixed shuffled
/// order.
fn prefix_ranges(parameters: &PrefixParameters) -> Vec<(u64, u64)> {
    let [a, b, c, d] = parameters.range;
    let weight = |prefix: u64| {
        let x = prefix as f64;
        let weight = a * (b * x).exp() + c * (d * x).exp();
        if weight < 1e-16 { 0.0 } else { weight }
    };
    let numbers = || (1..=parameters.ranges).rev();
    let amplify =
        numbers().map(weight).find(|weight| *weight > 0.0).map_or(1.0, |w| (1.0 / w).floor() + 1.0);
    let mut order: Vec<u64> = (0..parameters.ranges).collect();
    let mut random = Random::new(parameters.ranges);
    for index in (1..order.len()).rev() {
        order.swap(index, random.below(index as u64 + 1) as usize);
    }
    let mut end = 0;
    let mut ranges = Vec::new();
    for (prefix, place) in numbers().zip(order) {
        end += (amplify * weight(prefix)).floor() as u64;
        ranges.push((end, place));
    }
    ranges
}

/// FNV-1a over the eight bytes of a number, low byte first: YCSB's `Utils.hash`.
fn fnv1a(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(1_099_511_628_211)
    })
}

/// 1^-alpha + 2^-alpha + ... + n^-alpha: term by term at first, then by Euler and Maclaurin.
pub fn power_sum(n: u64, alpha: f64) -> f64 {
    const EXACT: u64 = 100_000;
    let exact: f64 = (1..=n.min(EXACT)).rev().map(|k| (k as f64).powf(-alpha)).sum();
    if n <= EXACT {
        return exact;
    }
    let (from, to) = (EXACT as f64, n as f64);
    let integral = if (alpha - 1.0).abs() < 1e-12 {
        (to / from).ln()
    } else {
        (to.powf(1.0 - alpha) - from.powf(1.0 - alpha)) / (1.0 - alpha)
    };
    let ends = (to.powf(-alpha) - from.powf(-alpha)) / 2.0;
    let slopes = -alpha * (to.powf(-alpha - 1.0) - from.powf(-alpha - 1.0)) / 12.0;
    exact + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws and counts; compares the share of the `top` ranks with `mass` within 5 deviations.
    fn compare(distribution: Distribution, records: u64, tops: &[u64]) {
        let chooser = Chooser::new(distribution, records);
        let mut random = Random::new(11);
        let draws = 400_000;
        let mut counts = vec![0u64; records as usize];
        for _ in 0..draws {
            counts[chooser.draw(&mut random) as usize] += 1;
        }
        for top in tops {
            let expected = chooser.mass(*top);
            let found = counts[..*top as usize].iter().sum::<u64>() as f64 / draws as f64;
            let deviation = (expected * (1.0 - expected) / draws as f64).sqrt();
            assert!(
                (found - expected).abs() <= 5.0 * deviation + 1e-9,
                "{distribution} top {top}: {found} {expected}"
            );
        }
    }

    #[test]
    fn ranks_are_drawn_as_often_as_their_distribution_says() {
        for alpha in [0.5, 0.735, 0.8, 0.99, 1.0, 1.23, 1.97, 2.11] {
            compare(Distribution::Zipf { alpha }, 10_000, &[1, 2, 3, 10, 100, 2_400, 10_000]);
        }
        compare(Distribution::Uniform, 1_000, &[1, 240, 1_000]);
        let hotspot = Distribution::Hotspot { share: 0.05, from: 0.0 };
        compare(hotspot, 10_000, &[1, 250, 500, 2_400, 10_000]);
    }

    /// Chi-square of the first 50 ranks of a Zipf distribution and the rest: the 99.99 % quantile
    /// for 50 degrees of freedom is 94.
    #[test]
    fn zipf_is_exact_rank_by_rank() {
        for alpha in [0.8, 0.99, 1.49] {
            let chooser = Chooser::new(Distribution::Zipf { alpha }, 1_000_000);
            let mut random = Random::new(3);
            let (mut cells, draws) = ([0f64; 51], 500_000);
            for _ in 0..draws {
                cells[chooser.draw(&mut random).min(50) as usize] += 1.0;
            }
            let mut chi = 0.0;
            for (rank, found) in cells.iter().enumerate() {
                let (low, high) =
                    (rank as u64, if rank == 50 { 1_000_000 } else { rank as u64 + 1 });
                let expected = (chooser.mass(high) - chooser.mass(low)) * draws as f64;
                chi += (found - expected).powi(2) / expected;
            }
            assert!(chi < 94.0, "{alpha}: {chi}");
        }
    }

    #[test]
    fn a_hot_set_can_lie_anywhere_and_takes_95_percent() {
        let chooser = Chooser::new(Distribution::Hotspot { share: 0.03, from: 0.5 }, 10_000);
        let mut random = Random::new(5);
        let draws = 100_000;
        let inside = (0..draws)
            .filter(|_| (5_000..5_300).contains(&chooser.draw(&mut random)))
            .count() as f64;
        assert!((inside / draws as f64 - 0.95).abs() < 0.005, "{inside}");
    }

    /// Why a hash modulo the records is a trap: it leaves more than a third of the records out.
    #[test]
    fn ycsb_own_generator_reaches_only_part_of_the_records_with_its_head() {
        let chooser = Chooser::new(Distribution::ZipfYcsb { alpha: 0.99 }, 10_000);
        let exact = Chooser::new(Distribution::Zipf { alpha: 0.99 }, 10_000);
        assert!((chooser.mass(10_000) - 1.0).abs() < 1e-9);
        // The tail of 10^10 items is spread over all records, so the head is lighter.
        assert!(chooser.mass(2_400) < exact.mass(2_400));
        let mut random = Random::new(5);
        let first = fnv1a(0) % 10_000;
        let draws = 200_000;
        let found =
            (0..draws).filter(|_| chooser.draw(&mut random) == first).count() as f64 / draws as f64;
        let expected = 1.0 / power_sum(YCSB_ITEMS, 0.99);
        assert!((found - expected).abs() < 0.2 * expected, "{found} {expected}");
    }

    #[test]
    fn prefix_ranges_differ_in_popularity_as_published() {
        let parameters = crate::workloads::meta::PREFIX_DIST;
        let chooser = Chooser::new(Distribution::Prefix(parameters), 30_000);
        let mut random = Random::new(5);
        let mut counts = vec![0u64; 30];
        let draws = 300_000;
        for _ in 0..draws {
            counts[(chooser.draw(&mut random) / 1_000) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // Two terms: 14.18 e^(-2.917 x) + 0.0164 e^(-0.08082 x) for x = 1..30.
        let weight = |x: f64| 14.18 * (-2.917 * x).exp() + 0.0164 * (-0.08082 * x).exp();
        let whole: f64 = (1..=30).map(|x| weight(f64::from(x))).sum();
        for (index, found) in counts.iter().take(5).enumerate() {
            let expected = weight(index as f64 + 1.0) / whole;
            let found = *found as f64 / draws as f64;
            assert!(
                (found - expected).abs() < 0.05 * expected + 0.002,
                "{index} {found} {expected}"
            );
        }
        let half = chooser.mass(3_000);
        assert!((0.5..1.0).contains(&half), "{half}");
    }

    #[test]
    fn sums_of_powers_are_right_beyond_the_exact_part() {
        for alpha in [0.8, 0.99, 1.0, 2.0] {
            let exact: f64 = (1..=2_000_000u64).rev().map(|k| (k as f64).powf(-alpha)).sum();
            assert!((power_sum(2_000_000, alpha) / exact - 1.0).abs() < 1e-10, "{alpha}");
        }
    }

    #[test]
    fn distributions_read_back_and_others_are_refused() {
        for text in ["uniform", "zipf-0.8", "zipf-ycsb", "hotspot-5", "hotspot-0.5", "latest"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        for wrong in ["zipf", "zipf-x", "hotspot-0", "hotspot-101", "gauss"] {
            assert!(wrong.parse::<Distribution>().unwrap_err().to_string().contains("there are"));
        }
    }
}
