//! A way in for the tests of decoders (`tests/decoders.rs` and `fuzz/`): header pages and slots
//! with no slab around them. Not part of the documented interface. Any thread.

use crate::format::{self, SLOT_HEADER_BYTES, decode};
use crate::live::SlabShape;
use bytes::Bytes;
use thermocline_foundation::Place;
use thermocline_foundation::checksum::checksum;

/// The record at the start of `bytes`, as this version writes it; none where it is refused.
pub fn rewrite_slot(place: &Place, bytes: &[u8]) -> Option<Vec<u8>> {
    let slot = decode(place, &Bytes::copy_from_slice(bytes), bytes.len()).ok()?;
    drop((slot.shared_value(), slot.compact_value()));
    let record = slot.record();
    assert!(record.bytes() >= SLOT_HEADER_BYTES as u64 && record.bytes() <= bytes.len() as u64);
    let mut written = vec![0; record.bytes() as usize];
    record.encode(place, &mut written);
    Some(written)
}

/// Puts the checksum that belongs there on the slot at the start of `bytes`, where its lengths are
/// within them.
pub fn seal_slot(place: &Place, bytes: &mut [u8]) {
    let claimed = format::claimed_bytes(bytes).ok().and_then(|claimed| claimed.try_into().ok());
    if let Some(used) = claimed.and_then(|claimed: usize| bytes.get_mut(..claimed)) {
        let sum = checksum(place, &used[4..]);
        used[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The header page of a slab of this shape.
pub fn header(place: &Place, shape: SlabShape) -> Vec<u8> {
    format::encode_header(place, shape).to_vec()
}

/// The shape that a header page tells; none where it is refused.
pub fn read_header(place: &Place, page: &[u8]) -> Option<SlabShape> {
    format::decode_header(place, page).ok()
}

/// Puts the checksum that belongs there on a header page.
pub fn seal_header(place: &Place, page: &mut [u8]) {
    format::seal_header(place, page);
}
