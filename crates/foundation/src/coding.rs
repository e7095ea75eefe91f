//! Little-endian and variable-length integers, and a reader that turns short input into an error.

use thiserror::Error;

/// The input ended early or held a number that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Fewer bytes than the item needs.
    #[error("the bytes end in the middle of an item")]
    Truncated,
    /// A variable-length integer of more than ten bytes, or beyond the range of its type.
    #[error("an integer is out of range")]
    Overflow,
}

/// Most bytes that a 64-bit variable-length integer takes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` in base 128, seven bits a byte, lowest first, the high bit marking that more
/// follow.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] writes for `value`.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends the length of `bytes` as a varint, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes items off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Decodes `bytes` from the start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes, little-endian.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A variable-length integer as [`put_varint`] writes it.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if index == VARINT_BYTES_MAX - 1 && bits > 1 {
                return Err(DecodeError::Overflow);
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < VARINT_BYTES_MAX {
            DecodeError::Truncated
        } else {
            DecodeError::Overflow
        })
    }

    /// A variable-length integer that must fit 32 bits.
    pub fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Overflow)
    }

    /// Bytes behind their length, as [`put_bytes`] writes them.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.varint()?).map_err(|_| DecodeError::Overflow)?;
        self.take(len)
    }
}

/// All bytes are zero. Looks at every byte, because that is done many at a time.
pub fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_their_edges() {
        let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        for value in edges {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            let mut decoder = Decoder::new(&out);
            assert_eq!(decoder.varint(), Ok(value));
            assert!(decoder.is_empty());
            assert_eq!(Decoder::new(&out[..out.len() - 1]).varint(), Err(DecodeError::Truncated));
        }
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), Err(DecodeError::Overflow));
    }

    #[test]
    fn bytes_longer_than_the_input_are_an_error() {
        let mut out = Vec::new();
        put_bytes(&mut out, b"thermocline");
        assert_eq!(Decoder::new(&out).bytes(), Ok(&b"thermocline"[..]));
        assert_eq!(Decoder::new(&out[..5]).bytes(), Err(DecodeError::Truncated));
    }
}
