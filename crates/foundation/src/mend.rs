//! Turning a single flipped bit back.
//!
//! A CRC tells more than that bytes are not what was written: each bit of a body that is short
//! enough changes it in a way of its own. So where one bit was flipped, the difference between the
//! checksum that is stored and the one that is computed says which.
//!
//! What that is worth: CRC-32C differs in at least six bits between any two bodies of up to 655
//! bytes (a sector, with its place), and in at least four between longer ones. So up to four
//! flipped bits of a sector, and two of anything longer, are never taken for another single one.
//! Other damage (a sector of zeros, half a write) passes for a flipped bit once in 2^32 for each
//! bit of the body, which is what [`MEND_BYTES_MAX`] bounds.
//!
//! What is mended is for finding out *what* was damaged, and for metadata without which nothing
//! else can be read. Callers report it all the same.
//!
//! Pure functions; any thread.

use crate::checksum::{Place, checksum};

/// Longer bodies are not mended.
pub const MEND_BYTES_MAX: usize = 16 << 10;

/// The polynomial of CRC-32C, its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// What a byte of input does to the checksum.
const STEPS: [u32; 256] = {
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        steps[byte] = crc;
        byte += 1;
    }
    steps
};

/// Makes `body` what it was when its checksum at `place` was `stored`, where one bit of the two is
/// all that changed since; says whether that is so. Otherwise `body` stays as it is.
pub fn mend(place: &Place, body: &mut [u8], stored: u32) -> bool {
    let difference = checksum(place, body) ^ stored;
    if difference.count_ones() <= 1 {
        // The body is whole, and at most a bit of the checksum is not.
        return true;
    }
    let Some((at, mask)) = flipped(body.len(), difference) else { return false };
    body[at] ^= mask;
    if checksum(place, body) == stored {
        return true;
    }
    body[at] ^= mask;
    false
}

/// Which bit of a body of `len` bytes makes such a difference: its byte, and a mask.
fn flipped(len: usize, difference: u32) -> Option<(usize, u8)> {
    if len > MEND_BYTES_MAX {
        return None;
    }
    // What each bit of a byte does, first of the last byte, then of those before it.
    let mut bits: [u32; 8] = std::array::from_fn(|bit| STEPS[1 << bit]);
    for at in (0..len).rev() {
        if let Some(bit) = bits.iter().position(|effect| *effect == difference) {
            return Some((at, 1 << bit));
        }
        for effect in &mut bits {
            *effect = STEPS[(*effect & 0xff) as usize] ^ (*effect >> 8);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{DatabaseId, FileNumber};
    use crate::random::Random;

    const PLACE: Place = Place { database: DatabaseId([7; 16]), file: FileNumber(3), offset: 4096 };

    fn body(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Random::new(len as u64).fill(&mut bytes);
        bytes
    }

    #[test]
    fn each_single_bit_of_body_and_checksum_is_found_and_turned_back() {
        for len in [1, 2, 20, 508] {
            let whole = body(len);
            let stored = checksum(&PLACE, &whole);
            for bit in 0..len * 8 {
                let mut found = whole.clone();
                found[bit / 8] ^= 1 << (bit % 8);
                assert!(mend(&PLACE, &mut found, stored), "bit {bit} of {len} bytes");
                assert_eq!(found, whole, "bit {bit} of {len} bytes");
            }
            for bit in 0..32 {
                let mut found = whole.clone();
                assert!(mend(&PLACE, &mut found, stored ^ (1 << bit)));
                assert_eq!(found, whole);
            }
        }
        let whole = body(MEND_BYTES_MAX);
        let stored = checksum(&PLACE, &whole);
        for at in [0, 1, 5000, MEND_BYTES_MAX - 1] {
            let mut found = whole.clone();
            found[at] ^= 0x10;
            assert!(mend(&PLACE, &mut found, stored) && found == whole, "byte {at}");
        }
    }

    /// Of a sector with its place any two differ in six bits: no three flipped ones are another's.
    #[test]
    fn several_flipped_bits_are_never_taken_for_one() {
        let whole = body(504);
        let stored = checksum(&PLACE, &whole);
        let mut random = Random::new(11);
        for round in 0..20_000 {
            let mut found = whole.clone();
            let mut bits = std::collections::BTreeSet::new();
            while bits.len() < 2 + round % 3 {
                bits.insert(random.below(504 * 8) as usize);
            }
            bits.iter().for_each(|bit| found[bit / 8] ^= 1 << (bit % 8));
            let damaged = found.clone();
            assert!(!mend(&PLACE, &mut found, stored), "{bits:?}");
            assert_eq!(found, damaged, "what is not mended stays as it is");
        }
    }

    #[test]
    fn what_belongs_elsewhere_and_what_is_too_long_is_not_mended() {
        let whole = body(508);
        let elsewhere = checksum(&PLACE.at(8192), &whole);
        assert!(!mend(&PLACE, &mut whole.clone(), elsewhere));
        let mut long = body(MEND_BYTES_MAX + 1);
        let stored = checksum(&PLACE, &long);
        long[9] ^= 4;
        assert!(!mend(&PLACE, &mut long, stored));
        assert!(!mend(&PLACE, &mut [0; 508], stored));
        assert!(!mend(&PLACE, &mut [], stored));
    }
}
