//! A way in for the tests of decoders (`tests/decoders.rs` and `fuzz/`): headers with no log around
//! them. Not part of the documented interface. Any thread.

use crate::format::{PAGE_HEADER_BYTES, PageHeader, RecordHeader};

/// The header of a page and that of the record behind it, as this version writes them; none where
/// one of them is refused.
pub fn rewrite_headers(bytes: &[u8]) -> Option<Vec<u8>> {
    let page = PageHeader::decode(bytes);
    let record = bytes.get(PAGE_HEADER_BYTES..).and_then(|rest| rest.first_chunk());
    // Whatever the page says, the record's bytes are looked at.
    let record = record.and_then(|bytes| RecordHeader::decode(bytes).ok());
    let (page, record) = (page?, record?);
    assert!(record.last().is_some(), "a record has a last sequence");
    Some([&page.encode()[..], &record.encode()].concat())
}
