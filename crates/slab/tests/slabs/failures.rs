//! What fails and what is left then: syncs, writes, making slabs, devices without space, files that
//! are not what the manifest says.

use crate::simulated::{Fault, SimulatedDevices};
use crate::support::{SLAB_BYTES, Store, scan_all, try_reopen};
use thermocline_device::{Buffer, ErrorKind, FileContext, FileKind, MemoryDevices, Origin};
use thermocline_foundation::{FileNumber, Place};
use thermocline_slab::{LiveSlots, SlabShape, decoders, record_bytes};

const LENS: [usize; 6] = [100, 1000, 5000, 100, 1000, 5000];

#[test]
fn a_write_or_sync_that_fails_fails_the_flush_and_leaves_what_was_there() {
    let mut failures = 0;
    for fault in 0.. {
        let devices = SimulatedDevices::new(Fault::None);
        let mut store = Store::new(&devices);
        let slots = store.flush(1, &[&LENS[..], &LENS].concat());
        store.kill(&slots.iter().copied().zip(1..).step_by(2).collect::<Vec<_>>());
        let (stats, left) = (store.slabs.stats(), scan_all(&store.slabs, &store.live).unwrap());
        let reservation = store.reserve(&LENS);
        devices.set_fault(Fault::Once(fault));
        let written = store.write(&reservation, 100, &LENS);
        let tried = devices.changes();
        devices.set_fault(Fault::None);
        drop(reservation);
        assert_eq!(store.slabs.stats(), stats, "fault {fault}: what was reserved is given back");
        assert_eq!(scan_all(&store.slabs, &store.live).unwrap(), left, "fault {fault}");
        if written.is_ok() {
            assert_eq!((fault, tried), (failures, failures), "each of the changes failed once");
            break;
        }
        failures += 1;
        store.flush(200, &LENS);
        assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), left.len() + 6);
    }
    assert!(failures >= 6, "three slabs are written and synced");
}

#[test]
fn a_slab_that_cannot_be_made_leaves_no_file_and_takes_no_room() {
    let sizes = LENS.map(|len| record_bytes(11, len) as u32);
    let mut failures = 0;
    for fault in 0.. {
        let devices = SimulatedDevices::new(Fault::None);
        let store = Store::new(&devices);
        devices.set_fault(Fault::Once(fault));
        let reserved = store.slabs.allocate(&sizes, Origin::Flush);
        devices.set_fault(Fault::None);
        match reserved {
            Ok(reservation) => {
                assert_eq!(reservation.new_slabs().len(), 3);
                break;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
        }
        failures += 1;
        assert!(store.slabs.ids().is_empty() && store.files.files().is_empty(), "fault {fault}");
        assert_eq!(store.slabs.stats().file_bytes, 0, "fault {fault}");
    }
    assert!(failures >= 9, "each of three files is made, allocated and written");
}

#[test]
fn where_the_device_is_full_records_get_no_slot_and_nothing_is_left_behind() {
    for full in 0..3 {
        let devices = SimulatedDevices::new(Fault::None);
        let mut store = Store::new(&devices);
        devices.set_fault(Fault::Full(full));
        let reservation = store.reserve(&[1000; 3]);
        assert_eq!(reservation.slots().iter().flatten().count(), if full < 2 { 0 } else { 3 });
        drop(reservation);
        devices.set_fault(Fault::None);
        assert!(store.slabs.ids().is_empty() && store.files.files().is_empty(), "full {full}");
        assert_eq!(store.slabs.stats().file_bytes, 0, "full {full}");
        assert_eq!(store.flush(1, &[1000; 3]).len(), 3);
    }
}

#[test]
fn where_the_tier_is_full_what_is_free_is_given_out_and_the_rest_gets_none() {
    let mut store = Store::with(&MemoryDevices::default(), SLAB_BYTES, 300 << 10);
    let slots = (SLAB_BYTES as usize - 4096) / 1056;
    let asked = vec![1024; 10 * slots];
    let reservation = store.reserve(&asked);
    let given = reservation.slots().iter().flatten().count();
    assert_eq!(given % slots, 0, "whole slabs");
    assert!((2 * slots..=4 * slots).contains(&given), "{given} slots");
    let mut slots = reservation.slots().iter();
    assert!(slots.by_ref().take(given).all(Option::is_some) && slots.all(Option::is_none));
    drop(reservation);
    let kept = store.flush(1, &asked[..given]);
    assert!(store.reserve(&[1024]).slots()[0].is_none());
    store.kill(&[(kept[5], 6)]);
    assert_eq!(store.reserve(&[1024, 1024]).slots(), [Some(kept[5]), None]);
}

#[test]
fn a_slab_that_was_published_and_not_committed_serves_no_reader() {
    let mut store = Store::new(&MemoryDevices::default());
    let reservation = store.reserve(&[100]);
    let [(number, _)] = reservation.new_slabs()[..] else { panic!("one new slab") };
    store.files.publish(&[number]).unwrap();
    drop(reservation);
    assert_eq!(store.slabs.ids().len(), 1, "the manifest may or may not have it");
    let slot = store.flush(1, &[100])[0];
    assert_ne!(store.slabs.file_number(slot.slab), Some(number));
    assert!(store.slabs.take_empty(None, 9).is_empty());
}

/// The error with which a store of one slab is not opened after `change`, which says what its
/// manifest lists.
fn refused(change: impl FnOnce(&Store, FileNumber) -> LiveSlots) -> (ErrorKind, String) {
    let devices = MemoryDevices::default();
    let mut store = Store::new(&devices);
    let slot = store.flush(1, &[100])[0];
    let live = change(&store, store.slabs.file_number(slot.slab).unwrap());
    drop(store);
    let error = try_reopen(&devices, &live).unwrap_err();
    (error.kind(), error.to_string())
}

/// The same after a change of the header page.
fn header_refused(change: impl FnOnce(&Place, &mut [u8])) -> (ErrorKind, String) {
    refused(|store, file| {
        let slab = store.files.open_file(file).unwrap();
        let mut page = slab.read(0, 4096).unwrap();
        change(&slab.place(0), &mut page);
        slab.write(0, page).1.unwrap();
        store.live.clone()
    })
}

#[test]
fn a_header_page_that_is_damaged_or_newer_refuses_the_opening_and_says_why() {
    let (kind, text) = header_refused(|_, page| page[100] ^= 1);
    assert!(kind == ErrorKind::Corrupt && text.contains("checksum"), "{text}");
    let (kind, text) = header_refused(|place, page| {
        page[8] = 2;
        decoders::seal_header(place, page);
    });
    assert!(kind == ErrorKind::NewerFormat && text.contains("slab format 2"), "{text}");
    let (kind, text) = header_refused(|place, page| {
        page[16] -= 1;
        decoders::seal_header(place, page);
    });
    assert!(kind == ErrorKind::Corrupt && text.contains("the manifest says"), "{text}");
    let (kind, text) = header_refused(|place, page| {
        decoders::seal_header(&Place { file: FileNumber(place.file.0 + 1), ..*place }, page);
    });
    assert!(kind == ErrorKind::Corrupt && text.contains(".slab"), "{text}");
}

#[test]
fn a_file_that_is_short_missing_or_no_slab_refuses_the_opening() {
    for len in [SLAB_BYTES - 4096, SLAB_BYTES / 2, 4096] {
        let (kind, text) = refused(|store, file| {
            store.files.open_file(file).unwrap().truncate(len).unwrap();
            store.live.clone()
        });
        assert!(kind == ErrorKind::Corrupt && text.contains("ends"), "{text}");
    }
    let (kind, _) = refused(|store, file| {
        store.files.delete_files(&[file]).unwrap();
        store.live.clone()
    });
    assert_eq!(kind, ErrorKind::NotFound);
    let (kind, text) = refused(|store, _| {
        let kind = FileKind::Table { level: 0 };
        let context = FileContext { kind, origin: Origin::Foreground };
        let table = store.files.create_file(context, 4096).unwrap();
        table.write(0, Buffer::zeroed(4096)).1.unwrap();
        store.files.publish(&[table.number()]).unwrap();
        let mut other = LiveSlots::default();
        let shape = SlabShape { slot_bytes: 128, slots: 480 };
        other.apply(&other.change(table.number(), Some(shape), &[], &[])).unwrap();
        other
    });
    assert!(kind == ErrorKind::Corrupt && text.contains("lists it as a slab"), "{text}");
}
