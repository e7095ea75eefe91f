//! Room: slots of larger classes at the limit, emptying, taking out and putting back, figures.

use crate::hooked::{Call, HookedDevices};
use crate::support::{SLAB_BYTES, Store, reopen, scan_all};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use thermocline_device::{ErrorKind, MemoryDevices, Origin};
use thermocline_slab::{SlabChange, SlabId, Slabs, SlotAddress};

/// Slots of 1056 bytes in a slab.
const SLOTS: usize = (SLAB_BYTES as usize - 4096) / 1056;

fn store() -> Store {
    Store::new(&MemoryDevices::default())
}

fn kill(store: &mut Store, slots: &[SlotAddress], at: &[usize]) {
    let dead: Vec<_> = at.iter().map(|at| (slots[*at], *at as u64 + 1)).collect();
    store.kill(&dead);
}

#[test]
fn larger_slots_serve_where_the_limit_allows_no_new_slab_up_to_twice_the_size() {
    let mut store = store();
    let slots = store.flush(1, &[1024; 10]);
    kill(&mut store, &slots, &[2, 5]);
    let record = |bytes: usize| bytes - 31;
    let reservation = store.reserve(&[record(600)]);
    assert_eq!(reservation.new_slabs().len(), 1, "while there may be, a slab of their own");
    drop(reservation);
    store.slabs.set_limit_bytes(SLAB_BYTES);
    assert_eq!(store.slabs.stats().bytes_free(), (SLOTS as u64 - 8) * 1056);
    let reservation = store.reserve(&[record(600), record(512), record(1056), record(1057)]);
    let slots_given = reservation.slots();
    // Records of the class come first; half a slot is too large for the smallest.
    assert_eq!(slots_given[2], Some(slots[2]));
    assert_eq!(slots_given[0], Some(slots[5]));
    assert_eq!((slots_given[1], slots_given[3]), (None, None));
    drop(reservation);
    let given = store.flush(101, &[record(600)]);
    assert_eq!(given, [slots[2]]);
    assert_eq!(store.slabs.read(slots[2], 600).unwrap().record_bytes(), 600);
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), 9);
}

#[test]
fn a_slab_gets_the_room_of_a_deleted_one_once_the_file_of_that_is_gone() {
    let slabs = Arc::new(OnceLock::<Arc<Slabs>>::new());
    let of_hook = Arc::clone(&slabs);
    let hook = move |call: Call, _: &Path, name: &str| {
        if call == Call::Delete && name.ends_with(".slab") {
            let slabs = of_hook.get().unwrap();
            assert!(slabs.stats().file_bytes > 0, "it is there still");
            assert_eq!(slabs.allocate(&[1000], Origin::Flush).unwrap().slots(), [None]);
        }
        Ok(())
    };
    let memory = Arc::new(MemoryDevices::default());
    let store = Store::new(&HookedDevices::new(memory, Arc::new(hook)));
    slabs.set(Arc::clone(&store.slabs)).unwrap();
    let reservation = store.reserve(&[1000]);
    store.slabs.set_limit_bytes(store.slabs.stats().file_bytes);
    drop(reservation);
    assert_eq!(store.slabs.stats().file_bytes, 0);
    assert_eq!(store.reserve(&[1000]).new_slabs().len(), 1);
}

#[test]
fn the_sparsest_slab_is_one_whose_records_fit_into_free_slots_of_others() {
    let mut store = store();
    assert_eq!(store.slabs.sparsest(), None);
    let slots = store.flush(1, &vec![1024; 2 * SLOTS]);
    assert_eq!(store.slabs.sparsest(), None, "both are full");
    // Slab 1 keeps 3 records, slab 0 has 2 gaps.
    kill(&mut store, &slots, &[7, 9]);
    let most: Vec<usize> = (SLOTS..2 * SLOTS - 3).collect();
    kill(&mut store, &slots, &most);
    assert_eq!(store.slabs.sparsest(), None, "three records do not fit into two gaps");
    kill(&mut store, &slots, &[11]);
    assert_eq!(store.slabs.sparsest(), Some(SlabId(1)));
    let some = store.reserve(&[1024]);
    assert_eq!(some.slots()[0].unwrap().slab, SlabId(1));
    assert_eq!(store.slabs.sparsest(), None, "not while a writer is in it");
    drop(some);
    let hold = store.slabs.delay_slot_reuse();
    kill(&mut store, &slots, &[2 * SLOTS - 1]);
    assert_ne!(store.slabs.sparsest(), Some(SlabId(1)), "nor while a slot of it is held");
    drop(hold);
    assert_eq!(store.slabs.sparsest(), Some(SlabId(1)));
    kill(&mut store, &slots, &[2 * SLOTS - 2, 2 * SLOTS - 3]);
    assert_ne!(store.slabs.sparsest(), Some(SlabId(1)), "one without a record is taken out");
    assert_eq!(store.slabs.take_empty(None, 9).len(), 1);
}

#[test]
fn a_closed_slab_gives_out_no_slots_until_all_that_closed_it_are_done() {
    let mut store = store();
    let slots = store.flush(1, &vec![1024; 2 * SLOTS]);
    let most: Vec<usize> = (SLOTS..2 * SLOTS - 1).collect();
    kill(&mut store, &slots, &most);
    kill(&mut store, &slots, &[3]);
    store.slabs.set_limit_bytes(0);
    let closed = store.slabs.close(SlabId(1));
    assert_eq!(store.reserve(&[1024; 2]).slots(), [Some(slots[3]), None]);
    assert_eq!(store.slabs.sparsest(), None, "it is being emptied already");
    let again = store.slabs.close(SlabId(1));
    drop(closed);
    assert_eq!(store.reserve(&[1024; 2]).slots(), [Some(slots[3]), None]);
    // Its one record moves, and the slab is empty.
    let moved = store.flush(1001, &[1024]);
    assert_eq!(moved, [slots[3]]);
    kill(&mut store, &slots, &[2 * SLOTS - 1]);
    assert!(store.slabs.take_empty(None, 9).is_empty(), "not before it is done");
    drop(again);
    let taken = store.slabs.take_empty(None, 9);
    assert_eq!(taken.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [SlabId(1)]);
    drop(store.slabs.close(SlabId(1)));
    assert!(store.reserve(&[1024]).slots()[0].is_none(), "closing does not put it back");
}

#[test]
fn a_slab_that_was_taken_out_gives_out_no_slot() {
    let mut store = store();
    let slots = store.flush(1, &vec![1024; 2 * SLOTS]);
    let class = store.slabs.stats().classes[0].class;
    kill(&mut store, &slots, &(0..2 * SLOTS).collect::<Vec<_>>());
    store.slabs.set_limit_bytes(0);
    let hold = store.slabs.delay_slot_reuse();
    assert!(store.slabs.take_empty(None, 9).is_empty(), "frees are held");
    drop(hold);
    let other = thermocline_slab::SizeClass(class.0 + 1);
    assert!(store.slabs.take_empty(Some(other), 9).is_empty());
    let taken = store.slabs.take_empty(Some(class), 1);
    assert_eq!(taken.len(), 1, "as many as were asked for");
    let kept = SlabId(1 - taken[0].0.0);
    let all = store.reserve(&vec![1024; 2 * SLOTS]);
    assert!(all.slots().iter().flatten().all(|slot| slot.slab == kept));
    assert_eq!(all.slots().iter().flatten().count(), SLOTS);
    drop(all);
    assert_eq!(store.remove_empty(), 1, "the other one");
    assert_eq!(store.slabs.ids(), [taken[0].0]);
}

#[test]
fn a_slab_that_was_taken_out_keeps_its_file_while_frees_are_held_since_before_its_edit() {
    let mut store = store();
    let slots = store.flush(1, &[1024]);
    kill(&mut store, &slots, &[0]);
    let taken = store.slabs.take_empty(None, 9);
    let holds = [store.slabs.delay_slot_reuse(), store.slabs.delay_slot_reuse()];
    let live = store.live.clone();
    store.live.apply(&SlabChange::removal(taken[0].1)).unwrap();
    store.slabs.remove(&[taken[0].0]).unwrap();
    assert!(store.slabs.verify(&holds[0], &live, &mut |_| {}).is_empty());
    assert!(store.files.open_file(taken[0].1).is_ok(), "it can be copied");
    let [first, second] = holds;
    drop(first);
    assert!(store.files.open_file(taken[0].1).is_ok());
    drop(second);
    assert_eq!(store.files.open_file(taken[0].1).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(store.slabs.ids().is_empty() && store.slabs.stats().file_bytes == 0);
}

#[test]
fn slabs_that_were_made_with_another_length_go_on_as_they_are() {
    let devices = MemoryDevices::default();
    let mut store = Store::with(&devices, 1 << 20, 1 << 30);
    let slots = store.flush(1, &[100_000, 100_000, 1000]);
    store.kill(&[(slots[1], 2)]);
    let (live, class) = (store.live.clone(), store.slabs.stats().classes[1]);
    drop(store);
    let slabs = reopen(&devices, &live);
    assert_eq!(scan_all(&slabs, &live).unwrap(), [1, 3]);
    assert_eq!(slabs.stats().classes[1], class);
    let sizes = [1031, 100_031];
    let reservation = slabs.allocate(&sizes, Origin::Flush).unwrap();
    let shapes: Vec<_> = reservation.new_slabs().iter().map(|(_, shape)| *shape).collect();
    assert!(matches!(shapes[..], [shape] if shape.is_single()), "too large for the new length");
    assert_eq!(reservation.slots()[0].map(|slot| slot.slab), Some(slots[2].slab));
}

#[test]
fn figures_add_up_through_the_life_of_slots() {
    let mut store = store();
    let limit = 5 * SLAB_BYTES + 100;
    store.slabs.set_limit_bytes(limit);
    assert_eq!(store.slabs.bytes_to_come(limit), 5 * SLAB_BYTES, "whole slabs");
    let slots = store.flush(1, &[1024; 10]);
    let hold = store.slabs.delay_slot_reuse();
    kill(&mut store, &slots, &[4]);
    let reserved = store.reserve(&[1015, 1024]);
    let stats = store.slabs.stats();
    let [class] = stats.classes[..] else { panic!("one class in {stats:?}") };
    let figures = (class.slabs, class.slots, class.live, class.free, class.reserved, class.held);
    let count = SLOTS as u64;
    assert_eq!(figures, (1, count, 9, count - 12, 2, 1));
    assert_eq!((class.slot_bytes, class.empty_slabs, class.record_bytes_mean), (1056, 0, 1055));
    assert_eq!(stats.bytes_live(), 9 * 1056);
    assert_eq!(stats.bytes_free(), (count - 12) * 1056);
    assert_eq!(stats.waste_bytes(), 9);
    assert_eq!((stats.file_bytes, stats.limit_bytes), (class.file_bytes, limit));
    let left = (limit - stats.file_bytes) / SLAB_BYTES * SLAB_BYTES;
    assert_eq!(store.slabs.bytes_to_come(limit), left);
    store.slabs.set_limit_bytes(u64::MAX);
    assert_eq!(store.slabs.bytes_to_come(limit), left, "though an overdraft goes beyond it");
    store.slabs.set_limit_bytes(limit);
    drop((reserved, hold));
    let class = store.slabs.stats().classes[0];
    assert_eq!((class.live, class.free, class.reserved, class.held), (9, count - 9, 0, 0));
    store.flush(101, &[5000]);
    let stats = store.slabs.stats();
    assert_eq!(
        stats.classes.iter().map(|class| class.slot_bytes).collect::<Vec<_>>(),
        [1056, 5120]
    );
    assert_eq!(stats.file_bytes, stats.classes.iter().map(|class| class.file_bytes).sum::<u64>());
    assert_eq!(store.slabs.bytes_to_come(SLAB_BYTES), 0, "more is there than there may be");
}

#[test]
fn slabs_of_a_size_are_short_at_first_and_longer_as_it_has_more() {
    let mut store = Store::with(&MemoryDevices::default(), 16 * SLAB_BYTES, 1 << 30);
    store.slabs.set_slab_bytes_min(SLAB_BYTES);
    let lengths = |store: &Store| -> Vec<u64> {
        let lengths = store.slabs.ids().into_iter().map(|id| store.slabs.shape(id).unwrap());
        lengths.map(|shape| shape.file_bytes().div_ceil(SLAB_BYTES)).collect()
    };
    store.flush(1, &[1024, 3000, 5000]);
    assert_eq!(lengths(&store), [1, 1, 1], "one of each size");
    store.flush(101, &[1024; 2 * SLOTS]);
    assert_eq!(lengths(&store), [1, 1, 1, 1, 1]);
    let mut first = 1001;
    for _ in 0..30 {
        store.flush(first, &[1024; 4 * SLOTS]);
        first += 4 * SLOTS as u64;
    }
    let grown = lengths(&store);
    assert!(grown.is_sorted(), "{grown:?}");
    assert_eq!(grown.last(), Some(&16), "never longer than slabs may be");
    assert!(grown.len() < 30, "{grown:?}");
    // Where there is no room for a long one, a short one will do.
    let file_bytes = store.slabs.stats().file_bytes;
    store.slabs.set_limit_bytes(file_bytes + 5 * SLAB_BYTES);
    let free = store.slabs.stats().classes[0].free as usize;
    let reservation = store.reserve(&vec![1024; free + 1]);
    assert!(reservation.slots().iter().all(Option::is_some));
    let shapes: Vec<_> = reservation.new_slabs().iter().map(|(_, shape)| *shape).collect();
    assert!(matches!(shapes[..], [shape] if shape.file_bytes() <= SLAB_BYTES), "{shapes:?}");
}

#[test]
fn a_few_large_records_get_slabs_of_their_own_where_the_shortest_has_no_slots_of_their_size() {
    let mut store = Store::with(&MemoryDevices::default(), 16 * SLAB_BYTES, 1 << 30);
    store.slabs.set_slab_bytes_min(SLAB_BYTES);
    let shapes = |reservation: &thermocline_slab::Reservation| -> Vec<_> {
        reservation.new_slabs().iter().map(|(_, shape)| *shape).collect()
    };
    let few = store.reserve(&[20_000; 7]);
    assert_eq!(shapes(&few).len(), 7);
    assert!(shapes(&few).iter().all(|shape| shape.is_single()));
    drop(few);
    // Of sizes that share slots of 20 KiB.
    let slots = store.flush(1, &[20_000, 18_500, 19_000, 20_000, 20_000, 20_000, 20_000, 20_000]);
    assert!(slots.iter().all(|slot| slot.slab == slots[0].slab), "eight fill one");
    store.kill(&[(slots[3], 4)]);
    let reservation = store.reserve(&[20_000; 2]);
    assert_eq!(reservation.slots()[0], Some(slots[3]), "what is free comes first");
    assert!(matches!(shapes(&reservation)[..], [shape] if shape.is_single()));
}

#[test]
fn a_reservation_grows_by_all_records_of_a_batch_or_none_and_is_committed_in_parts() {
    let mut store = store();
    let size = 11 + 20 + 1024;
    let mut reservation = store.slabs.allocate_all(&[size; 10], Origin::Flush).unwrap().unwrap();
    store.slabs.set_limit_bytes(SLAB_BYTES);
    assert!(reservation.extend(&[size; 20], Origin::Flush).unwrap());
    assert_eq!(reservation.new_slabs().len(), 1, "the slab made for it serves it on");
    assert!(store.slabs.allocate_all(&[size], Origin::Flush).unwrap().is_none(), "and no other");
    let before = store.slabs.stats();
    assert!(!reservation.extend(&[size; SLOTS], Origin::Flush).unwrap());
    assert_eq!((reservation.slots().len(), store.slabs.stats()), (30, before));
    store.write(&reservation, 1, &[1024; 30]).unwrap();
    let first = reservation.split_first(10);
    assert_eq!((first.slots().len(), reservation.slots().len()), (10, 20));
    assert_eq!((first.new_slabs().len(), reservation.new_slabs().len()), (1, 0));
    store.settle(first, 1);
    let class = |store: &Store| store.slabs.stats().classes[0];
    assert_eq!((class(&store).live, class(&store).reserved), (10, 20));
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), 10);
    let second = reservation.split_first(10);
    drop(reservation);
    assert_eq!((class(&store).live, class(&store).reserved), (10, 10), "the rest is given back");
    store.settle(second, 11);
    assert_eq!((class(&store).live, class(&store).reserved), (20, 0));
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap().len(), 20);
}

#[test]
fn a_size_that_most_have_gets_slots_of_its_own_and_the_others_share_coarse_ones() {
    let record = |bytes: usize| bytes - 31;
    let sizes = |store: &Store, slots: &[SlotAddress]| -> Vec<u32> {
        slots.iter().map(|slot| store.slabs.shape(slot.slab).unwrap().slot_bytes).collect()
    };
    for min in [SLAB_BYTES, 16 * SLAB_BYTES] {
        let mut store = Store::with(&MemoryDevices::default(), 16 * SLAB_BYTES, 1 << 30);
        store.slabs.set_slab_bytes_min(min);
        let slots = store.flush(1, &[record(1048); 20]);
        assert_eq!(sizes(&store, &slots), [1056; 20]);
        let slots = store.flush(101, &[record(1048); 3]);
        assert_eq!(sizes(&store, &slots), [1056; 3], "few, but slots of their own are free");
        // As many of each size from 1,025 to 1,088 bytes: none of these is the one.
        let many: Vec<_> = (1025..=1088).cycle().take(640).map(record).collect();
        let slots = store.flush(201, &many);
        let given = sizes(&store, &slots);
        assert!(given.iter().all(|bytes| [1056, 1088].contains(bytes)), "{given:?}");
        let (own, shared) = (given.iter().filter(|bytes| **bytes == 1056), 1088);
        assert!(own.count() <= 160 && given.ends_with(&[shared; 10]), "{given:?}");
        assert_eq!(store.slabs.stats().classes.len(), 2);
    }
}

#[test]
fn records_find_free_slots_of_older_sizes_and_of_their_own_where_there_is_no_room_for_a_slab() {
    let mut store = Store::with(&MemoryDevices::default(), 16 * SLAB_BYTES, 1 << 30);
    store.slabs.set_slab_bytes_min(SLAB_BYTES);
    // Alone they get one of four sizes to a power of two, as all did before there were more.
    let shared = store.flush(1, &[1049 - 31; 2]);
    let own = store.flush(101, &[1056 - 31; SLOTS]);
    let shape = store.slabs.shape(shared[0].slab).unwrap();
    assert_eq!(shape.slot_bytes, 1280);
    store.slabs.set_limit_bytes(0);
    let many = store.reserve(&[1048 - 31; 20]);
    assert!(many.slots().iter().all(|slot| slot.is_some_and(|slot| slot.slab == shared[0].slab)));
    drop(many);
    let fill = vec![1048 - 31; shape.slots as usize - 2];
    store.flush(201, &fill);
    store.kill(&[(own[7], 108), (own[9], 110)]);
    let few = store.reserve(&[1048 - 31; 3]);
    assert_eq!(few.slots(), [Some(own[7]), Some(own[9]), None]);
}
