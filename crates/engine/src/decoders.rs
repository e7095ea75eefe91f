//! A way in for the tests of decoders (`tests/decoders.rs` and `fuzz/`): private formats, read and
//! written again. Not part of the documented interface. Any thread.

use crate::batch::{BatchReader, WriteBatch};
use crate::error::Result;
use crate::generations::memtable::Memtable;
use crate::shared::totals::Totals;
use crate::table_set::manifest::Edit;
use crate::table_set::table::TableMeta;
use bytes::Bytes;
use thermocline_foundation::coding::Decoder;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_slab::{LiveSlots, SlabChange, SlabShape};
use thermocline_table::RecordKind;

/// A manifest edit as this version writes it.
pub fn rewrite_edit(payload: &[u8]) -> Result<Vec<u8>> {
    let edit = Edit::decode(payload)?;
    let written = edit.encode();
    assert_eq!(Edit::decode(&written)?, edit, "an edit is not what was written");
    Ok(written)
}

/// An edit with every item, for the golden file.
pub fn sample_edit() -> Vec<u8> {
    let meta = TableMeta {
        number: FileNumber(12),
        bytes: 1 << 33,
        entries: 1000,
        deletes: 10,
        older_versions: 0,
        smallest_key: Vec::new(),
        largest_key: vec![0xff; 40],
        smallest_sequence: Sequence(1),
        largest_sequence: Sequence(1 << 50),
        ingested_at: None,
    };
    let ingested = TableMeta { ingested_at: Some(Sequence(7)), ..meta.clone() };
    let counts = Totals::decode(Decoder::new(&[1, 2, 0x80, 1, 0])).ok();
    let shape = SlabShape { slot_bytes: 64, slots: 1000 };
    let mut live = LiveSlots::default();
    let change =
        live.change(FileNumber(20), Some(shape), &[(3, Sequence(8)), (4, Sequence(9))], &[]);
    // What was made a moment ago follows from nothing.
    let _ = live.apply(&change);
    let edit = Edit {
        added: vec![(0, meta), (6, ingested)],
        removed: vec![(3, FileNumber(9))],
        log_floor: Some(FileNumber(11)),
        last_sequence: Some(Sequence(1 << 50)),
        slabs: vec![change, SlabChange::removal(FileNumber(19))],
        live_slots: Some(live),
        totals: counts,
        durable_sequence: Some(Sequence(1 << 49)),
        older_versions: None,
    };
    edit.encode()
}

/// A batch as this version writes it, taken into a memtable on the way.
pub fn rewrite_batch(encoded: &[u8]) -> Result<Vec<u8>> {
    let mut batch = WriteBatch::new();
    for record in BatchReader::new(encoded)? {
        let record = record?;
        let slice = |at: u32, len: u32| &encoded[at as usize..at as usize + len as usize];
        let key = slice(record.key_at, record.key_len);
        match record.kind {
            RecordKind::Put => batch.put(key, slice(record.value_at, record.value_len)),
            RecordKind::Delete => batch.delete(key),
        };
    }
    let memtable = Memtable::new();
    memtable.insert_batch(Sequence(1), &Bytes::copy_from_slice(encoded))?;
    assert_eq!(memtable.count(), batch.len() as u64, "records of the batch and the memtable");
    batch.freeze().map(|(written, _)| written.to_vec())
}

/// The encoding of a batch.
pub fn encode_batch(batch: WriteBatch) -> Result<Vec<u8>> {
    batch.freeze().map(|(encoded, _)| encoded.to_vec())
}
