//! Values that say how they are stored, for slots and for memory alike: compressed, each alone, so
//! that one can be read without another.
//!
//! ```text
//! packed   kind 1 (0 plain, 1 LZ4, 2 Zstandard) | not plain: bytes of the value 4 | the value
//! ```
//! Long values stay plain: each is read and written whole, with its other form beside it. So
//! working memory, which is kept per thread, is bounded too.
//!
//! Pure functions; any thread.

use crate::format::Broken;
use bytes::{Buf, BufMut, Bytes};
use std::cell::RefCell;
use thermocline_foundation::compression::{Compression, Compressor, PLAIN, decompress};

/// Bytes before a value that is compressed.
const HEAD_BYTES: usize = 5;
/// Values below this gain nothing.
const VALUE_BYTES_MIN: usize = 64;
/// Longer ones are not compressed.
const VALUE_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static COMPRESSOR: RefCell<Option<(Compression, Compressor)>> = const { RefCell::new(None) };
}

/// The value, packed; none where compression does not pay.
pub fn pack(value: &[u8], compression: Compression) -> Option<Bytes> {
    if compression == Compression::None
        || !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value.len())
    {
        return None;
    }
    COMPRESSOR.with_borrow_mut(|kept| {
        let own = kept.take().filter(|(of, _)| *of == compression);
        let (_, compressor) =
            kept.insert(own.unwrap_or_else(|| (compression, Compressor::new(compression))));
        let (kind, stored) = compressor.compress(value);
        if kind == PLAIN {
            return None;
        }
        let mut packed = Vec::with_capacity(HEAD_BYTES + stored.len());
        packed.put_u8(kind);
        packed.put_u32_le(value.len() as u32);
        packed.extend_from_slice(stored);
        Some(Bytes::from(packed))
    })
}

/// The value as it is, in the form of packed ones.
pub fn pack_plain(value: &[u8]) -> Bytes {
    let mut packed = Vec::with_capacity(1 + value.len());
    packed.put_u8(PLAIN);
    packed.extend_from_slice(value);
    Bytes::from(packed)
}

/// The packed value is as it is.
pub fn is_plain(packed: &[u8]) -> bool {
    packed.first() == Some(&PLAIN)
}

/// The value behind a packed one, in memory that is not much larger; one that is stored as it is
/// shares it. Lengths are checked before memory is taken for them.
///
/// # Errors
/// What is wrong with it.
pub fn unpack(mut packed: Bytes) -> Result<Bytes, Broken> {
    if is_plain(&packed) {
        packed.advance(1);
        return Ok(packed);
    }
    match packed.first_chunk::<HEAD_BYTES>() {
        Some([kind, len @ ..]) => {
            let len = u32::from_le_bytes(*len) as usize;
            if len > VALUE_BYTES_MAX {
                return Err("its packed value is longer than any can be");
            }
            decompress(*kind, &packed[HEAD_BYTES..], len).map(Bytes::from)
        }
        None => Err("its packed value ends before it begins"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_small_and_random_ones_are_not_packed() {
        let mut random = thermocline_foundation::random::Random::new(7);
        let mut noise = vec![0; 1000];
        random.fill(&mut noise);
        for compression in [Compression::Lz4, Compression::Zstd { level: 3 }] {
            for len in [128, 1000, 100_000, VALUE_BYTES_MAX] {
                let value: Vec<u8> = noise[..50].iter().copied().cycle().take(len).collect();
                let packed = pack(&value, compression).unwrap();
                assert!(packed.len() < len, "{} of {len}", packed.len());
                assert_eq!(unpack(packed.clone()).unwrap(), value);
                assert_eq!(unpack(pack_plain(&value)).unwrap(), value);
                for end in 0..packed.len().min(100) {
                    assert!(unpack(packed.slice(..end)).is_err());
                }
            }
            assert_eq!(pack(&[7; 63], compression), None);
            assert_eq!(pack(&vec![7; VALUE_BYTES_MAX + 1], compression), None);
            assert_eq!(pack(&noise, compression), None);
        }
        assert_eq!(pack(&[7; 1000], Compression::None), None);
        assert_eq!(unpack(Bytes::from_static(&[0])).unwrap(), "");
    }

    #[test]
    fn what_is_no_packed_value_is_refused_before_memory_is_taken_for_it() {
        let refused = |kind, len| {
            let mut packed = vec![kind];
            packed.put_u32_le(len);
            packed.extend_from_slice(&[0x55; 20]);
            unpack(Bytes::from(packed)).unwrap_err()
        };
        for kind in 1..=u8::MAX {
            assert!(refused(kind, (1 << 20) + 1).contains("longer than any"), "{kind}");
            let why = match kind {
                1 | 2 => "cannot have the length",
                // Values in slots have none.
                3 => "needs a dictionary",
                _ => "unknown",
            };
            assert!(refused(kind, 1 << 20).contains(why), "{kind}");
        }
    }
}
