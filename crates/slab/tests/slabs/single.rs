//! Slabs of a single record: for what is larger than any slot.

use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{SLAB_BYTES, Store, reopen, scan_all};
use thermocline_device::{ErrorKind, MemoryDevices, Origin};
use thermocline_slab::{SlabShape, record_bytes};

#[test]
fn a_record_larger_than_any_slot_has_a_slab_of_its_own_and_survives() {
    for alignment in [512, 4096] {
        let devices = SimulatedDevices::aligned(Fault::None, alignment);
        let mut store = Store::new(&devices);
        let lens = [8161, 8162, 100, 20_000, 3_000_000];
        let slots = store.flush(1, &lens);
        let singles: Vec<_> = slots
            .iter()
            .map(|slot| store.slabs.shape(slot.slab).unwrap())
            .map(|shape| shape.is_single().then_some(shape.slot_bytes))
            .collect();
        let pages = |count: u32| Some(count * 4096);
        assert_eq!(singles, [None, pages(3), None, pages(5), pages(733)], "8,192 bytes fit a slot");
        for (slot, len) in slots.iter().zip(lens) {
            for hint in [0, 100, 1 << 20] {
                let found = store.slabs.read(*slot, hint).unwrap();
                assert_eq!(found.record_bytes(), record_bytes(11, len));
            }
        }
        let slabs = reopen(&devices.after_power_cut(Fate::Lost), &store.live);
        assert_eq!(scan_all(&slabs, &store.live).unwrap(), [1, 2, 3, 4, 5]);
        assert!(slabs.verify(&slabs.delay_slot_reuse(), &store.live, &mut |_| {}).is_empty());
        let figures = |slabs: &thermocline_slab::Slabs| {
            let classes = slabs.stats().classes;
            classes
                .iter()
                .map(|class| (class.class, class.slot_bytes, class.live))
                .collect::<Vec<_>>()
        };
        assert_eq!(figures(&slabs), figures(&store.slabs), "they count the same when opened");
        assert_eq!(slabs.stats(), store.slabs.stats());
        let single = slabs.stats().classes.into_iter().filter(|class| class.slot_bytes > 8192);
        assert!(single.into_iter().all(|class| class.waste_bytes() == 0), "less than a page");
    }
}

#[test]
fn the_slot_of_a_single_record_is_never_given_to_another_and_goes_with_it() {
    let mut store = Store::new(&MemoryDevices::default());
    let slots = store.flush(1, &[20_000, 20_000]);
    store.kill(&[(slots[0], 1)]);
    store.slabs.set_limit_bytes(0);
    assert_eq!(store.reserve(&[20_000, 19_000, 8000]).slots(), [None, None, None]);
    assert_eq!(store.slabs.sparsest(), None, "there is nowhere to move it");
    assert_eq!(store.remove_empty(), 1);
    assert_eq!(store.slabs.read(slots[0], 0).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap(), [2]);
}

#[test]
fn a_single_record_that_finds_no_room_keeps_no_smaller_one_out() {
    let store = Store::new(&MemoryDevices::default());
    store.slabs.set_limit_bytes(SLAB_BYTES / 2);
    let sizes = [u32::MAX, 100_000, 20_000, 100, 9000];
    let reservation = store.slabs.allocate(&sizes, Origin::Flush).unwrap();
    let given: Vec<bool> = reservation.slots().iter().map(Option::is_some).collect();
    assert_eq!(given, [false, false, true, false, false], "32 KiB: six pages of them");
    drop(reservation);
    assert!(store.slabs.ids().is_empty() && store.slabs.stats().file_bytes == 0);
}

#[test]
fn the_shape_of_a_single_record_is_whole_pages_above_the_smallest_slabs_largest_slot() {
    assert_eq!(SlabShape::single(8192), None);
    let shape = SlabShape::single(8193).unwrap();
    assert_eq!((shape.slots, shape.slot_bytes, shape.file_bytes()), (1, 12_288, 16_384));
    assert_eq!(SlabShape::single(512 << 20).unwrap().slot_bytes, 512 << 20);
    assert_eq!(SlabShape::single((512 << 20) + 1), None);
    assert_eq!(SlabShape::single(u64::from(u32::MAX)), None);
    assert!(!SlabShape::filling(SLAB_BYTES, 8192).is_single());
}
