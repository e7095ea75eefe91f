//! Power cuts at every change that a flush makes, with records in several slabs, old ones and new.

use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{Store, reopen, scan_all};

const OLD: [usize; 36] = [
    100, 1000, 5000, 100, 1000, 5000, 100, 1000, 5000, 100, 1000, 5000, //
    100, 1000, 5000, 100, 1000, 5000, 100, 1000, 5000, 100, 1000, 5000, //
    100, 1000, 5000, 100, 1000, 5000, 100, 1000, 5000, 100, 1000, 5000,
];
/// Sizes of which there is a slab with gaps, and one of which there is none.
const NEW: [usize; 12] = [100, 1000, 5000, 300, 100, 1000, 5000, 300, 100, 1000, 5000, 300];

/// A store in which every fourth record has died.
fn aged(devices: &SimulatedDevices) -> (Store, Vec<u64>) {
    let mut store = Store::new(devices);
    let slots = store.flush(1, &OLD);
    let dead: Vec<_> = slots.iter().copied().zip(1..).step_by(4).collect();
    store.kill(&dead);
    let left = scan_all(&store.slabs, &store.live).unwrap();
    assert_eq!(left.len(), 27);
    (store, left)
}

fn fates(cut: u64) -> [Fate; 4] {
    [Fate::Kept, Fate::Lost, Fate::Any(cut), Fate::Any(cut + 77)]
}

#[test]
fn what_lived_in_any_slab_survives_every_cut_of_a_flush_into_several() {
    for alignment in [512, 4096] {
        for cut in 0.. {
            let devices = SimulatedDevices::aligned(Fault::None, alignment);
            let (store, left) = aged(&devices);
            devices.set_fault(Fault::PowerCut(cut));
            let sizes: Vec<u32> =
                NEW.iter().map(|len| thermocline_slab::record_bytes(11, *len) as u32).collect();
            let reserved = store.slabs.allocate(&sizes, thermocline_device::Origin::Flush);
            let done = match reserved {
                Ok(reservation) => {
                    let written = store.write(&reservation, 1000, &NEW);
                    reservation.abandon();
                    written.is_ok()
                }
                Err(_) => false,
            };
            for fate in fates(cut) {
                let slabs = reopen(&devices.after_power_cut(fate), &store.live);
                let found = scan_all(&slabs, &store.live).unwrap();
                assert_eq!(found, left, "cut {cut} at alignment {alignment}, {fate:?}");
            }
            if done {
                assert!(cut >= 10, "{cut} changes: four slabs are written and synced");
                break;
            }
        }
    }
}

#[test]
fn a_flush_whose_sync_returned_is_found_in_every_slab_whatever_was_not_synced_is_lost() {
    for alignment in [512, 4096] {
        let devices = SimulatedDevices::aligned(Fault::None, alignment);
        let (mut store, mut left) = aged(&devices);
        let slots = store.flush(1000, &NEW);
        let mut slabs: Vec<_> = slots.iter().map(|slot| slot.slab).collect();
        slabs.sort_unstable();
        slabs.dedup();
        assert_eq!(slabs.len(), 4);
        left.extend(1000..1012);
        for fate in fates(7) {
            let slabs = reopen(&devices.after_power_cut(fate), &store.live);
            assert_eq!(scan_all(&slabs, &store.live).unwrap(), left, "{fate:?}");
        }
    }
}
