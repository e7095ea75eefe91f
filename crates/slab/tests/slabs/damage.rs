//! What a slab with damaged slots still tells, and that it never tells what is not so.

use crate::support::{SLAB_BYTES, Store, key, scan_all};
use std::ops::Range;
use std::sync::Arc;
use thermocline_device::{Buffer, ErrorKind, File, MemoryDevices, Unreadable};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_slab::{
    DamagedHeader, LiveSlots, RecordKind, Salvage, SlabLive, SlabRemains, Slabs, SlotAddress,
    record_bytes,
};

const NEWEST: Sequence = Sequence(1000);
const LENS: [usize; 6] = [30, 30, 30, 30, 30, 30];

/// A store with six records in one slab, of sequences from 1.
struct Damaged {
    store: Store,
    slots: Vec<SlotAddress>,
    file: Arc<File>,
}

impl Damaged {
    fn new() -> Self {
        let mut store = Store::new(&MemoryDevices::default());
        let slots = store.flush(1, &LENS);
        let number = store.slabs.file_number(slots[0].slab).unwrap();
        let file = store.files.open_file(number).unwrap();
        assert!(slots.iter().all(|slot| slot.slab == slots[0].slab));
        Self { store, slots, file }
    }

    fn live(&self) -> (FileNumber, SlabLive) {
        let (number, live) = self.store.live.iter().next().unwrap();
        (number, live.clone())
    }

    fn offset(&self, slot: usize) -> u64 {
        let address = self.slots[slot];
        self.store.slabs.shape(address.slab).unwrap().offset(address.slot)
    }

    fn read(&self, slot: usize) -> Vec<u8> {
        self.file.read(self.offset(slot), record_bytes(11, 30) as usize).unwrap().to_vec()
    }

    fn write(&self, slot: usize, bytes: &[u8]) {
        self.file.write(self.offset(slot), Buffer::copy_of(bytes)).1.unwrap();
    }

    fn change(&self, slot: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.read(slot);
        change(&mut bytes);
        self.write(slot, &bytes);
    }

    fn salvage(&self) -> Salvage<(SlotAddress, Vec<u8>, u64)> {
        let (_, live) = self.live();
        let mut keep = |address, record: &thermocline_slab::Slot| {
            (address, record.key().to_vec(), record.sequence().0)
        };
        self.store.slabs.salvage(self.slots[0].slab, &live, NEWEST, &mut keep).unwrap()
    }

    /// The sequences of what is proved, each with its own key and slot.
    fn proved(&self, salvage: &Salvage<(SlotAddress, Vec<u8>, u64)>) -> Vec<u64> {
        for (address, found, sequence) in &salvage.proved {
            assert_eq!(*found, key(*sequence));
            assert_eq!(*address, self.slots[*sequence as usize - 1]);
        }
        salvage.proved.iter().map(|(_, _, sequence)| *sequence).collect()
    }
}

#[test]
fn a_slot_of_which_any_one_bit_flipped_tells_its_key_and_is_damaged_all_the_same() {
    let damaged = Damaged::new();
    let hold = damaged.store.slabs.delay_slot_reuse();
    for bit in 0..record_bytes(11, 30) as usize * 8 {
        let flip = |bytes: &mut [u8]| bytes[bit / 8] ^= 1 << (bit % 8);
        damaged.change(3, flip);
        let salvage = damaged.salvage();
        assert_eq!(damaged.proved(&salvage), [1, 2, 3, 4, 5, 6], "bit {bit}");
        assert_eq!(salvage.newest_missing, None, "bit {bit}");
        let [error] = &salvage.damage[..] else { panic!("bit {bit}: {:?}", salvage.damage) };
        let problems = damaged.store.slabs.verify(&hold, &damaged.store.live, &mut |_| {});
        for text in [error.to_string(), problems[0].1.to_string()] {
            let offset = format!("offset {}", damaged.offset(3));
            for part in ["key00000004", "slot 3", ".slab", "tier 0", &offset] {
                assert!(text.contains(part), "bit {bit}: {text} lacks {part}");
            }
        }
        let error = damaged.store.slabs.read(damaged.slots[3], 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "nothing of it is given out");
        damaged.change(3, flip);
    }
    assert!(damaged.salvage().damage.is_empty());
}

#[test]
fn of_one_slot_without_a_key_the_sum_tells_how_new_its_record_is() {
    for slot in 0..LENS.len() {
        for damage in [vec![0; 61], vec![0xff; 61], (0..61).collect()] {
            let damaged = Damaged::new();
            damaged.write(slot, &damage);
            let salvage = damaged.salvage();
            let others: Vec<_> = (1..=6).filter(|other| *other != slot as u64 + 1).collect();
            assert_eq!(damaged.proved(&salvage), others);
            assert_eq!(salvage.newest_missing, Some(Sequence(slot as u64 + 1)));
            assert!(salvage.damage[0].to_string().contains("its key is not known"));
        }
    }
}

/// Bits of the value: headers claim what the sum confirms.
#[test]
fn of_several_slots_without_keys_sequences_that_add_up_are_believed() {
    let damaged = Damaged::new();
    for slot in [1, 4] {
        damaged.change(slot, |bytes| bytes[40..50].fill(0x55));
    }
    let salvage = damaged.salvage();
    assert_eq!(damaged.proved(&salvage), [1, 3, 4, 6]);
    assert_eq!((salvage.newest_missing, salvage.damage.len()), (Some(Sequence(5)), 2));
}

#[test]
fn where_sequences_do_not_add_up_nothing_of_the_slab_is_proved() {
    for (first, second) in [(vec![0; 61], vec![0; 61]), (vec![0x55; 61], vec![0; 61])] {
        let damaged = Damaged::new();
        damaged.write(1, &first);
        damaged.write(4, &second);
        let salvage = damaged.salvage();
        assert_eq!(damaged.proved(&salvage), [0; 0]);
        assert_eq!((salvage.newest_missing, salvage.damage.len()), (Some(NEWEST), 2));
    }
}

/// Its checksum is right: a write was lost.
#[test]
fn a_slot_that_holds_an_older_record_is_found_and_its_record_not_believed() {
    let mut damaged = Damaged::new();
    let old = damaged.read(2);
    damaged.store.kill(&[(damaged.slots[2], 3)]);
    assert_eq!(damaged.store.flush(7, &[30]), [damaged.slots[2]]);
    assert_eq!(damaged.salvage().damage.len(), 0);
    damaged.write(2, &old);
    let salvage = damaged.salvage();
    assert_eq!(damaged.proved(&salvage), [1, 2, 4, 5, 6]);
    assert_eq!(salvage.newest_missing, Some(Sequence(7)));
    assert!(salvage.damage[0].to_string().contains("older record"), "{:?}", salvage.damage);
    // One more is lost, and nothing adds up: any of them may be the older one.
    damaged.write(4, &[0; 61]);
    let salvage = damaged.salvage();
    assert_eq!(damaged.proved(&salvage), [0; 0]);
    assert_eq!(salvage.newest_missing, Some(NEWEST));
}

#[test]
fn a_damaged_header_page_costs_no_record() {
    let damaged = Damaged::new();
    let (number, live) = damaged.live();
    damaged.file.write(16, Buffer::copy_of(&[7])).1.unwrap();
    let hold = damaged.store.slabs.delay_slot_reuse();
    let problems = damaged.store.slabs.verify(&hold, &damaged.store.live, &mut |_| {});
    assert_eq!(problems.len(), 1, "{problems:?}");
    drop(hold);
    let (files, lives) = (Arc::clone(&damaged.store.files), damaged.store.live.clone());
    let open = |live: &LiveSlots| Slabs::open_damaged(Arc::clone(&files), SLAB_BYTES, live);
    assert!(Slabs::open(Arc::clone(&files), SLAB_BYTES, &lives).is_err());
    let (slabs, damage) = open(&lives).unwrap();
    let [DamagedHeader { error, is_long_enough: true, .. }] = &damage[..] else {
        panic!("{damage:?}")
    };
    assert!(error.to_string().contains("header page"), "{error}");
    assert_eq!(scan_all(&slabs, &lives).unwrap(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(slabs.id_of(number).and_then(|id| slabs.shape(id)), Some(live.shape));
}

#[test]
fn a_file_that_was_cut_off_costs_what_was_behind() {
    let damaged = Damaged::new();
    damaged.file.truncate(damaged.offset(4)).unwrap();
    let salvage = damaged.salvage();
    assert_eq!(salvage.damage.len(), 2, "{:?}", salvage.damage);
    assert_eq!(salvage.newest_missing, Some(NEWEST), "nothing says which they were");
    let damaged = Damaged::new();
    damaged.file.truncate(damaged.offset(5)).unwrap();
    let salvage = damaged.salvage();
    assert_eq!(damaged.proved(&salvage), [1, 2, 3, 4, 5]);
    assert_eq!(salvage.newest_missing, Some(Sequence(6)));
}

/// Where no manifest says which slots are live, each intact record counts, and what is written and
/// not intact is counted.
#[test]
fn the_file_of_a_slab_tells_its_records_without_a_manifest() {
    let damaged = Damaged::new();
    let found = |broken: &[Range<u32>]| {
        let remains = SlabRemains::open(Arc::clone(&damaged.file)).unwrap();
        let mut found = Vec::new();
        let counted = remains.for_each(Unreadable::Refused, &mut |slot, record| {
            found.push((slot, record.sequence().0));
        });
        assert_eq!(counted.unwrap(), broken);
        for (slot, sequence) in &found {
            let record = remains.read(*slot).unwrap();
            assert_eq!((record.sequence().0, record.kind()), (*sequence, RecordKind::Put));
        }
        found
    };
    let all = found(&[]);
    let slots = damaged.slots.iter().map(|address| address.slot);
    assert!(all.iter().map(|(slot, _)| *slot).eq(slots) && all.len() == LENS.len());
    damaged.change(2, |bytes| bytes[25] ^= 1);
    let others: Vec<_> = all.iter().copied().filter(|(slot, _)| *slot != all[2].0).collect();
    let second = all[2].0..all[2].0 + 1;
    assert_eq!(found(&[second]), others);
    damaged.change(2, |bytes| bytes.fill(0));
    assert_eq!(found(&[]), others, "as if it was never written");
}

#[test]
fn a_header_page_with_a_flipped_bit_is_believed_without_a_manifest_and_one_with_more_is_not() {
    let damaged = Damaged::new();
    let whole = damaged.file.read(0, 4096).unwrap().to_vec();
    let open = |page: &[u8]| {
        damaged.file.write(0, Buffer::copy_of(page)).1.unwrap();
        SlabRemains::open(Arc::clone(&damaged.file)).map(|remains| remains.shape())
    };
    let shape = open(&whole).unwrap();
    for at in (0..4096).step_by(5) {
        let mut page = whole.clone();
        page[at] ^= 1 << (at % 8);
        assert_eq!(open(&page).unwrap(), shape, "byte {at}");
        page[(at + 9) % 4096] ^= 2;
        page[(at + 700) % 4096] ^= 4;
        assert_eq!(open(&page).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
    assert_eq!(open(&[0; 4096]).unwrap_err().kind(), ErrorKind::Corrupt);
}
