//! What a writer holds back until its table has a dictionary, or none: the first entries.
//!
//! They are held as entries, not as blocks. Once it is decided, they go through the writer as if
//! they came only now, so nothing else of the writer knows of dictionaries.
//!
//! Used by one thread, the writer's.

use super::Trial;
use super::training::{LEAST_BYTES_PER_BYTE, SAMPLE_BYTES_MAX, Samples, own_bytes};
use crate::builder::BlockBuilder;
use crate::filter::key_hash;
use crate::format::{BLOCK_TRAILER_BYTES, place_block};
use crate::writer::TableOptions;
use thermocline_foundation::compression::{Compression, Compressor};

/// An entry: key, trailer word, value.
pub(crate) type HeldEntry<'a> = (&'a [u8], u64, &'a [u8]);

/// Lengths of key and value, and the trailer word.
#[derive(Clone, Copy, Debug)]
struct Held {
    key_len: usize,
    value_len: usize,
    word: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gathering {
    level: i32,
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    entries: Vec<Held>,
    key_bytes: usize,
    bytes_max: usize,
    /// Of the table before this one.
    before: Option<Samples>,
    /// The whole table, as far as the caller knows.
    expected_bytes: u64,
}

/// What an entry takes at most beside its key and value, and one of index and filter beside its
/// key.
const ENTRY_BYTES_MAX: usize = 32;
const INDEX_ENTRY_BYTES_MAX: usize = 48;

/// Every other block is left out of the samples, and tells what the dictionary is worth: it says
/// too much of what it was made of, even of noise.
fn is_tested(number: u64) -> bool {
    number.is_multiple_of(2)
}

/// A dictionary that pays.
#[derive(Debug)]
pub(crate) struct Decided {
    pub bytes: Vec<u8>,
    pub compressor: Compressor,
    pub trial: Trial,
}

impl Gathering {
    /// For a table of these options; none where it can have no dictionary.
    pub fn new(options: &TableOptions) -> Option<Self> {
        let Compression::Zstd { level } = options.compression else { return None };
        let bytes_max = own_bytes(options.dictionary_bytes());
        (bytes_max > 0).then(|| Self {
            level,
            bytes: Vec::new(),
            entries: Vec::new(),
            key_bytes: 0,
            bytes_max,
            before: None,
            expected_bytes: 0,
        })
    }

    /// Where samples for the table after this one are gathered.
    pub fn samples(&self) -> Samples {
        Samples::new(self.bytes_max)
    }

    /// The table follows one with these samples.
    pub fn follows(&mut self, before: Samples) {
        self.before = Some(before);
    }

    /// The table will have about so many bytes. It is decided by half of them at the latest, so
    /// that what is held back closes no table early.
    pub fn expects(&mut self, bytes: u64) {
        self.expected_bytes = bytes;
        self.bytes_max = self.bytes_max.min(usize::try_from(bytes / 2).unwrap_or(usize::MAX));
    }

    /// No entry follows: the table has what is held.
    pub fn is_whole(&mut self) {
        self.expected_bytes = 0;
    }

    /// There is room for the entry; one that is too long for a sample ends it.
    pub fn has_room(&self, key: &[u8], value: &[u8]) -> bool {
        self.bytes.len() < self.bytes_max && key.len() + value.len() <= SAMPLE_BYTES_MAX
    }

    /// Holds the entry.
    pub fn hold(&mut self, (key, word, value): HeldEntry<'_>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.key_bytes += key.len();
        self.entries.push(Held { key_len: key.len(), value_len: value.len(), word });
    }

    /// Bytes of keys and values.
    pub fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that what is held comes to in the file at most: each entry with an entry of the index
    /// and its bits of the filter, and each block with the padding before it.
    pub fn file_bytes_max(&self) -> usize {
        let data = self.bytes.len() + self.entries.len() * ENTRY_BYTES_MAX;
        let index = self.key_bytes + self.entries.len() * INDEX_ENTRY_BYTES_MAX;
        2 * (data + index)
    }

    /// The last entry's key and word.
    pub fn last(&self) -> Option<(&[u8], u64)> {
        let Held { key_len, value_len, word } = *self.entries.last()?;
        let at = self.bytes.len() - value_len - key_len;
        Some((&self.bytes[at..at + key_len], word))
    }

    /// What is held, in order.
    pub fn entries(&self) -> impl Iterator<Item = HeldEntry<'_>> {
        let mut rest = &self.bytes[..];
        self.entries.iter().map(move |&Held { key_len, value_len, word }| {
            let (key, behind) = rest.split_at(key_len);
            let (value, behind) = behind.split_at(value_len);
            rest = behind;
            (key, word, value)
        })
    }

    /// Makes a dictionary, and says whether it pays.
    pub fn decide(&mut self, options: &TableOptions) -> Option<Decided> {
        let dictionary_bytes = options.dictionary_bytes() as usize;
        if self.bytes.len() < LEAST_BYTES_PER_BYTE * dictionary_bytes {
            return None;
        }
        let mut samples = self.before.take().unwrap_or_else(|| Samples::new(0));
        let (mut blocks, mut tested) = (0, 0);
        self.each_block(options, &mut |block| {
            blocks += 1;
            if is_tested(blocks) {
                tested += 1;
            } else {
                samples.push(block);
            }
        });
        let bytes = options.training.train(&samples, dictionary_bytes)?;
        drop(samples);
        let mut compressor = Compressor::with_dictionary(self.level, &bytes)?;
        let stored_bytes = |compressor: &mut Compressor| {
            let (mut position, mut number) = (0, 0);
            self.each_block(options, &mut |block| {
                number += 1;
                if !is_tested(number) {
                    return;
                }
                let len = (compressor.compress(block).1.len() + BLOCK_TRAILER_BYTES) as u64;
                position = place_block(position, len, options.align_pages) + len;
            });
            position
        };
        let without_bytes = stored_bytes(&mut Compressor::new(options.compression));
        let trial = Trial {
            without_bytes,
            with_bytes: stored_bytes(&mut compressor),
            copies_bytes: 2 * (bytes.len() + BLOCK_TRAILER_BYTES) as u64,
            expected_bytes: self.expected_bytes.max(without_bytes * blocks / tested.max(1)),
        };
        trial.pays().then_some(Decided { bytes, compressor, trial })
    }

    /// The raw blocks that the entries come to.
    fn each_block(&self, options: &TableOptions, each: &mut dyn FnMut(&[u8])) {
        let mut block = BlockBuilder::new(options.restart_interval, true);
        for (key, word, value) in self.entries() {
            if block.raw_bytes() + BlockBuilder::entry_bytes_max(key, value) > options.block_room()
                && !block.is_empty()
            {
                each(block.finish());
                block.clear();
            }
            block.add(key, word, value, key_hash(key));
        }
        if !block.is_empty() {
            each(block.finish());
        }
    }
}
