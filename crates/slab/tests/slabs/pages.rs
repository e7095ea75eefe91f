//! Writes in whole pages: devices that ask for them, runs that are longer than a write, slots that
//! are longer than a page or than a write.

use crate::hooked::{Call, HookedDevices};
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{SLAB_BYTES, Store, key, reopen, scan_all, value};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use thermocline_device::{Error, ErrorKind, MemoryDevices, Result};
use thermocline_foundation::Sequence;
use thermocline_slab::{LiveSlots, Record, RecordKind, record_bytes};

/// Everything lives as it should, also after the power was cut.
fn assert_durable(devices: &SimulatedDevices, store: &Store, records: usize) {
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), records);
    let after = devices.after_power_cut(Fate::Lost);
    let slabs = reopen(&after, &store.live);
    assert_eq!(scan_all(&slabs, &store.live).unwrap().len(), records);
}

#[test]
fn records_of_every_size_keep_their_neighbours_where_the_device_wants_whole_pages() {
    let devices = SimulatedDevices::aligned(Fault::None, 4096);
    let mut store = Store::new(&devices);
    let lens: Vec<usize> = (0..300).map(|at| at * 27).collect();
    let slots = store.flush(1, &lens);
    let dead: Vec<_> = slots.iter().copied().zip(1..).step_by(3).collect();
    store.kill(&dead);
    let again: Vec<usize> = lens.iter().copied().step_by(3).collect();
    let reused = store.flush(1001, &again);
    let beside = reused.iter().filter(|slot| slots.contains(slot)).count();
    assert!(beside > 50, "{beside} of 100 are written beside the living");
    assert_durable(&devices, &store, 300);
    let asked: Vec<_> = reused.iter().map(|slot| (*slot, 100)).collect();
    for (sequence, found) in (1001..).zip(store.slabs.read_batch(&asked)) {
        assert_eq!(found.unwrap().sequence(), Sequence(sequence));
    }
}

/// A slab of records of half a page, of which every eighth is dead; its reads, which a hook sees.
fn sparse(on_read: impl Fn() -> Result<()> + Send + Sync + 'static) -> Store {
    let hook = move |call, _: &Path, name: &str| match call == Call::Read && name.ends_with("slab")
    {
        true => on_read(),
        false => Ok(()),
    };
    let devices = HookedDevices::new(Arc::new(MemoryDevices::default()), Arc::new(hook));
    let mut store = Store::with(&devices.aligned(4096), 4 << 20, 1 << 30);
    let slots = store.flush(1, &[2000; 1000]);
    store.kill(&slots.iter().copied().zip(1..).step_by(8).collect::<Vec<_>>());
    store
}

#[test]
fn what_is_to_be_kept_is_read_in_few_pieces_together_with_what_lies_between() {
    let reads = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&reads);
    let mut store = sparse(move || {
        seen.fetch_add(1, Relaxed);
        Ok(())
    });
    reads.store(0, Relaxed);
    let before = store.slabs.kept_reads();
    assert_eq!(store.flush(5001, &[2000; 125]).len(), 125);
    let kept = store.slabs.kept_reads();
    let (count, bytes) = (kept.reads - before.reads, kept.bytes - before.bytes);
    assert_eq!(reads.load(Relaxed), count);
    // Two megabytes in pieces of up to a quarter of one; chunks that are written together are some.
    assert!((8..=16).contains(&count), "{count} reads for 125 slots among the living");
    assert!(bytes <= 2 << 20, "{bytes} bytes");
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), 1000);
}

#[test]
fn bytes_in_flight_are_bounded_however_much_is_written() {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let hook = Arc::new(|_: Call, _: &Path, _: &str| Ok(()));
    let devices = HookedDevices::new(Arc::new(MemoryDevices::default()), hook);
    let devices = devices.in_flight(Arc::new(move |bytes| {
        seen.fetch_max(bytes, Relaxed);
    }));
    let mut store = Store::with(&devices, 32 << 20, 1 << 30);
    store.flush(1, &[60_000; 400]);
    let most = most.load(Relaxed);
    assert!((4 << 20..=8 << 20).contains(&most), "{most} bytes of 24 million");
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), 400);
}

#[test]
fn a_piece_that_cannot_be_read_is_read_page_by_page_before_a_write_fails() {
    for (failures, writes) in [(1, true), (u64::MAX, false)] {
        let left = Arc::new(AtomicU64::new(0));
        let failing = Arc::clone(&left);
        let mut store = sparse(move || {
            let fails = |left: u64| left.checked_sub(1);
            match failing.fetch_update(Relaxed, Relaxed, fails) {
                Ok(_) => Err(Error::new(ErrorKind::Io, "a sector is gone")),
                Err(_) => Ok(()),
            }
        });
        let lens = [2000; 125];
        let reservation = store.reserve(&lens);
        left.store(failures, Relaxed);
        let written = store.write(&reservation, 5001, &lens);
        left.store(0, Relaxed);
        assert_eq!(written.is_ok(), writes);
        match written {
            Ok(()) => drop(store.settle(reservation, 5001)),
            Err(error) => assert!(error.to_string().contains("a sector is gone"), "{error}"),
        }
        let records = if writes { 1000 } else { 875 };
        assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), records);
    }
}

#[test]
fn a_run_longer_than_a_write_takes_few_writes_and_is_found_whole() {
    for alignment in [512, 4096] {
        let devices = SimulatedDevices::aligned(Fault::None, alignment);
        let mut store = Store::with(&devices, 4 << 20, 1 << 30);
        let lens = [3000; 1000];
        let reservation = store.reserve(&lens);
        devices.set_fault(Fault::None);
        store.write(&reservation, 1, &lens).unwrap();
        assert_eq!(devices.changes(), 4, "three writes of at most 1 MiB, and a sync");
        let slots = store.settle(reservation, 1);
        assert!(slots.iter().all(|slot| slot.slab == slots[0].slab));
        store.kill(&slots.iter().copied().zip(1..).skip(1).step_by(2).collect::<Vec<_>>());
        store.flush(5001, &[3000; 500]);
        assert_durable(&devices, &store, 1000);
    }
}

#[test]
fn records_of_many_pages_have_slots_up_to_an_eighth_of_a_slab() {
    for alignment in [512, 4096] {
        let devices = SimulatedDevices::aligned(Fault::None, alignment);
        let mut store = Store::with(&devices, 1 << 20, 1 << 30);
        let lens: Vec<usize> = (0..12).map(|at| 8000 + at * 11_000).collect();
        let slots = store.flush(1, &lens);
        for (slot, len) in slots.iter().zip(&lens) {
            let shape = store.slabs.shape(slot.slab).unwrap();
            let (bytes, slot_bytes) = (record_bytes(11, *len), u64::from(shape.slot_bytes));
            assert!(!shape.is_single() && slot_bytes >= bytes && slot_bytes - bytes <= bytes / 8);
            assert!(shape.file_bytes() <= 1 << 20);
        }
        store.kill(&slots.iter().copied().zip(1..).step_by(2).collect::<Vec<_>>());
        assert_eq!(store.flush(101, &lens.iter().copied().step_by(2).collect::<Vec<_>>()).len(), 6);
        assert_durable(&devices, &store, 12);
    }
}

#[test]
fn small_records_in_slots_longer_than_a_write_leave_the_living_between_them_alone() {
    let devices = SimulatedDevices::aligned(Fault::None, 4096);
    let mut store = Store::with(&devices, 32 << 20, 1 << 30);
    let lens = [3_900_000; 7];
    let slots = store.flush(1, &lens);
    assert!(slots.iter().all(|slot| slot.slab == slots[0].slab), "slots of nearly 4 MiB");
    // Gaps of several writes' length, between neighbours and around a record that lives.
    let rewritten = [0, 1, 3, 5, 6];
    store.kill(&rewritten.map(|at| (slots[at], at as u64 + 1)));
    let reservation = store.reserve(&[3_900_000; 5]);
    let records: Vec<_> = (101..106).map(|at| (key(at), value(at, 40))).collect();
    let records: Vec<_> = reservation
        .slots()
        .iter()
        .zip(records.iter().zip(101..))
        .map(|(slot, ((key, value), sequence))| {
            let clean = sequence % 2 == 0;
            let (sequence, kind) = (Sequence(sequence), RecordKind::Put);
            (slot.unwrap(), Record { key, value, packed: false, sequence, kind, clean })
        })
        .collect();
    let touched = store.slabs.write(&records).unwrap();
    store.slabs.sync(&touched).unwrap();
    assert_eq!(store.settle(reservation, 101), rewritten.map(|at| slots[at]));
    assert_durable(&devices, &store, 7);
}

#[test]
fn a_record_that_is_larger_than_its_slot_is_refused_and_nothing_is_written() {
    let mut store = Store::new(&MemoryDevices::default());
    let slots = store.flush(1, &[100, 100]);
    let (key, value) = (key(9), value(9, 200));
    let (sequence, kind) = (Sequence(9), RecordKind::Put);
    let record = Record { key: &key, value: &value, packed: false, sequence, kind, clean: false };
    let error = store.slabs.write(&[(slots[1], record)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut beyond = slots[1];
    beyond.slot = (SLAB_BYTES / 100) as u32;
    let error = store.slabs.write(&[(beyond, record)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap(), [1, 2]);
    assert_eq!(scan_all(&store.slabs, &LiveSlots::default()).unwrap(), [0; 0]);
}
