//! How a dictionary comes about, and whether it is kept: data in, decision out.
//!
//! It is made of the first blocks of its table, every other one, and of blocks from all over the
//! table before it in the same rewrite: keys ascend, so the first blocks alone would say too little
//! of those that come last, and the table before alone says too little of this one.
//!
//! Pure functions of what they are given, with no entropy: the same calls write the same table.

use thermocline_foundation::compression::train;

/// Raw bytes that are looked at for each byte of a dictionary: half from the table, half from the
/// one before. About what Zstandard's manual asks for.
const BYTES_PER_BYTE: usize = 64;

/// With fewer raw bytes in a table, for each byte of its dictionary, the copies cost more than they
/// bring in; training is not tried.
pub(crate) const LEAST_BYTES_PER_BYTE: usize = 8;

/// A longer block is no sample: it has itself to lean on.
pub(crate) const SAMPLE_BYTES_MAX: usize = 64 << 10;

/// Of its table a dictionary must save one part in so many, its copies counted: less is not worth
/// the time that reading with it takes.
const SAVES_PART: u64 = 50;

/// How a dictionary is made of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Training {
    /// By Zstandard's trainer, which looks for what many samples share.
    #[default]
    Trained,
    /// Of short pieces at even distances (MyNVM, section 5): the simple way, to compare with.
    Sampled,
}

/// Bytes of a piece, as the paper has it.
const PIECE_BYTES: usize = 64;

impl Training {
    /// A dictionary of at most `bytes_max`; none where the samples are too few.
    pub(crate) fn train(self, samples: &Samples, bytes_max: usize) -> Option<Vec<u8>> {
        match self {
            Self::Trained => train(&samples.bytes, &samples.sizes, bytes_max),
            Self::Sampled => {
                let pieces = bytes_max / PIECE_BYTES;
                let distance = samples.bytes.len() / pieces.max(1);
                let starts = (0..pieces).map(|piece| piece * distance);
                let piece = |at: usize| &samples.bytes[at..at + PIECE_BYTES];
                (distance >= PIECE_BYTES).then(|| starts.map(piece).collect::<Vec<_>>().concat())
            }
        }
    }
}

/// Raw bytes of the table's own that a dictionary of so many is made of.
pub(crate) fn own_bytes(dictionary_bytes: u32) -> usize {
    dictionary_bytes as usize * BYTES_PER_BYTE / 2
}

/// Raw blocks from all over a table, as evenly as can be without knowing where it ends: of every
/// so many blocks one is kept, and whenever they are too much every other one goes.
#[derive(Clone, Debug)]
pub struct Samples {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
    bytes_max: usize,
    every: u64,
    offered: u64,
}

impl Samples {
    /// Of at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes: Vec::new(), sizes: Vec::new(), bytes_max, every: 1, offered: 0 }
    }

    /// A raw block of the table.
    pub(crate) fn offer(&mut self, block: &[u8]) {
        self.offered += 1;
        if !(self.offered - 1).is_multiple_of(self.every) || block.len() > SAMPLE_BYTES_MAX {
            return;
        }
        self.push(block);
        while self.bytes.len() > self.bytes_max && self.sizes.len() > 1 {
            self.thin();
        }
    }

    /// A raw block that is a sample whatever came before.
    pub(crate) fn push(&mut self, block: &[u8]) {
        self.bytes.extend_from_slice(block);
        self.sizes.push(block.len());
    }

    /// Keeps every other one.
    fn thin(&mut self) {
        self.every *= 2;
        let (mut from, mut to, mut kept) = (0, 0, 0);
        for at in 0..self.sizes.len() {
            let size = self.sizes[at];
            if at % 2 == 0 {
                self.bytes.copy_within(from..from + size, to);
                self.sizes[kept] = size;
                (to, kept) = (to + size, kept + 1);
            }
            from += size;
        }
        self.bytes.truncate(to);
        self.sizes.truncate(kept);
    }
}

/// What blocks of a table, none of them a sample, take with a dictionary and without, in bytes of
/// the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Without.
    pub without_bytes: u64,
    /// With it, its copies not counted.
    pub with_bytes: u64,
    /// Its copies.
    pub copies_bytes: u64,
    /// The whole table, as far as is known; at least as much as the blocks take without.
    pub expected_bytes: u64,
}

impl Trial {
    /// What it saves of `bytes` that the table would have without; less than nothing is nothing.
    pub fn saves_bytes(&self, bytes: u64) -> u64 {
        let of_blocks = self.without_bytes.saturating_sub(self.with_bytes);
        let saved =
            u128::from(of_blocks) * u128::from(bytes) / u128::from(self.without_bytes.max(1));
        (saved as u64).saturating_sub(self.copies_bytes)
    }

    /// What it saves in a table whose blocks take `with_bytes`.
    pub fn saved_bytes(&self, with_bytes: u64) -> u64 {
        let without = u128::from(with_bytes) * u128::from(self.without_bytes);
        self.saves_bytes((without / u128::from(self.with_bytes.max(1))) as u64)
    }

    /// The dictionary is kept.
    pub fn pays(&self) -> bool {
        let expected = self.expected_bytes.max(self.without_bytes);
        self.saves_bytes(expected) > expected / SAVES_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_is_kept_where_it_saves_a_fiftieth_of_its_table() {
        let trial = |with_bytes, expected_bytes| Trial {
            without_bytes: 200_000,
            with_bytes,
            copies_bytes: 32_000,
            expected_bytes,
        };
        for (with_bytes, expected_bytes, pays) in [
            (150_000, 0, true),           // 18 000 of 200 000
            (165_000, 0, false),          // 3 000 of 200 000
            (170_000, 20_000_000, true),  // 15 % of a large table
            (195_000, 20_000_000, true),  // 2.5 %, and the copies are little of it
            (196_000, 20_000_000, false), // 2 %, less the copies
            (210_000, 20_000_000, false), // it costs
            (150_000, u64::MAX, true),
        ] {
            let it = trial(with_bytes, expected_bytes);
            assert_eq!(it.pays(), pays, "{it:?}");
        }
        assert_eq!(trial(150_000, 0).saves_bytes(400_000), 68_000);
        assert_eq!(trial(210_000, 0).saves_bytes(400_000), 0);
    }

    #[test]
    fn samples_are_from_all_over_a_table_of_any_length() {
        for blocks in [1u32, 7, 100, 5000] {
            let mut samples = Samples::new(4000);
            for n in 0..blocks {
                samples.offer(&n.to_le_bytes().repeat(10));
            }
            samples.offer(&[7; SAMPLE_BYTES_MAX + 1]);
            assert_eq!(samples.sizes.iter().sum::<usize>(), samples.bytes.len());
            assert!(samples.bytes.len() <= 4000);
            assert!(blocks < 100 || samples.bytes.len() >= 2000);
            let numbers: Vec<u32> = samples
                .bytes
                .chunks(40)
                .map(|block| u32::from_le_bytes([block[0], block[1], block[2], block[3]]))
                .collect();
            let every = samples.every as u32;
            let expected: Vec<u32> = (0..blocks).step_by(every as usize).collect();
            assert_eq!(numbers, expected, "every {every}th of {blocks}");
        }
    }

    #[test]
    fn the_papers_samples_are_pieces_at_even_distances() {
        let mut samples = Samples::new(1 << 20);
        (0..200u8).for_each(|n| samples.push(&[n; PIECE_BYTES]));
        let dictionary = Training::Sampled.train(&samples, 10 * PIECE_BYTES + 3).unwrap();
        let numbers: Vec<u8> = dictionary.chunks(PIECE_BYTES).map(|piece| piece[0]).collect();
        assert_eq!(numbers, [0, 20, 40, 60, 80, 100, 120, 140, 160, 180]);
        assert_eq!(Training::Sampled.train(&samples, 1 << 20), None, "less than it would have");
        assert_eq!(Training::Trained.train(&Samples::new(100), 1 << 10), None);
    }
}
