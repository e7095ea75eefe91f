//! Slabs from outside: what was written is read, neighbours survive every power cut, slots are
//! given out in order and once, damage is reported.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod crashes;
mod damage;
mod failures;
#[allow(dead_code, reason = "shared with the tests of the engine")]
#[path = "../../../engine/tests/reliability/hooked.rs"]
mod hooked;
mod long;
mod pages;
mod room;
#[allow(dead_code, reason = "shared with the tests of the device layer")]
#[path = "../../../device/tests/tiers/simulated.rs"]
mod simulated;
mod single;
mod support;

use simulated::{Fate, Fault, SimulatedDevices};
use std::sync::Arc;
use support::{Store, key, reopen, scan_all, value};
use thermocline_device::{Buffer, Devices, ErrorKind, MemoryDevices};
use thermocline_foundation::{Sequence, threads};
use thermocline_slab::packed::pack_plain;
use thermocline_slab::{Record, RecordKind, SlabChange, SlabId, record_bytes};

#[test]
fn records_of_every_size_are_read_alone_in_batches_and_after_reopening() {
    for devices in [&MemoryDevices::default() as &dyn Devices, &SimulatedDevices::new(Fault::None)]
    {
        let mut store = Store::new(devices);
        let lens: Vec<usize> = (0..300).map(|at| at * 27).collect();
        let slots = store.flush(1, &lens);
        for hint in [0, 1, 40, 5000] {
            let asked: Vec<_> = slots.iter().map(|slot| (*slot, hint)).collect();
            let batch = store.slabs.read_batch(&asked);
            for ((sequence, (address, hint)), found) in (1..).zip(asked).zip(batch) {
                let found = found.unwrap();
                assert_eq!(found, store.slabs.read(address, hint).unwrap());
                assert_eq!((found.key(), found.sequence().0), (&key(sequence)[..], sequence));
                assert_eq!(found.compact_value().unwrap(), found.shared_value().unwrap());
            }
        }
        let (live, files) = (store.live.clone(), Arc::clone(&store.files));
        drop((store, files));
        assert_eq!(
            scan_all(&reopen(devices, &live), &live).unwrap(),
            (1..=300).collect::<Vec<_>>()
        );
    }
}

/// Its checksum matches and it is no packed value all the same: its writer was wrong, and no reader
/// gets its bytes for a value.
#[test]
fn an_intact_slot_whose_packed_value_is_none_is_damage() {
    let devices = MemoryDevices::default();
    let mut store = Store::new(&devices);
    let reservation = store.reserve(&[20, 20]);
    let sound = pack_plain(b"the value");
    let records = [&sound[..], b"\x01\x64\0\0\0no LZ4"].into_iter().zip(1..);
    let records: Vec<_> = records
        .zip(reservation.slots())
        .map(|((value, sequence), slot)| {
            let (sequence, kind) = (Sequence(sequence), RecordKind::Put);
            let record = Record { key: b"key", value, packed: true, sequence, kind, clean: false };
            (slot.unwrap(), record)
        })
        .collect();
    store.slabs.sync(&store.slabs.write(&records).unwrap()).unwrap();
    let slots = store.settle(reservation, 1);
    let found = store.slabs.read(slots[0], 0).unwrap();
    assert_eq!(found.shared_value().unwrap(), "the value");
    assert_eq!(found.compact_value().unwrap(), "the value");
    let found = store.slabs.read(slots[1], 0).unwrap();
    assert!(found.shared_value().is_err() && found.compact_value().is_err());
    let problems = store.slabs.verify(&store.slabs.delay_slot_reuse(), &store.live, &mut |_| {});
    let [(_, error)] = &problems[..] else { panic!("{problems:?}") };
    assert!(
        error.kind() == ErrorKind::Corrupt && error.to_string().contains("decompress"),
        "{error}"
    );
}

#[test]
fn acknowledged_neighbours_survive_every_cut_of_a_later_write_in_their_pages() {
    let lens = [100; 60];
    for cut in 0.. {
        let devices = SimulatedDevices::new(Fault::None);
        let mut store = Store::new(&devices);
        let slots = store.flush(1, &lens);
        let dead: Vec<_> = slots.iter().copied().zip(1..).step_by(3).collect();
        store.kill(&dead);
        let reservation = store.reserve(&[100; 20]);
        devices.set_fault(Fault::PowerCut(cut));
        let done = store.write(&reservation, 1000, &[100; 20]).is_ok();
        reservation.abandon();
        for fate in [Fate::Kept, Fate::Lost, Fate::Any(cut), Fate::Any(cut + 77)] {
            let after = devices.after_power_cut(fate);
            let found = scan_all(&reopen(&after, &store.live), &store.live).unwrap();
            assert_eq!(found.len(), 40, "cut {cut}, {fate:?}");
        }
        if done {
            assert!(cut >= 2, "no cut fell into the write");
            break;
        }
    }
}

#[test]
fn rot_of_each_byte_of_a_live_slot_is_reported_with_file_and_slot() {
    let mut store = Store::new(&MemoryDevices::default());
    let slots = store.flush(1, &[30, 30, 30]);
    let file = store.files.open_file(store.slabs.file_number(slots[1].slab).unwrap()).unwrap();
    let offset = store.slabs.shape(slots[1].slab).unwrap().offset(slots[1].slot);
    let hold = store.slabs.delay_slot_reuse();
    for at in 0..record_bytes(11, 30) {
        let good = file.read(offset + at, 1).unwrap();
        let bad = Buffer::copy_of(&[good[0] ^ 0x10]);
        file.write(offset + at, bad).1.unwrap();
        let error = store.slabs.read(slots[1], 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("slot 1") && error.to_string().contains(".slab"));
        assert!(scan_all(&store.slabs, &store.live).is_err());
        assert_eq!(store.slabs.verify(&hold, &store.live, &mut |_| {}).len(), 1, "byte {at}");
        file.write(offset + at, Buffer::copy_of(&good)).1.unwrap();
    }
    assert!(store.slabs.verify(&hold, &store.live, &mut |_| {}).is_empty());
}

#[test]
fn an_older_intact_record_of_the_same_slot_is_found_by_the_sum() {
    let mut store = Store::new(&MemoryDevices::default());
    let slot = store.flush(1, &[30])[0];
    let file = store.files.open_file(store.slabs.file_number(slot.slab).unwrap()).unwrap();
    let offset = store.slabs.shape(slot.slab).unwrap().offset(slot.slot);
    let old = file.read(offset, 61).unwrap();
    store.kill(&[(slot, 1)]);
    assert_eq!(store.flush(2, &[30]), [slot]);
    file.write(offset, Buffer::copy_of(&old)).1.unwrap();
    assert_eq!(store.slabs.read(slot, 0).unwrap().sequence(), Sequence(1), "it is intact");
    let error = scan_all(&store.slabs, &store.live).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("sum"), "{error}");
}

#[test]
fn slots_come_ascending_from_the_emptiest_slab_and_are_held_back_while_asked() {
    let mut store = Store::new(&MemoryDevices::default());
    let shape = 61_440 / 1056;
    let slots = store.flush(1, &vec![1024; shape * 2]);
    assert!(slots.is_sorted() && slots.last().unwrap().slab == SlabId(1));
    store.kill(&[
        (slots[3], 4),
        (slots[shape], shape as u64 + 1),
        (slots[shape + 4], shape as u64 + 5),
    ]);
    let some = store.reserve(&[1024; 3]);
    let expected = [slots[shape], slots[shape + 4], slots[3]].map(Some);
    assert_eq!(some.slots(), expected);
    drop(some);
    let hold = store.slabs.delay_slot_reuse();
    store.kill(&[(slots[7], 8)]);
    store.slabs.set_limit_bytes(0);
    let four = store.reserve(&[1024; 4]);
    assert_eq!(four.slots()[..3], expected);
    assert_eq!(four.slots()[3], None, "held, and the limit allows no new slab");
    drop(four);
    drop(hold);
    let now = [slots[3], slots[7], slots[shape], slots[shape + 4]].map(Some);
    assert_eq!(store.reserve(&[1024; 4]).slots(), now);
}

#[test]
fn a_dropped_reservation_leaves_no_slab_and_an_empty_one_can_be_taken_out() {
    let mut store = Store::new(&MemoryDevices::default());
    drop(store.reserve(&[100; 10]));
    assert!(store.slabs.ids().is_empty() && store.files.files().is_empty());
    assert_eq!(store.slabs.stats().file_bytes, 0);
    let slots = store.flush(1, &[100]);
    assert!(store.slabs.take_empty(None, 9).is_empty());
    store.kill(&[(slots[0], 1)]);
    let taken = store.slabs.take_empty(None, 9);
    assert_eq!(taken.len(), 1);
    store.live.apply(&SlabChange::removal(taken[0].1)).unwrap();
    store.slabs.remove(&[taken[0].0]).unwrap();
    assert_eq!(store.slabs.read(slots[0], 0).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(store.files.files().is_empty() && store.slabs.stats().classes.is_empty());
}

#[test]
fn threads_that_write_neighbouring_slots_lose_nothing() {
    let store = Store::new(&SimulatedDevices::new(Fault::None));
    let all = store.reserve(&[100; 120]);
    let slots: Vec<_> = all.slots().iter().map(|slot| slot.unwrap()).collect();
    let writers = (0..4).map(|thread| {
        let (slabs, slots) = (Arc::clone(&store.slabs), slots.clone());
        threads::spawn("writer", move || {
            for at in (thread..120).step_by(4) {
                let sequence = at as u64 + 1;
                let (key, value) = (key(sequence), value(sequence, 100));
                let (sequence, kind) = (Sequence(sequence), RecordKind::Put);
                let record = Record {
                    key: &key,
                    value: &value,
                    packed: false,
                    sequence,
                    kind,
                    clean: false,
                };
                slabs.write(&[(slots[at], record)]).unwrap();
                assert_eq!(slabs.read(slots[at], 0).unwrap().sequence(), sequence);
            }
        })
        .unwrap()
    });
    writers.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    for (sequence, slot) in (1..).zip(slots) {
        assert_eq!(store.slabs.read(slot, 0).unwrap().sequence(), Sequence(sequence));
    }
}

/// The tests tested: each finds the mistake that it is there for.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_slots_are_found() {
    use thermocline_foundation::{Planted, planted::with};
    let histories: [(Planted, fn()); 4] = [
        (
            Planted::SlotChecksumNotChecked,
            rot_of_each_byte_of_a_live_slot_is_reported_with_file_and_slot,
        ),
        (
            Planted::SlotNeighboursNotKept,
            acknowledged_neighbours_survive_every_cut_of_a_later_write_in_their_pages,
        ),
        (
            Planted::SlotSyncSkipsLastSlab,
            acknowledged_neighbours_survive_every_cut_of_a_later_write_in_their_pages,
        ),
        (Planted::SlotSumsNotCompared, an_older_intact_record_of_the_same_slot_is_found_by_the_sum),
    ];
    for (bug, history) in histories {
        assert!(std::panic::catch_unwind(|| with(bug, history)).is_err(), "{bug:?} is not found");
    }
}
