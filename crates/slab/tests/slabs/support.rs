//! What the tests share: a store's half of the protocol of slabs (`lib.rs`), and records that
//! follow from their sequence.

use std::path::PathBuf;
use std::sync::Arc;
use thermocline_device::{ByLevel, Devices, Origin, TierSpec, TieredFiles};
use thermocline_foundation::{ByteSize, FileNumber, Sequence};
use thermocline_slab::{
    LiveSlots, Record, RecordKind, Reservation, SlabChange, Slabs, SlotAddress, record_bytes,
};

pub const SLAB_BYTES: u64 = 64 << 10;

pub fn home() -> PathBuf {
    PathBuf::from("/db")
}

pub fn create(devices: &dyn Devices, capacity_bytes: u64) -> Arc<TieredFiles> {
    let spec = TierSpec {
        path: PathBuf::from("/mnt/0"),
        capacity: ByteSize(capacity_bytes),
        driver: "memory".to_owned(),
    };
    let placement = Arc::new(ByLevel::default());
    Arc::new(TieredFiles::create(devices, &home(), &[spec], placement).unwrap())
}

pub fn reopen(devices: &dyn Devices, live: &LiveSlots) -> Arc<Slabs> {
    let slabs = try_reopen(devices, live).unwrap();
    slabs.set_limit_bytes(1 << 30);
    slabs
}

pub fn try_reopen(
    devices: &dyn Devices,
    live: &LiveSlots,
) -> thermocline_device::Result<Arc<Slabs>> {
    let placement = Arc::new(ByLevel::default());
    let files = TieredFiles::open(devices, &home(), None, placement, false).unwrap();
    Slabs::open(Arc::new(files), SLAB_BYTES, live)
}

pub fn key(sequence: u64) -> Vec<u8> {
    format!("key{sequence:08}").into_bytes()
}

pub fn value(sequence: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    thermocline_foundation::random::Random::new(sequence).fill(&mut bytes);
    bytes
}

/// A store's half of the protocol: the live set, and a flush as the engine does it.
pub struct Store {
    pub files: Arc<TieredFiles>,
    pub slabs: Arc<Slabs>,
    pub live: LiveSlots,
}

impl Store {
    pub fn new(devices: &dyn Devices) -> Self {
        Self::with(devices, SLAB_BYTES, 1 << 30)
    }

    /// With slabs of so many bytes on a tier of so many.
    pub fn with(devices: &dyn Devices, slab_bytes: u64, capacity_bytes: u64) -> Self {
        let files = create(devices, capacity_bytes);
        let live = LiveSlots::default();
        let slabs = Slabs::open(Arc::clone(&files), slab_bytes, &live).unwrap();
        slabs.set_limit_bytes(1 << 30);
        Self { files, slabs, live }
    }

    pub fn reserve(&self, lens: &[usize]) -> Reservation {
        let sizes: Vec<u32> = lens.iter().map(|len| record_bytes(11, *len) as u32).collect();
        self.slabs.allocate(&sizes, Origin::Flush).unwrap()
    }

    /// Writes and syncs values of `lens` with sequences from `first`.
    pub fn write(
        &self,
        reservation: &Reservation,
        first: u64,
        lens: &[usize],
    ) -> thermocline_device::Result<()> {
        let keys: Vec<_> =
            (first..).zip(lens).map(|(at, len)| (key(at), value(at, *len))).collect();
        let records: Vec<_> = reservation
            .slots()
            .iter()
            .zip(keys.iter().zip(first..))
            .map(|(slot, ((key, value), sequence))| {
                let (sequence, kind) = (Sequence(sequence), RecordKind::Put);
                (
                    slot.unwrap(),
                    Record {
                        key,
                        value,
                        packed: false,
                        sequence,
                        kind,
                        clean: sequence.0 % 2 == 0,
                    },
                )
            })
            .collect();
        let touched = self.slabs.write(&records)?;
        self.slabs.sync(&touched)
    }

    pub fn flush(&mut self, first: u64, lens: &[usize]) -> Vec<SlotAddress> {
        let reservation = self.reserve(lens);
        self.write(&reservation, first, lens).unwrap();
        self.settle(reservation, first)
    }

    /// The files of new slabs are published, and the edit is made that brings the records to life.
    pub fn settle(&mut self, reservation: Reservation, first: u64) -> Vec<SlotAddress> {
        let new = reservation.new_slabs();
        let numbers: Vec<FileNumber> = new.iter().map(|(number, _)| *number).collect();
        if !numbers.is_empty() {
            self.files.publish(&numbers).unwrap();
        }
        let slots: Vec<_> = reservation.slots().iter().map(|slot| slot.unwrap()).collect();
        for id in self.slabs.ids() {
            let born: Vec<_> = (first..)
                .zip(&slots)
                .filter(|(_, slot)| slot.slab == id)
                .map(|(sequence, slot)| (slot.slot, Sequence(sequence)))
                .collect();
            let file = self.slabs.file_number(id).unwrap();
            let shape = new.iter().find(|(number, _)| *number == file).map(|(_, shape)| *shape);
            if !born.is_empty() || shape.is_some() {
                self.live.apply(&self.live.change(file, shape, &born, &[])).unwrap();
            }
        }
        reservation.commit();
        slots
    }

    /// Slabs without a record go, by an edit and their files.
    pub fn remove_empty(&mut self) -> usize {
        let taken = self.slabs.take_empty(None, usize::MAX);
        for (_, file) in &taken {
            self.live.apply(&SlabChange::removal(*file)).unwrap();
        }
        self.slabs.remove(&taken.iter().map(|(id, _)| *id).collect::<Vec<_>>()).unwrap();
        taken.len()
    }

    pub fn kill(&mut self, slots: &[(SlotAddress, u64)]) {
        for (address, sequence) in slots {
            let file = self.slabs.file_number(address.slab).unwrap();
            let died = [(address.slot, Sequence(*sequence))];
            self.live.apply(&self.live.change(file, None, &[], &died)).unwrap();
        }
        self.slabs.free(&slots.iter().map(|(address, _)| *address).collect::<Vec<_>>());
    }
}

/// Every live slot of all slabs is sound; their sequences.
pub fn scan_all(slabs: &Slabs, live: &LiveSlots) -> thermocline_device::Result<Vec<u64>> {
    let mut found = Vec::new();
    for (file, slab) in live.iter() {
        slabs.scan(slabs.id_of(file).unwrap(), slab, &mut |_, slot| {
            let sequence = slot.sequence().0;
            assert_eq!(slot.key(), key(sequence));
            assert!(*slot.stored() == value(sequence, slot.stored().len()));
            assert_eq!(slot.is_clean(), sequence % 2 == 0);
            found.push(sequence);
        })?;
    }
    found.sort_unstable();
    Ok(found)
}
