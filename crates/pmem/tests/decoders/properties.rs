//! What must hold for any bytes of a region and of its parts. Each property returns whether they
//! were accepted.

use thermocline_pmem::decoders;

/// A whole region: no panic, and keys in their order.
pub fn region(data: &[u8]) -> bool {
    let Ok((_, entries)) = decoders::read_region(data) else {
        return false;
    };
    assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
    true
}

/// A part, its kind in the first byte: what is read can be written and read again.
pub fn region_part(data: &[u8]) -> bool {
    let Some((kind, part)) = data.split_first() else {
        return false;
    };
    let Some(written) = decoders::rewrite(*kind, part) else {
        return false;
    };
    assert_eq!(decoders::rewrite(*kind, &written).as_ref(), Some(&written));
    true
}

/// A part behind its checksum.
pub fn sealed_region_part(data: &[u8]) -> bool {
    let mut bytes = data.to_vec();
    if let Some((kind, part)) = bytes.split_first_mut() {
        decoders::seal(*kind, part);
    }
    region_part(&bytes)
}
