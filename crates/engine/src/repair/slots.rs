//! Slots whose record cannot be given out: they are given up, and what is known of their records is
//! said.

use super::logs::{Copied, LogsFound};
use super::plan::{Lost, RepairStep};
use super::tables::TableFound;
use super::{Bytes, Meter, Piece, Subject, read_otherwise};
use crate::error::{Error, ErrorKind, Result};
use crate::table_set::manifest::broken_slots;
use bytes::Bytes as Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_slab::{
    DamagedHeader, LiveSlots, LostRecord, LostSlot, RecordKind, SLAB_BYTES_MAX, SlabId, Slabs,
    Slot, SlotSum,
};
use thermocline_table::RecordKind as TableRecordKind;

/// What was found of the slabs.
#[derive(Debug, Default)]
pub(super) struct SlotsFound {
    slabs: Option<Arc<Slabs>>,
    live: LiveSlots,
    newest: Sequence,
    headers: Vec<SlabId>,
    bad: BTreeMap<FileNumber, BadSlab>,
    pub pieces: Vec<Piece>,
    /// Copies on the fast tier of records that tables have lost.
    pub copies: Vec<Copied>,
}

/// A slab with slots to give up.
#[derive(Debug)]
struct BadSlab {
    lost: Vec<LostSlot>,
    /// Of the others.
    sum: SlotSum,
}

/// Reads all slots.
pub(super) fn look(subject: &Subject, meter: &mut Meter<'_>) -> Result<SlotsFound> {
    let (files, restored) = (&subject.files, &subject.restored);
    if restored.slots.is_empty() {
        return Ok(SlotsFound::default());
    }
    let live = restored.slots.clone();
    let (slabs, damaged) = Slabs::open_damaged(Arc::clone(files), SLAB_BYTES_MAX, &live)?;
    let mut found = SlotsFound { newest: restored.last_sequence, ..SlotsFound::default() };
    for DamagedHeader { file: number, error, .. } in damaged {
        let file = files.open_file(number)?;
        let step = RepairStep::new(&file, &error.into(), "its header page is written anew");
        found.pieces.push(Piece { step, bytes: Bytes::Of(number, 0..4096) });
        found.headers.extend(slabs.id_of(number));
    }
    for (number, slab) in live.iter() {
        let Some(id) = slabs.id_of(number) else { continue };
        match slabs.scan(id, slab, &mut |_, _| {}) {
            Err(error) if subject.unreadable.is_damage(error.kind()) => {}
            scanned => {
                scanned?;
                meter.add(slab.shape.file_bytes());
                continue;
            }
        }
        let file = files.open_file(number)?;
        let salvage = slabs.salvage(id, slab, found.newest, &mut |_, _| ())?;
        for lost in &salvage.lost {
            let step = RepairStep::new(&file, &lost.error.clone().into(), "the slot is given up");
            let part = lost.offset..lost.offset + lost.bytes;
            found.pieces.push(Piece { step, bytes: Bytes::Of(number, part) });
        }
        if let Some(error) = salvage.damage.last().filter(|_| !salvage.are_others_proved) {
            let repair = "its other slots stay as they are";
            let mut step = RepairStep::new(&file, &error.clone().into(), repair);
            step.lost.push(Lost::MayBeOlder);
            found.pieces.push(Piece { step, bytes: Bytes::All(number) });
        }
        let bad = BadSlab { lost: salvage.lost, sum: salvage.sum_of_others };
        found.bad.insert(number, bad);
        meter.add(slab.shape.file_bytes());
    }
    (found.slabs, found.live) = (Some(slabs), live);
    Ok(found)
}

impl SlotsFound {
    /// Gives every intact record in a live slot to `visit`.
    fn for_each(&self, visit: &mut dyn FnMut(&Slot)) -> Result<()> {
        let Some(slabs) = &self.slabs else { return Ok(()) };
        for (number, live) in self.live.iter() {
            let Some(id) = slabs.id_of(number) else { continue };
            match self.bad.get(&number) {
                None => slabs.scan(id, live, &mut |_, slot| visit(slot))?,
                Some(bad) => {
                    let lost: BTreeSet<_> = bad.lost.iter().map(|lost| lost.slot).collect();
                    let now = slabs.salvage(id, live, self.newest, &mut |address, slot| {
                        if !lost.contains(&address.slot) {
                            visit(slot);
                        }
                    })?;
                    if now.lost.iter().any(|now| !lost.contains(&now.slot)) {
                        return Err(read_otherwise(&format!("slab {number}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// The newest records of `keys` in intact live slots: sequence, and whether it is a value.
    pub fn newest_of(
        &self,
        keys: &BTreeSet<Vec<u8>>,
    ) -> Result<BTreeMap<Vec<u8>, (Sequence, bool)>> {
        let mut newest: BTreeMap<Vec<u8>, (Sequence, bool)> = BTreeMap::new();
        if keys.is_empty() {
            return Ok(newest);
        }
        self.for_each(&mut |slot| {
            if keys.contains(slot.key()) {
                let found = (slot.sequence(), slot.kind() == RecordKind::Put);
                let best = newest.entry(slot.key().to_vec()).or_insert(found);
                *best = (*best).max(found);
            }
        })?;
        Ok(newest)
    }

    /// Finds out what the lost slots cost: nothing where another place has the same record or a
    /// newer one.
    pub fn weigh(&mut self, subject: &Subject, logs: &LogsFound) -> Result<()> {
        let slots = self.bad.iter().flat_map(|(number, bad)| {
            bad.lost.iter().map(|lost| ((*number, lost.offset), lost.record.clone()))
        });
        let slots: BTreeMap<_, _> = slots.collect();
        let known: BTreeSet<_> = slots.values().flatten().map(|lost| lost.key.clone()).collect();
        let in_slots = self.newest_of(&known)?;
        for piece in &mut self.pieces {
            let Bytes::Of(number, part) = &piece.bytes else { continue };
            match slots.get(&(*number, part.start)) {
                None => {}
                Some(None) => piece.step.lost.push(Lost::UnknownRecord),
                Some(Some(lost)) => {
                    let best = in_slots.get(&lost.key).copied();
                    piece.step.lost.extend(cost(subject, logs, lost, best)?);
                }
            }
        }
        Ok(())
    }

    /// Finds the copies of records that `tables` have lost: each stands for a record that no other
    /// place has.
    pub fn find_copies(&mut self, tables: &mut [TableFound], logs: &LogsFound) -> Result<()> {
        let ranges: Vec<_> = tables.iter().flat_map(|table| &table.lost).collect();
        if ranges.is_empty() {
            return Ok(());
        }
        let mut newest: BTreeMap<Vec<u8>, (Sequence, bool, Option<Value>)> = BTreeMap::new();
        let mut broken = None;
        self.for_each(&mut |slot| {
            let key = slot.key();
            if !ranges.iter().any(|range| range.has(key))
                || newest.get(key).is_some_and(|(sequence, ..)| *sequence > slot.sequence())
            {
                return;
            }
            match value_of(slot) {
                Ok(value) => {
                    newest.insert(key.to_vec(), (slot.sequence(), slot.is_clean(), value));
                }
                Err(why) => broken = Some(why),
            }
        })?;
        if let Some(why) = broken {
            return Err(Error::new(ErrorKind::Corrupt, format!("a record in a slot: {why}")));
        }
        let copies = newest
            .into_iter()
            .filter(|(key, (sequence, is_clean, _))| *is_clean && !logs.has_from(key, *sequence));
        self.copies = copies.map(|(key, (_, _, value))| (key, value)).collect();
        let keys: Vec<_> = self.copies.iter().map(|(key, _)| &key[..]).collect();
        for table in tables {
            table.count_copies(&keys);
        }
        Ok(())
    }

    /// Header pages and lengths are as the manifest says.
    pub fn mend_headers(&self) -> Result<()> {
        let Some(slabs) = &self.slabs else { return Ok(()) };
        Ok(self.headers.iter().try_for_each(|id| slabs.mend_header(*id))?)
    }

    /// Takes the lost slots from `live`.
    pub fn give_up(&self, live: &mut LiveSlots) -> Result<()> {
        for (number, bad) in &self.bad {
            let died: Vec<_> = bad.lost.iter().map(|lost| lost.slot).collect();
            live.apply(&live.loss(*number, &died, bad.sum)).map_err(broken_slots)?;
        }
        Ok(())
    }
}

fn value_of(slot: &Slot) -> Result<Option<Value>, &'static str> {
    match slot.kind() {
        RecordKind::Put => slot.compact_value().map(Some),
        RecordKind::Delete => Ok(None),
    }
}

/// What the loss of a record in a slot costs; `in_slots` is the newest that another slot has of its
/// key, and whether it is a value.
fn cost(
    subject: &Subject,
    logs: &LogsFound,
    lost: &LostRecord,
    in_slots: Option<(Sequence, bool)>,
) -> Result<Option<Lost>> {
    let key = &lost.key;
    let is_covered = in_slots.is_some_and(|(sequence, _)| sequence > lost.sequence);
    if lost.is_clean || is_covered || logs.has_from(key, lost.sequence) {
        return Ok(None);
    }
    let left = newest_left(subject, logs, key, in_slots)?;
    let older = left.filter(|(_, is_value)| *is_value).map(|(sequence, _)| sequence.0);
    Ok(Some(Lost::Record { key: key.clone(), sequence: lost.sequence.0, older }))
}

/// The newest record of `key` that a repair leaves: sequence, and whether it is a value; `in_slots`
/// is that of the slots.
pub(super) fn newest_left(
    subject: &Subject,
    logs: &LogsFound,
    key: &[u8],
    in_slots: Option<(Sequence, bool)>,
) -> Result<Option<(Sequence, bool)>> {
    let mut newest = in_slots.max(logs.newest(key));
    for (_, table) in subject.restored.levels.tables() {
        if !table.meta.overlaps(Some(key), Some(key)) {
            continue;
        }
        match table.get(key, Sequence::MAX) {
            Ok(None) => {}
            Ok(Some((trailer, _))) => {
                let is_value = trailer.kind() == TableRecordKind::Put;
                newest = newest.max(Some((trailer.sequence(), is_value)));
            }
            // A table that cannot be read has a step of its own.
            Err(error) if subject.is_damage(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(newest)
}
