//! Ranks of a Zipf distribution, exact for every exponent and cheap: the generator must not be what
//! a store is measured against.
//!
//! ```text
//!   rank     0 ................... HEAD ................................ n
//!   drawn by one look-up           rejection-inversion
//!            in an alias table     (two logarithms or exponentials a draw)
//!
//!   word of the table, and the random word it is compared with:
//!     column u14 | fraction u50      fraction < keep[column]: the column itself, else its alias
//! ```
//! The table (Walker 1977, Vose 1991) has a column for each popular rank and one that stands for
//! all others. With an exponent of 0.99 and a million records it answers seven draws of ten. Its
//! shares are rounded to 2^-64, and to what a double holds. The rest is Hoermann and Derflinger's
//! rejection-inversion (1996) over the ranks that the table leaves out.
//!
//! Threads: a prepared [`Zipf`] is read-only and shared.

use super::distribution::power_sum;
use thermocline_foundation::random::Random;

/// Bits of a column's number.
const COLUMN_BITS: u32 = 14;
const COLUMNS: usize = 1 << COLUMN_BITS;
const FRACTION_BITS: u32 = 64 - COLUMN_BITS;
const FRACTION_ONE: f64 = (1u64 << FRACTION_BITS) as f64;
const COLUMN_MASK: u64 = COLUMNS as u64 - 1;

/// Zipf over `0..n`: rank r in proportion to (r + 1)^-exponent.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// What a column keeps, in the high bits, and its alias in the low ones.
    table: Box<[u64]>,
    /// The column of the ranks that have none; beyond the table where all have one.
    rest: u64,
    tail: Tail,
}

impl Zipf {
    /// Over `n` ranks, 1 or more.
    pub fn new(n: u64, exponent: f64) -> Self {
        let head = n.min(COLUMNS as u64 - 1);
        let mut weights: Vec<f64> = (1..=head).map(|rank| (rank as f64).powf(-exponent)).collect();
        if head < n {
            weights.push(power_sum(n, exponent) - power_sum(head, exponent));
        }
        weights.resize(COLUMNS, 0.0);
        let rest = if head < n { head } else { COLUMNS as u64 };
        Self { table: alias_table(&weights), rest, tail: Tail::new(head + 1, n, exponent) }
    }

    /// The next rank, below `n`.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> u64 {
        let word = random.next_u64();
        let column = word & COLUMN_MASK;
        let entry = self.table[column as usize];
        let found =
            if word >> COLUMN_BITS < entry >> COLUMN_BITS { column } else { entry & COLUMN_MASK };
        if found == self.rest { self.tail.draw(random) } else { found }
    }
}

/// The columns for `weights`, of which there are [`COLUMNS`].
fn alias_table(weights: &[f64]) -> Box<[u64]> {
    let whole: f64 = weights.iter().rev().sum();
    let mut shares: Vec<f64> =
        weights.iter().map(|weight| weight / whole * COLUMNS as f64).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..COLUMNS).partition(|column| shares[*column] < 1.0);
    let mut table: Vec<u64> =
        (0..COLUMNS as u64).map(|column| u64::MAX << COLUMN_BITS | column).collect();
    while let (Some(low), Some(high)) = (small.pop(), large.pop()) {
        let kept = (shares[low] * FRACTION_ONE) as u64;
        table[low] = kept << COLUMN_BITS | high as u64;
        shares[high] -= 1.0 - shares[low];
        if shares[high] < 1.0 { small.push(high) } else { large.push(high) }
    }
    // What is left has a share of one but for rounding, and keeps its column whole.
    table.into_boxed_slice()
}

/// Zipf over the ranks `first..=last`, counted from 1, by rejection-inversion.
#[derive(Clone, Debug)]
struct Tail {
    exponent: f64,
    first: f64,
    last: f64,
    at_first: f64,
    at_last: f64,
    shift: f64,
}

/// (exp(x) - 1) / x, also near 0.
fn exp_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, also near 0.
fn ln_ratio(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

impl Tail {
    fn new(first: u64, last: u64, exponent: f64) -> Self {
        let (first, last) = (first as f64, last as f64);
        let mut tail = Self { exponent, first, last, at_first: 0.0, at_last: 0.0, shift: 0.0 };
        // The area of a rank is as wide as its density, so nothing below the first is drawn.
        tail.at_first = tail.integral(first + 0.5) - tail.density(first);
        tail.at_last = tail.integral(last + 0.5);
        tail.shift = 2.0 - tail.integral_inverse(tail.integral(2.5) - tail.density(2.0));
        tail
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_ratio((1.0 - self.exponent) * log) * log
    }

    fn integral_inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.exponent)).max(-1.0);
        (ln_ratio(t) * x).exp()
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.at_last + random.unit() * (self.at_first - self.at_last);
            let x = self.integral_inverse(u);
            let rank = (x + 0.5).floor().clamp(self.first, self.last);
            if rank - x <= self.shift || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of every rank, added up over the columns, is its exact one.
    #[test]
    fn the_table_holds_the_exact_share_of_every_rank() {
        for (n, exponent) in [(1, 0.99), (7, 0.5), (1_000_000, 0.99), (1_000_000, 2.11)] {
            let zipf = Zipf::new(n, exponent);
            let mut shares = vec![0.0; COLUMNS];
            for (column, entry) in zipf.table.iter().enumerate() {
                let kept = (entry >> COLUMN_BITS) as f64 / FRACTION_ONE;
                shares[column] += kept / COLUMNS as f64;
                shares[(entry & COLUMN_MASK) as usize] += (1.0 - kept) / COLUMNS as f64;
            }
            let whole = power_sum(n, exponent);
            for rank in 0..zipf.rest.min(n) {
                let expected = ((rank + 1) as f64).powf(-exponent) / whole;
                let found = shares[rank as usize];
                assert!((found - expected).abs() < 1e-12, "{n} {exponent} {rank}: {found}");
            }
            assert!(shares.iter().skip(n as usize).all(|share| *share < 1e-12));
        }
    }

    /// Chi-square over the border between table and rejection: the 99.99 % quantile for 63 degrees
    /// of freedom is 111.
    #[test]
    fn ranks_on_both_sides_of_the_table_s_end_are_as_likely_as_they_should_be() {
        for exponent in [0.5, 0.99, 1.23] {
            let (n, wide) = (COLUMNS as u64 * 4, COLUMNS as u64 / 16);
            let zipf = Zipf::new(n, exponent);
            let mut random = Random::new(9);
            let (mut cells, draws) = ([0f64; 64], 1_000_000);
            for _ in 0..draws {
                cells[(zipf.draw(&mut random) / wide) as usize] += 1.0;
            }
            let whole = power_sum(n, exponent);
            let sum = |cell: u64| power_sum(cell * wide, exponent) / whole;
            let chi: f64 = (0..64)
                .map(|cell| {
                    let expected = (sum(cell + 1) - sum(cell)) * f64::from(draws);
                    (cells[cell as usize] - expected).powi(2) / expected
                })
                .sum();
            assert!(chi < 111.0, "{exponent}: {chi}");
        }
    }
}
