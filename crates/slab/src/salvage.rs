//! What can be said of a slab in which not every live slot is intact: which records are proved to
//! be what the manifest counts, which slot had a record of a known key, and how new a record may
//! be of which nothing is known.
//!
//! Three things tell more than a checksum that does not match:
//! - A slot of which a single bit flipped tells its key all the same ([`mend`]). Its value is never
//!   given out: a read of the slot finds it damaged, as it is.
//! - The slab's sum, less what is found, is what the missing slots have in it. Of one slot that
//!   gives the sequence of its record; of several it says whether the sequences that their headers
//!   claim are right.
//! - A slot that holds an older intact record, for a write was lost, is found by the same: of all
//!   slots it is the one whose sequence by the sum is one that there may be. (A sequence has 64
//!   bits there, of which few are in use, so a wrong one shows.)
//!
//! Where nothing of this adds up, no record of the slab is proved: any of its slots may hold an
//! older record than it should, of which a newer version or none may be elsewhere.
//!
//! Only for opening, before anything is written. Slots are read one by one: it is slow, and rare.

use crate::address::{SlabId, SlotAddress};
use crate::format::{self, SLOT_HEADER_BYTES, Slot, claimed_bytes};
use crate::live::{SlabLive, SlotSum};
use crate::slab::{Decoded, Slab};
use crate::slabs::Slabs;
use bytes::Bytes;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::Sequence;
use thermocline_foundation::mend::{MEND_BYTES_MAX, mend};

/// What [`Slabs::salvage`] found.
#[derive(Debug)]
pub struct Salvage<T> {
    /// What was kept of each record that is proved, intact or damaged with a known key; ascending
    /// by slot.
    pub proved: Vec<T>,
    /// All that is wrong, with file, tier, offset and, where it is known, key.
    pub damage: Vec<Error>,
    /// Records of unknown keys are missing, of which none is newer than this.
    pub newest_missing: Option<Sequence>,
    /// The slots without an intact record of their own: for a repair, which gives them up.
    pub lost: Vec<LostSlot>,
    /// The sum of the others.
    pub sum_of_others: SlotSum,
    /// Every record in another slot is proved.
    pub are_others_proved: bool,
}

/// A live slot whose record cannot be given out.
#[derive(Clone, Debug)]
pub struct LostSlot {
    /// Its place in the slab.
    pub slot: u32,
    /// Where it begins, in bytes from the start of the file.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// What record it had, where a single flipped bit is all that is wrong with it.
    pub record: Option<LostRecord>,
    /// What is wrong.
    pub error: Error,
}

/// What is known of a record that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// Its key.
    pub key: Vec<u8>,
    /// Its sequence.
    pub sequence: Sequence,
    /// It was a copy of what a table has.
    pub is_clean: bool,
}

impl LostSlot {
    fn new(slab: &Slab, slot: u32, record: Option<LostRecord>, error: Error) -> Self {
        let (offset, bytes) = (slab.shape.offset(slot), u64::from(slab.shape.slot_bytes));
        Self { slot, offset, bytes, record, error }
    }
}

/// Which records of a slab hold what the manifest counts.
enum Proved {
    All,
    AllBut(u32),
    Nothing,
}

/// What is wrong with a slot whose last write was lost.
const OLDER_RECORD: &str = "it holds an older record than it should";

/// A live slot, as it was found.
enum Found {
    Record(Sequence),
    /// What it says of its sequence, if it can be read at all.
    Nothing(Option<Sequence>),
}

impl Slabs {
    /// Looks at every slot of `live`, of which some are known not to be intact. `keep` says what to
    /// keep of a record; `newest` is the newest that the manifest knows of.
    ///
    /// # Errors
    /// Those of the device that are not about a slot.
    pub fn salvage<T>(
        &self,
        id: SlabId,
        live: &SlabLive,
        newest: Sequence,
        keep: &mut dyn FnMut(SlotAddress, &Slot) -> T,
    ) -> Result<Salvage<T>> {
        let slab = self.slab(id)?;
        let (mut found, mut kept, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        let mut lost = Vec::new();
        let mut slots = live.slots.first_from(0);
        while let Some(slot) = slots {
            slots = live.slots.first_from(slot + 1);
            let address = SlotAddress { slab: id, slot };
            let record = match self.read(address, 0) {
                Ok(record) => Ok(record),
                Err(error) if is_of_slot(&error) => {
                    let looked = match look(&slab, slot) {
                        Ok(looked) => looked,
                        // What is not given now may tell the key later.
                        Err(unread) if !is_of_slot(&unread) => return Err(unread),
                        Err(unread) => {
                            damage.push(unread.clone());
                            lost.push(LostSlot::new(&slab, slot, None, unread));
                            found.push((slot, Found::Nothing(None)));
                            continue;
                        }
                    };
                    let error = describe(&looked, &error);
                    let record = looked.as_ref().ok().map(|record| LostRecord {
                        key: record.key().to_vec(),
                        sequence: record.sequence(),
                        is_clean: record.is_clean(),
                    });
                    damage.push(error.clone());
                    lost.push(LostSlot::new(&slab, slot, record, error));
                    looked
                }
                Err(error) => return Err(error),
            };
            found.push((
                slot,
                match &record {
                    Ok(record) => Found::Record(record.sequence()),
                    Err(claimed) => Found::Nothing(*claimed),
                },
            ));
            kept.extend(record.ok().map(|record| (slot, keep(address, &record))));
        }
        let (proved, newest_missing) = judge(&slab, live, newest, &found, &mut damage);
        match proved {
            Proved::All => {}
            Proved::AllBut(stale) => {
                kept.retain(|(slot, _)| *slot != stale);
                let error = slab.corrupt(stale, OLDER_RECORD);
                lost.push(LostSlot::new(&slab, stale, None, error));
            }
            Proved::Nothing => kept.clear(),
        }
        let is_lost = |slot: &u32| lost.iter().any(|lost| lost.slot == *slot);
        let others = found.iter().filter(|(slot, _)| !is_lost(slot));
        let sum_of_others = others.fold(SlotSum::default(), |sum, (slot, found)| match found {
            Found::Record(sequence) => sum.plus(*slot, *sequence),
            Found::Nothing(_) => sum,
        });
        let are_others_proved = !matches!(proved, Proved::Nothing);
        let proved: Vec<_> = kept.into_iter().map(|(_, kept)| kept).collect();
        Ok(Salvage { proved, damage, newest_missing, lost, sum_of_others, are_others_proved })
    }

    /// What is wrong with a slot that a reader found damaged, with its key where that is known.
    pub(crate) fn named(slab: &Slab, slot: u32, error: &Error) -> Error {
        match look(slab, slot) {
            Ok(looked) if is_of_slot(error) => describe(&looked, error),
            _ => error.clone(),
        }
    }
}

/// The slot is damaged or cannot be read; other errors are not about one slot.
fn is_of_slot(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io)
}

/// A damaged slot's record with a flipped bit turned back, or the sequence that it claims; an error
/// where its device does not give it.
fn look(slab: &Slab, slot: u32) -> Result<Result<Slot, Option<Sequence>>> {
    let len = slab.read_bytes((SLOT_HEADER_BYTES + MEND_BYTES_MAX) as u32);
    let buffer = slab.file.read(slab.shape.offset(slot), len)?;
    if let Some(record) = mended(slab, slot, &buffer) {
        return Ok(Ok(record));
    }
    let word = buffer.get(8..).and_then(|rest| rest.first_chunk());
    Ok(Err(word.map(|word| Sequence(u64::from_le_bytes(*word) >> 8))))
}

/// The record of a slot of which one bit was flipped.
fn mended(slab: &Slab, slot: u32, bytes: &[u8]) -> Option<Slot> {
    let decode = |bytes: &[u8]| {
        let memory_bytes = bytes.len();
        match slab.decode(slot, &Bytes::copy_from_slice(bytes), memory_bytes) {
            Ok(Decoded::Whole(record)) => Some(record),
            _ => None,
        }
    };
    let mut bytes = bytes.to_vec();
    // Lengths say what the checksum covers, so each of their bits is tried by itself.
    for bit in (4 * 8..8 * 8).chain(16 * 8..19 * 8) {
        let mask = 1 << (bit % 8);
        *bytes.get_mut(bit / 8)? ^= mask;
        if let Some(record) = decode(&bytes) {
            return Some(record);
        }
        bytes[bit / 8] ^= mask;
    }
    let used = usize::try_from(claimed_bytes(&bytes).ok()?).ok()?;
    let (stored, body) = bytes.get_mut(..used)?.split_first_chunk_mut::<4>()?;
    let place = slab.file.place(slab.shape.offset(slot));
    if !mend(&place, body, u32::from_le_bytes(*stored)) {
        return None;
    }
    *stored = format::sum_of(&place, body);
    decode(&bytes)
}

/// The error of a slot, with the key where it is known.
fn describe(looked: &Result<Slot, Option<Sequence>>, error: &Error) -> Error {
    let whose = match looked {
        Ok(record) => {
            format!("it has the key {} at {}", record.key().escape_ascii(), record.sequence())
        }
        Err(_) => "its key is not known".to_owned(),
    };
    Error::new(error.kind(), format!("{error}; {whose}"))
}

/// Which slots hold what the manifest counts, and the newest record that may be missing.
fn judge(
    slab: &Slab,
    live: &SlabLive,
    newest: Sequence,
    found: &[(u32, Found)],
    damage: &mut Vec<Error>,
) -> (Proved, Option<Sequence>) {
    let may_be = |sequence: &Sequence| (Sequence(1)..=newest).contains(sequence);
    let mut sum = SlotSum::default();
    let mut missing = Vec::new();
    for (slot, found) in found {
        match found {
            Found::Record(sequence) => sum = sum.plus(*slot, *sequence),
            Found::Nothing(claimed) => missing.push((*slot, *claimed)),
        }
    }
    if missing.is_empty() && sum == live.sum {
        return (Proved::All, None);
    }
    if let [(slot, _)] = missing[..] {
        let sequence = sum.lacks(slot, live.sum);
        if may_be(&sequence) {
            return (Proved::All, Some(sequence));
        }
    }
    if missing.is_empty() {
        let stale = found.iter().find_map(|(slot, found)| {
            let Found::Record(sequence) = found else { return None };
            let lacks = sum.minus(*slot, *sequence).lacks(*slot, live.sum);
            may_be(&lacks).then_some((*slot, lacks))
        });
        if let Some((slot, lacks)) = stale {
            damage.push(slab.corrupt(slot, OLDER_RECORD));
            return (Proved::AllBut(slot), Some(lacks));
        }
        damage.push(slab.corrupt_sum());
    }
    let claimed: Option<Vec<_>> =
        missing.iter().map(|(slot, claimed)| Some((*slot, claimed.filter(may_be)?))).collect();
    if let Some(claimed) = claimed.filter(|claimed| !claimed.is_empty()) {
        let whole = claimed.iter().fold(sum, |sum, (slot, sequence)| sum.plus(*slot, *sequence));
        if whole == live.sum {
            return (Proved::All, claimed.iter().map(|(_, sequence)| *sequence).max());
        }
    }
    (Proved::Nothing, Some(newest))
}
