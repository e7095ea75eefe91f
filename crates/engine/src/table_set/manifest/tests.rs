//! Edits as they are written, and read again.

use super::*;
use crate::support::golden;

fn sample() -> Edit {
    let meta = TableMeta {
        number: FileNumber(12),
        bytes: 1 << 33,
        entries: 1000,
        deletes: 10,
        older_versions: 0,
        smallest_key: b"".to_vec(),
        largest_key: vec![0xff; 300],
        smallest_sequence: Sequence(1),
        largest_sequence: Sequence(1 << 50),
        ingested_at: None,
    };
    let ingested = TableMeta { ingested_at: Some(Sequence(7)), ..meta.clone() };
    Edit {
        added: vec![(0, meta), (6, ingested)],
        removed: vec![(3, FileNumber(9))],
        log_floor: Some(FileNumber(11)),
        last_sequence: Some(Sequence(1 << 50)),
        totals: Some(Totals::default()),
        durable_sequence: Some(Sequence(1 << 50)),
        ..Edit::default()
    }
}

#[test]
fn manifest_edits_are_as_documented() {
    let edit = sample();
    let golden = golden("manifest-items-v1.bin", &edit.encode());
    assert_eq!(Edit::decode(&golden).unwrap(), edit);
    let newer = [&[VERSION + 1], &golden[1..]].concat();
    assert_eq!(Edit::decode(&newer).unwrap_err().kind(), ErrorKind::NewerFormat);
}

/// An item of its own file, for the others are as they were before there was one.
#[test]
fn the_count_of_older_versions_is_as_documented() {
    let edit = Edit { older_versions: Some(300), ..Edit::default() };
    let golden = golden("manifest-older-versions-v1.bin", &edit.encode());
    assert_eq!(golden, [1, 130, 2, 0xac, 2]);
    assert_eq!(Edit::decode(&golden).unwrap(), edit);
    assert!(Edit::decode(&golden[..4]).is_err());
}

/// At the end of what a table's item was before, where a release that does not know it looks no
/// further.
#[test]
fn the_older_versions_of_a_table_are_as_documented() {
    let sample = sample();
    let (level, meta) = sample.added[0].clone();
    let plain = Edit { added: vec![(level, meta.clone())], ..Edit::default() };
    let counted =
        Edit { added: vec![(level, TableMeta { older_versions: 300, ..meta })], ..Edit::default() };
    let golden = golden("manifest-table-versions-v1.bin", &counted.encode());
    assert_eq!(Edit::decode(&golden).unwrap(), counted);
    let plain = plain.encode();
    assert_eq!(golden.len(), plain.len() + 2);
    // Version, tag and two bytes of length; then the item.
    assert_eq!(golden[4..], [&plain[4..], &[0xac, 2]].concat());
}

#[test]
fn edits_round_trip_and_cut_ones_are_errors() {
    let edit = sample();
    let payload = edit.encode();
    assert_eq!(Edit::decode(&payload).unwrap(), edit);
    let whole: Vec<_> =
        (0..payload.len()).filter(|len| Edit::decode(&payload[..*len]).is_ok()).collect();
    // A cut between two items is a shorter edit; the journal's checksum is what forbids it.
    assert_eq!(whole.len(), 7);
}

#[test]
fn unknown_items_are_refused_or_skipped_by_their_tag() {
    let mut payload = sample().encode();
    payload.extend_from_slice(&[200, 2, 1, 1]);
    assert_eq!(Edit::decode(&payload).unwrap(), sample());
    payload.extend_from_slice(&[100, 0]);
    assert_eq!(Edit::decode(&payload).unwrap_err().kind(), ErrorKind::NewerFormat);
}
