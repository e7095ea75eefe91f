//! How bytes are stored, the block of a table or the value of a record: plain, LZ4 or Zstandard.
//!
//! What does not shrink by an eighth is stored plain: reading it back is then a checksum and
//! nothing else. Any thread; Zstandard's working memory for reading is kept per thread.

use std::cell::RefCell;
use std::fmt;

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

/// Stored as it is. Kinds are stored, in a byte: 0 plain, 1 LZ4, 2 Zstandard.
pub const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

type Unzstd = zstd::bulk::Decompressor<'static>;

thread_local! {
    static UNZSTD: RefCell<Option<Unzstd>> = const { RefCell::new(None) };
}

/// Most working memory that is kept from call to call.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Compresses for one writer, reusing its working memory.
pub struct Compressor {
    compression: Compression,
    zstd: Option<zstd::bulk::Compressor<'static>>,
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
            Compression::Zstd { level } => zstd::bulk::Compressor::new(level).ok(),
            _ => None,
        };
        Self { compression, zstd, out: Vec::new() }
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
                self.reserve(zstd::zstd_safe::compress_bound(raw.len()));
                let zstd = self.zstd.as_mut();
                let len = zstd.and_then(|z| z.compress_to_buffer(raw, &mut self.out[..]).ok());
                (ZSTD, len)
            }
        };
        match len {
            Some(len) if len + raw.len() / 8 <= raw.len() => (kind, &self.out[..len]),
            _ => (PLAIN, raw),
        }
    }

    fn reserve(&mut self, len: usize) {
        if self.out.len() < len || self.out.len() > len.max(KEPT_BYTES_MAX) {
            self.out = vec![0; len];
        }
    }
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
        ZSTD => {
            let said = zstd::zstd_safe::get_frame_content_size(stored);
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
    if !matches!(kind, LZ4 | ZSTD) {
        return Err("its compression is unknown");
    }
    if !can_become(kind, stored, raw_len) {
        return Err("it cannot have the length that it says");
    }
    let mut raw = vec![0; raw_len];
    let len = match kind {
        LZ4 => lz4_flex::block::decompress_into(stored, &mut raw).ok(),
        ZSTD => UNZSTD.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = Unzstd::new().ok();
            }
            slot.as_mut()?.decompress_to_buffer(stored, &mut raw[..]).ok()
        }),
        _ => None,
    };
    if len == Some(raw_len) { Ok(raw) } else { Err("it does not decompress") }
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
}
