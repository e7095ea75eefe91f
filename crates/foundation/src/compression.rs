//! How bytes are stored, the block of a table or the value of a record: plain, LZ4 or Zstandard.
//!
//! What does not shrink by an eighth is stored plain: reading it back is then a checksum and
//! nothing else. Zstandard may lean on a [`Dictionary`] of bytes that are like these: small blocks
//! then compress as well as large ones. Any thread; Zstandard's working memory for reading is kept
//! per thread.

use std::cell::RefCell;
use std::fmt;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, DDict, compress_bound, get_frame_content_size};

/// Which compression bytes are offered to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Stored as they are.
    None,
    /// LZ4 block format: cheap to read back, the choice where processor time counts.
    #[default]
    Lz4,
    /// Zstandard at `level` (1 to 19): smaller, for cold tables.
    Zstd {
        /// Effort, 1 to 19.
        level: i32,
    },
}

/// Stored as it is. Kinds are stored, in a byte: 0 plain, 1 LZ4, 2 Zstandard, 3 Zstandard with a
/// dictionary.
pub const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// Zstandard with a dictionary: [`Dictionary::decompress`] reads it.
pub const WITH_DICTIONARY: u8 = 3;

thread_local! {
    static UNZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Most working memory that is kept from call to call.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Compresses for one writer, reusing its working memory.
pub struct Compressor {
    compression: Compression,
    zstd: Option<CCtx<'static>>,
    /// What [`Compressor::compress`] says of bytes that Zstandard made smaller.
    zstd_kind: u8,
    out: Vec<u8>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").field("compression", &self.compression).finish_non_exhaustive()
    }
}

impl Compressor {
    /// Offers everything to `compression`.
    pub fn new(compression: Compression) -> Self {
        let zstd = match compression {
            Compression::Zstd { level } => zstd_at(level),
            _ => None,
        };
        Self { compression, zstd, zstd_kind: ZSTD, out: Vec::new() }
    }

    /// Offers everything to Zstandard at `level` with `dictionary`, which is copied; none where
    /// that is not a dictionary.
    pub fn with_dictionary(level: i32, dictionary: &[u8]) -> Option<Self> {
        let mut zstd = zstd_at(level)?;
        zstd.load_dictionary(dictionary).ok()?;
        // It is prepared by the first use, which fails where it is none.
        let mut out = vec![0; compress_bound(1)];
        zstd.compress2(&mut out[..], &[0]).ok()?;
        let compression = Compression::Zstd { level };
        Some(Self { compression, zstd: Some(zstd), zstd_kind: WITH_DICTIONARY, out })
    }

    /// The kind and the bytes to store for `raw`; `raw` itself where compression does not pay.
    pub fn compress<'a>(&'a mut self, raw: &'a [u8]) -> (u8, &'a [u8]) {
        let (kind, len) = match self.compression {
            Compression::None => return (PLAIN, raw),
            Compression::Lz4 => {
                self.reserve(lz4_flex::block::get_maximum_output_size(raw.len()));
                (LZ4, lz4_flex::block::compress_into(raw, &mut self.out).ok())
            }
            Compression::Zstd { .. } => {
                self.reserve(compress_bound(raw.len()));
                let zstd = self.zstd.as_mut();
                (self.zstd_kind, zstd.and_then(|z| z.compress2(&mut self.out[..], raw).ok()))
            }
        };
        match len {
            Some(len) if len + raw.len() / 8 <= raw.len() => (kind, &self.out[..len]),
            _ => (PLAIN, raw),
        }
    }

    /// Gives the working memory of something huge back.
    pub fn let_go(&mut self) {
        if self.out.len() > KEPT_BYTES_MAX {
            self.out = Vec::new();
        }
    }

    fn reserve(&mut self, len: usize) {
        if self.out.len() < len || self.out.len() > len.max(KEPT_BYTES_MAX) {
            self.out = vec![0; len];
        }
    }
}

/// Working memory of Zstandard, which says the length of all that it compresses.
fn zstd_at(level: i32) -> Option<CCtx<'static>> {
    let mut zstd = CCtx::try_create()?;
    zstd.set_parameter(CParameter::CompressionLevel(level)).ok()?;
    Some(zstd)
}

/// Whether `stored` can become `raw_len` bytes, as far as its ends tell: no memory is taken for a
/// length that cannot be.
fn can_become(kind: u8, stored: &[u8], raw_len: usize) -> bool {
    /// A byte of LZ4 stands for this many at most.
    const LZ4_RATIO_MAX: usize = 255;
    /// Zstandard takes at least so many bytes for a block, and a block has this many at most.
    const ZSTD_STORED_BYTES_MIN: usize = 4;
    const ZSTD_BLOCK_BYTES_MAX: usize = 128 << 10;
    match kind {
        LZ4 => raw_len / LZ4_RATIO_MAX <= stored.len(),
        // The frame says how long it is; the compressor always writes that.
        ZSTD | WITH_DICTIONARY => {
            let said = get_frame_content_size(stored);
            raw_len / ZSTD_BLOCK_BYTES_MAX <= stored.len() / ZSTD_STORED_BYTES_MIN
                && said.is_ok_and(|said| said == Some(raw_len as u64))
        }
        _ => false,
    }
}

/// The `raw_len` bytes behind `stored`, which is not plain; or why there are none. The caller has
/// a bound for `raw_len`; it is checked against `stored` before memory is taken for it.
///
/// # Errors
/// What is wrong with `stored`.
pub fn decompress(kind: u8, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, &'static str> {
    match kind {
        LZ4 => {
            unpack(kind, stored, raw_len, |raw| lz4_flex::block::decompress_into(stored, raw).ok())
        }
        ZSTD => unpack(kind, stored, raw_len, |raw| {
            with_unzstd(|zstd| zstd.decompress(raw, stored).ok())
        }),
        WITH_DICTIONARY => Err("it needs a dictionary, and there is none"),
        _ => Err("its compression is unknown"),
    }
}

fn with_unzstd<T>(work: impl FnOnce(&mut DCtx<'static>) -> Option<T>) -> Option<T> {
    UNZSTD.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = DCtx::try_create();
        }
        slot.as_mut().and_then(work)
    })
}

fn unpack(
    kind: u8,
    stored: &[u8],
    raw_len: usize,
    into: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Result<Vec<u8>, &'static str> {
    if !can_become(kind, stored, raw_len) {
        return Err("it cannot have the length that it says");
    }
    let mut raw = vec![0; raw_len];
    if into(&mut raw) == Some(raw_len) { Ok(raw) } else { Err("it does not decompress") }
}

/// A dictionary, prepared for reading what was compressed with it. Any thread.
pub struct Dictionary(DDict<'static>);

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes of memory)", self.memory_bytes())
    }
}

impl Dictionary {
    /// Prepares `bytes`, which are copied.
    ///
    /// # Errors
    /// They are not a dictionary.
    pub fn prepare(bytes: &[u8]) -> Result<Self, &'static str> {
        DDict::try_create(bytes).map(Self).ok_or("its dictionary is none that can be read")
    }

    /// The bytes behind `stored`, of [`WITH_DICTIONARY`]; as [`decompress`].
    ///
    /// # Errors
    /// What is wrong with `stored`; another dictionary is told by its number, where it has one.
    pub fn decompress(&self, stored: &[u8], raw_len: usize) -> Result<Vec<u8>, &'static str> {
        unpack(WITH_DICTIONARY, stored, raw_len, |raw| {
            with_unzstd(|zstd| zstd.decompress_using_ddict(raw, stored, &self.0).ok())
        })
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.0.sizeof()
    }
}

/// A dictionary of at most `bytes_max` for what is like `samples`, whose lengths are `sizes`: what
/// Zstandard's trainer makes of them, the same of the same samples. None where they are too few.
pub fn train(samples: &[u8], sizes: &[usize], bytes_max: usize) -> Option<Vec<u8>> {
    zstd::dict::from_continuous(samples, sizes, bytes_max).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_garbage_does_not_panic() {
        let raw = b"cold water sinks, warm water floats; ".repeat(50);
        for compression in [Compression::Lz4, Compression::Zstd { level: 3 }] {
            let mut compressor = Compressor::new(compression);
            let (kind, stored) = compressor.compress(&raw);
            assert!(kind != PLAIN && stored.len() < raw.len() / 2);
            let stored = stored.to_vec();
            assert_eq!(decompress(kind, &stored, raw.len()).unwrap(), raw);
            assert!(decompress(kind, &stored, raw.len() - 1).is_err());
            assert!(decompress(kind, &stored, raw.len() + 1).is_err());
            assert!(decompress(kind, &stored, usize::MAX).is_err());
            let beyond = decompress(kind, &stored, 100 << 20).unwrap_err();
            assert!(beyond.contains("cannot have the length"), "{beyond}");
            for at in 0..stored.len() {
                let mut bad = stored.clone();
                bad[at] ^= 0x55;
                drop(decompress(kind, &bad, raw.len()));
            }
            assert_eq!(compressor.compress(b"short").0, PLAIN);
        }
        let unknown = decompress(9, &raw, 100 << 20).unwrap_err();
        assert!(unknown.contains("unknown"), "refused before memory is taken: {unknown}");
    }

    /// Records that share their shape and little else.
    fn records(from: u32, to: u32) -> (Vec<u8>, Vec<usize>) {
        let record = |n: u32| {
            let hash = n.wrapping_mul(2_654_435_761);
            format!(
                "{{\"station\":\"lake/{n:05}\",\"depth_m\":{},\"degrees\":{}}}",
                hash % 97,
                hash % 31
            )
        };
        let records: Vec<_> = (from..to).map(record).collect();
        (records.concat().into_bytes(), records.iter().map(String::len).collect())
    }

    #[test]
    fn a_dictionary_makes_small_blocks_smaller_and_no_other_reads_them() {
        let (samples, sizes) = records(0, 2000);
        let bytes = train(&samples, &sizes, 2048).unwrap();
        assert!(bytes.len() <= 2048);
        assert_eq!(train(&samples, &sizes, 2048), Some(bytes.clone()), "not the same again");
        let dictionary = Dictionary::prepare(&bytes).unwrap();
        assert!(dictionary.memory_bytes() > bytes.len());
        let (raw, _) = records(5000, 5010);
        let without = Compressor::new(Compression::Zstd { level: 3 }).compress(&raw).1.len();
        let mut compressor = Compressor::with_dictionary(3, &bytes).unwrap();
        let (kind, stored) = compressor.compress(&raw);
        assert_eq!(kind, WITH_DICTIONARY);
        assert!(stored.len() < without * 9 / 10, "{} of {without}", stored.len());
        let stored = stored.to_vec();
        assert_eq!(dictionary.decompress(&stored, raw.len()).unwrap(), raw);
        assert!(dictionary.decompress(&stored, raw.len() + 1).is_err());
        assert!(decompress(kind, &stored, raw.len()).unwrap_err().contains("dictionary"));
        assert!(decompress(ZSTD, &stored, raw.len()).is_err(), "read without its dictionary");
        let (samples, sizes) = records(9000, 11_000);
        let other = train(&samples, &sizes, 2048).unwrap();
        let other = Dictionary::prepare(&other).unwrap();
        assert!(other.decompress(&stored, raw.len()).is_err(), "read with another dictionary");
        for at in 0..stored.len() {
            let mut bad = stored.clone();
            bad[at] ^= 0x55;
            drop(dictionary.decompress(&bad, raw.len()));
        }
        assert_eq!(train(&samples[..100], &[100], 2048), None, "of a single sample");
        assert!(Dictionary::prepare(&bytes[..40]).is_err(), "a dictionary that is cut");
        assert!(Compressor::with_dictionary(3, &bytes[..40]).is_none());
    }
}
