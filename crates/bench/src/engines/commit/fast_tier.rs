//! What both ways to commit share: slabs on one tier, the index of what is in them, and the list of
//! live slots.
//!
//! ```text
//!   home/           DATABASE
//!   data/           slabs · one journal of live slots · logs, of the way that has them
//!   journal         LiveSlots | SlabChange ... | SlabChange ... |      a frame each
//! ```
//! The journal's frames are what docs/formats/slab.md draws, as the engine's manifest has them: the
//! first is the whole state, each that follows the changes of one edit.
//!
//! Invariants:
//! 1. A store that was closed is found again as it was. A store that was not closed is given up:
//!    what recovery costs is not compared here.
//! 2. A slot is freed after the index has let go of it: see [`FastTier::arrive`].
//!
//! Threads: any number may read; the way to commit decides which threads write.

use crate::Outcome;
use crate::store::{OpenOptions, TierTraffic};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_device::{
    DriverSpec, FileContext, FileKind, FillFirst, Journal, Origin, SystemDevices, TierSpec,
    TieredFiles,
};
use thermocline_foundation::coding::Decoder;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_index::{Entry, EntryKind, FastIndex, IndexBatch};
use thermocline_slab::{
    LiveError, LiveSlots, Record, RecordKind, Reservation, SLAB_BYTES_MAX, SLAB_BYTES_MIN,
    SlabChange, SlabId, SlabShape, Slabs, SlotAddress, record_bytes,
};

/// Room for slabs, in percent of what all records take, and besides: about what the comparison
/// gives the preset, since lengths of slabs follow from it and what is free in the last of them
/// makes slots neighbours. No writer waits for room.
const ROOM_PERCENT: u64 = 300;
const ROOM_BYTES: u64 = 256 << 20;
/// Slabs that the room is divided into, about; and where records are of many sizes. As the engine's
/// preset `hybrid` does it.
const SLABS: u64 = 64;
const SLABS_MAX: u64 = 256;
/// Keys that are copied out of the index at once.
const KEYS_AT_ONCE: usize = 4096;

/// A record that is to be put into a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub sequence: Sequence,
}

impl Arrival<'_> {
    pub fn record_bytes(&self) -> u32 {
        record_bytes(self.key.len(), self.value.len()) as u32
    }

    fn record(&self) -> Record<'_> {
        let Self { key, value, sequence } = *self;
        Record { key, value, packed: false, sequence, kind: RecordKind::Put, clean: false }
    }

    fn entry(&self, slot: SlotAddress) -> Entry {
        Entry {
            slot: slot.pack(),
            sequence: self.sequence,
            kind: EntryKind::Put,
            clean: false,
            record_bytes: self.record_bytes(),
        }
    }
}

/// Records that are in their slots and not live.
#[derive(Debug)]
pub(super) struct Written {
    pub reservation: Reservation,
    pub touched: Vec<SlabId>,
    pub slots: Vec<SlotAddress>,
}

/// A version that was replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replaced {
    /// Which of the records does it.
    by: usize,
    pub slot: SlotAddress,
    pub sequence: Sequence,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FastTier {
    files: Arc<TieredFiles>,
    pub slabs: Arc<Slabs>,
    pub index: FastIndex,
    /// The newest record that was found at the opening.
    pub last_sequence: Sequence,
    /// The journal as it was found; none in a new store.
    found: Option<FileNumber>,
}

/// Which slots are live, as a journal has it.
#[derive(Debug)]
pub(super) struct LiveJournal {
    live: LiveSlots,
    journal: Journal,
}

/// What the driver of the tier is called.
pub(super) fn driver(options: &OpenOptions) -> Outcome<&str> {
    let usual = if options.direct { "direct" } else { "posix" };
    let driver = options.option("driver").unwrap_or(usual);
    driver.parse::<DriverSpec>()?;
    Ok(driver)
}

/// What slabs may take.
pub(super) fn room_bytes(options: &OpenOptions) -> u64 {
    let record = record_bytes(options.key_bytes as usize, options.value_bytes as usize);
    options.records.saturating_mul(record).saturating_mul(ROOM_PERCENT) / 100 + ROOM_BYTES
}

impl FastTier {
    /// Opens the store of `options`, or makes it; reads every slot, to build the index.
    pub fn open(options: &OpenOptions) -> Outcome<(Self, LiveSlots)> {
        let space = options.tiers.first().ok_or("an engine needs a tier")?;
        let (home, devices) = (space.path.join("home"), SystemDevices::default());
        let tier = TierSpec {
            path: space.path.join("data"),
            capacity: space.capacity,
            driver: driver(options)?.to_owned(),
        };
        let tiers = [tier];
        let files = if TieredFiles::exists(&devices, &home)? {
            TieredFiles::open(&devices, &home, Some(&tiers), Arc::new(FillFirst), false)?
        } else {
            TieredFiles::create(&devices, &home, &tiers, Arc::new(FillFirst))?
        };
        let files = Arc::new(files);
        let (found, live) = read_live(&files)?;
        let room = room_bytes(options);
        let slab_bytes = (room / SLABS).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX);
        let slabs = Slabs::open(Arc::clone(&files), slab_bytes, &live)?;
        slabs.set_slab_bytes_min(room / SLABS_MAX);
        slabs.set_limit_bytes(room);
        let index = FastIndex::new();
        let mut last_sequence = Sequence::ZERO;
        for (file, slab) in live.iter() {
            let id = slabs.id_of(file).ok_or("a slab of the journal is not open")?;
            slabs.scan(id, slab, &mut |address, slot| {
                let sequence = slot.sequence();
                let arrival = Arrival { key: slot.key(), value: slot.stored(), sequence };
                index.insert(slot.key(), arrival.entry(address));
                last_sequence = last_sequence.max(sequence);
            })?;
        }
        Ok((Self { files, slabs, index, last_sequence, found }, live))
    }

    pub fn files(&self) -> &Arc<TieredFiles> {
        &self.files
    }

    /// Writes records into slots of their own: neither durable nor live. None where there is no
    /// room.
    pub fn write(&self, records: &[Arrival<'_>], origin: Origin) -> Outcome<Option<Written>> {
        let sizes: Vec<u32> = records.iter().map(Arrival::record_bytes).collect();
        let Some(reservation) = self.slabs.allocate_all(&sizes, origin)? else { return Ok(None) };
        let slots: Vec<SlotAddress> = reservation.slots().iter().flatten().copied().collect();
        let placed: Vec<_> =
            slots.iter().zip(records).map(|(slot, record)| (*slot, record.record())).collect();
        let touched = self.slabs.write(&placed)?;
        Ok(Some(Written { reservation, touched, slots }))
    }

    /// The versions that records replace, whose keys ascend, each once.
    pub fn replaced_by(&self, records: &[Arrival<'_>]) -> Vec<Replaced> {
        let mut versions = Vec::new();
        let mut replaced = Vec::new();
        for (at, new) in records.iter().enumerate() {
            self.index.versions(new.key, &mut versions);
            replaced.extend(versions.iter().map(|old| Replaced {
                by: at,
                slot: SlotAddress::unpack(old.slot),
                sequence: old.sequence,
            }));
        }
        replaced
    }

    /// Lets the records be found in their slots, and not what they replace.
    pub fn arrive(&self, records: &[Arrival<'_>], slots: &[SlotAddress], replaced: &[Replaced]) {
        let born: Vec<_> =
            records.iter().zip(slots).map(|(new, slot)| (new.key, new.entry(*slot))).collect();
        self.index.insert_many(&born, |_, _| {});
        let gone: Vec<_> = replaced.iter().map(|old| (records[old.by].key, old.sequence)).collect();
        self.index.remove_many(&gone, |_, _| {});
    }

    /// Gives slots out again whose records were replaced.
    pub fn free(&self, replaced: &[Replaced]) {
        let slots: Vec<_> = replaced.iter().map(|old| old.slot).collect();
        self.slabs.free(&slots);
    }

    /// Puts the value of `key` into `value`; false where no slot has it.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let mut before = None;
        loop {
            let Some(entry) = self.index.get(key) else { return Ok(false) };
            let read = self.slabs.read(SlotAddress::unpack(entry.slot), entry.record_bytes);
            match read {
                Ok(slot) if slot.key() == key && slot.sequence() == entry.sequence => {
                    value.clear();
                    value.extend_from_slice(slot.stored());
                    return Ok(true);
                }
                // It was replaced while it was read, and its slot given to another. A version
                // keeps its slot as long as the index has it, so twice the same is damage.
                _ if before != Some(entry) => before = Some(entry),
                Ok(slot) => return Err(format!("{slot:?} is not what {entry:?} says").into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What went over the tier, its files of all kinds together.
    pub fn traffic(&self) -> Vec<TierTraffic> {
        let totals = self.files.tiers().iter().map(|tier| tier.traffic_total());
        totals
            .map(|total| TierTraffic {
                reads: total.reads,
                read_bytes: total.read_bytes,
                writes: total.writes,
                written_bytes: total.written_bytes,
                syncs: total.syncs,
            })
            .collect()
    }

    /// Which slots the index has.
    fn live(&self) -> Outcome<LiveSlots> {
        let mut by_file: BTreeMap<FileNumber, Vec<(u32, Sequence)>> = BTreeMap::new();
        let mut batch = IndexBatch::new();
        let mut from: Option<Vec<u8>> = None;
        loop {
            let low = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            self.index.ascend(low, Bound::Unbounded, KEYS_AT_ONCE, &mut batch);
            for entry in batch.iter().flat_map(|(_, versions)| versions) {
                let slot = SlotAddress::unpack(entry.slot);
                let file =
                    self.slabs.file_number(slot.slab).ok_or("a slab of the index is gone")?;
                by_file.entry(file).or_default().push((slot.slot, entry.sequence));
            }
            from = batch.last_key().map(<[u8]>::to_vec);
            if batch.is_end() || from.is_none() {
                break;
            }
        }
        let mut live = LiveSlots::default();
        for id in self.slabs.ids() {
            let (Some(file), Some(shape)) = (self.slabs.file_number(id), self.slabs.shape(id))
            else {
                continue;
            };
            let born = by_file.remove(&file).unwrap_or_default();
            live.apply(&live.change(file, Some(shape), &born, &[]))?;
        }
        Ok(live)
    }

    /// A journal that begins with `live`, in place of the one that was found.
    pub fn begin_journal(&self, live: LiveSlots) -> Outcome<LiveJournal> {
        let context = FileContext { kind: FileKind::Manifest, origin: Origin::Foreground };
        let file = self.files.create_file(context, 0)?;
        let number = file.number();
        let mut journal = Journal::create(file)?;
        let mut state = Vec::new();
        live.encode(&mut state);
        journal.append(&state)?;
        self.files.publish(&[number])?;
        if let Some(old) = self.found {
            self.files.delete_files(&[old])?;
        }
        Ok(LiveJournal { live, journal })
    }

    /// Makes every slab durable and writes down which slots are live, for the next opening.
    pub fn close_with_index(&self) -> Outcome<()> {
        self.slabs.sync(&self.slabs.ids())?;
        self.begin_journal(self.live()?)?;
        self.close()
    }

    pub fn close(&self) -> Outcome<()> {
        Ok(self.files.close(&[])?)
    }
}

impl LiveJournal {
    /// Writes down, durably, that slots were born and died.
    pub fn edit(
        &mut self,
        slabs: &Slabs,
        new_slabs: &[(FileNumber, SlabShape)],
        born: impl Iterator<Item = (SlotAddress, Sequence)>,
        died: &[Replaced],
    ) -> Outcome<()> {
        type Slots = Vec<(u32, Sequence)>;
        let mut by_file: BTreeMap<FileNumber, (Slots, Slots)> = BTreeMap::new();
        for (file, _) in new_slabs {
            by_file.entry(*file).or_default();
        }
        let file = |slot: SlotAddress| slabs.file_number(slot.slab).unwrap_or_default();
        for (slot, sequence) in born {
            by_file.entry(file(slot)).or_default().0.push((slot.slot, sequence));
        }
        for old in died {
            by_file.entry(file(old.slot)).or_default().1.push((old.slot.slot, old.sequence));
        }
        let mut frame = Vec::new();
        for (file, (born, died)) in &by_file {
            let shape = new_slabs.iter().find(|(new, _)| new == file).map(|(_, shape)| *shape);
            let change = self.live.change(*file, shape, born, died);
            change.encode(&mut frame);
            self.live.apply(&change)?;
        }
        Ok(self.journal.append(&frame)?)
    }
}

/// The journal of a store, and what it says is live.
fn read_live(files: &TieredFiles) -> Outcome<(Option<FileNumber>, LiveSlots)> {
    let all = files.files();
    let mut journals = all.iter().filter(|file| file.kind == FileKind::Manifest && file.published);
    let Some(info) = journals.next() else { return Ok((None, LiveSlots::default())) };
    if journals.next().is_some() || all.iter().any(|file| file.kind == FileKind::Log) {
        return Err("the store was not closed; it can only be loaded anew".into());
    }
    let mut live = None;
    let mut damage = None;
    Journal::read(&*files.open_file(info.number)?, |frame| {
        let mut decoder = Decoder::new(frame);
        let applied = match &mut live {
            None => LiveSlots::decode(&mut decoder).map(|state| live = Some(state)),
            Some(live) => apply_all(live, &mut decoder),
        };
        if let Err(error) = applied {
            damage = damage.take().or(Some(error));
        }
        Ok(())
    })?;
    match (live, damage) {
        (Some(live), None) => Ok((Some(info.number), live)),
        (_, Some(error)) => Err(format!("the journal of live slots: {error}").into()),
        (None, None) => Err("the journal of live slots is empty".into()),
    }
}

fn apply_all(live: &mut LiveSlots, decoder: &mut Decoder<'_>) -> Result<(), LiveError> {
    while !decoder.is_empty() {
        live.apply(&SlabChange::decode(decoder)?)?;
    }
    Ok(())
}
