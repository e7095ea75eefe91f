//! The records that slabs have, live or dead, and tables of them: a manifest that is made anew has
//! no live slots.
//!
//! Of each key the newest record counts. It may be older than what tables or logs have of the key,
//! which its sequence tells.

use super::tables;
use super::{Bytes, Ground, KeySpan, Lost, Meter, Piece};
use crate::error::{Error, Result};
use crate::repair::plan::RepairStep;
use crate::repair::read_otherwise;
use crate::table_set::table::TableMeta;
use bytes::Bytes as Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use thermocline_device::{FileKind, Unreadable};
use thermocline_foundation::Sequence;
use thermocline_slab::{RecordKind as SlotKind, SlabRemains};
use thermocline_table::{RecordKind, Trailer};

/// What the slabs tell.
#[derive(Debug, Default)]
pub(super) struct SlotsTold {
    slabs: Vec<SlabRemains>,
    newest: BTreeMap<Vec<u8>, InSlot>,
    /// The newest sequence of all.
    pub last: Sequence,
}

/// Where the newest record of a key lies.
#[derive(Clone, Copy, Debug)]
struct InSlot {
    sequence: Sequence,
    /// Among the slabs.
    slab: usize,
    slot: u32,
    bytes: u64,
}

/// Reads all slots. What is damaged is told, and the rest of its slab counts.
pub(super) fn look(
    ground: &Ground,
    meter: &mut Meter<'_>,
    pieces: &mut Vec<Piece>,
) -> Result<SlotsTold> {
    let mut told = SlotsTold::default();
    for info in ground.published(|kind| kind == FileKind::Slab) {
        let file = ground.files.open_file(info.number)?;
        let mut lose = |error: &Error, repair, bytes| {
            let mut step = RepairStep::new(&file, error, repair);
            step.lost.push(Lost::UnknownRecords);
            pieces.push(Piece { step, bytes });
        };
        meter.add(info.bytes);
        let slab = match SlabRemains::open(Arc::clone(&file)).map_err(Error::from) {
            Ok(slab) => slab,
            Err(error) if ground.is_damage(&error) => {
                let repair = "taken out: its header page cannot be read";
                lose(&error, repair, Bytes::All(info.number));
                continue;
            }
            Err(error) => return Err(error),
        };
        for broken in told.add(&slab, ground.unreadable)? {
            let part = slab.shape().offset(broken.start)..slab.shape().offset(broken.end);
            let which = match broken.len() {
                1 => format!("slot {} has", broken.start),
                _ => format!("slots {} to {} have", broken.start, broken.end - 1),
            };
            let (what, offset) = (file.describe(), part.start);
            let text = format!("{what} is damaged at offset {offset}: {which} no intact record");
            let repair = "its other slots are written to tables";
            lose(&Error::corrupt(text), repair, Bytes::Of(info.number, part));
        }
        told.slabs.push(slab);
    }
    Ok(told)
}

impl SlotsTold {
    /// Takes the records of the next slab; says which slots have none that is intact.
    fn add(&mut self, slab: &SlabRemains, unreadable: Unreadable) -> Result<Vec<Range<u32>>> {
        let at = self.slabs.len();
        Ok(slab.for_each(unreadable, &mut |slot, record| {
            let (sequence, bytes) = (record.sequence(), record.record_bytes());
            self.last = self.last.max(sequence);
            let found = InSlot { sequence, slab: at, slot, bytes };
            let newest = self.newest.entry(record.key().to_vec()).or_insert(found);
            if newest.sequence < sequence {
                *newest = found;
            }
        })?)
    }

    /// First and last key.
    pub fn span(&self) -> Option<KeySpan> {
        let (first, last) = (self.newest.first_key_value()?, self.newest.last_key_value()?);
        Some((first.0.clone(), last.0.clone()))
    }

    /// Writes all of it to tables, which the namespace has and no manifest.
    pub fn write(&self, ground: &Ground) -> Result<Vec<TableMeta>> {
        let bytes = self.newest.values().map(|record| record.bytes).sum();
        let records = self.newest.iter().map(|(key, place)| -> Result<tables::Record<_>> {
            let (kind, value) = self.read(key, place)?;
            Ok((key, Trailer::new(place.sequence, kind), value, place.bytes))
        });
        tables::write(ground, bytes, records)
    }

    /// The record of `key` that is in a slot.
    fn read(&self, key: &[u8], place: &InSlot) -> Result<(RecordKind, Value)> {
        let slab = &self.slabs[place.slab];
        let slot = slab.read(place.slot)?;
        if slot.key() != key || slot.sequence() != place.sequence {
            return Err(read_otherwise(&slab.file().describe()));
        }
        match slot.kind() {
            SlotKind::Delete => Ok((RecordKind::Delete, Value::new())),
            SlotKind::Put => {
                let why = |why| {
                    let what = slab.file().describe();
                    Error::corrupt(format!("{what}: the record of slot {}: {why}", place.slot))
                };
                Ok((RecordKind::Put, slot.shared_value().map_err(why)?))
            }
        }
    }
}
