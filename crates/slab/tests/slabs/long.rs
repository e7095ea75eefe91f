//! Long records: what writing, reading and scanning one takes grows as it does. Counted in bytes
//! that are allocated and that are put through checksums.

use crate::support::{Store, reopen, scan_all};
use thermocline_device::MemoryDevices;
use thermocline_slab::record_bytes;

/// Bytes for one of `len`: allocated by writing, sealed by it, and allocated by reading it alone
/// and by a scan.
fn costs(len: usize) -> [u64; 4] {
    let devices = MemoryDevices::default();
    let mut store = Store::new(&devices);
    let mut slots = Vec::new();
    let written = allocation_counter::measure(|| slots = store.flush(1, &[100, len, 200]));
    let sealed = store.slabs.sealed_bytes();
    let read = allocation_counter::measure(|| {
        let found = store.slabs.read(slots[1], 0).unwrap();
        assert_eq!(found.record_bytes(), record_bytes(11, len));
    });
    let live = store.live.clone();
    drop(store);
    let slabs = reopen(&devices, &live);
    let scanned = allocation_counter::measure(|| {
        assert_eq!(scan_all(&slabs, &live).unwrap(), [1, 2, 3]);
    });
    [written.bytes_total, sealed, read.bytes_total, scanned.bytes_total]
}

#[test]
fn a_record_of_twice_the_size_takes_twice_as_much_to_write_to_read_and_to_scan() {
    let sizes = [4usize, 8, 16, 32].map(|mib| mib << 20);
    let all = sizes.map(costs);
    for ([small, large], len) in all.array_windows().zip(sizes) {
        let parts = ["writing", "sealing", "reading", "scanning"];
        for ((small, large), part) in small.iter().zip(large).zip(parts) {
            let ratio = *large as f64 / *small as f64;
            assert!(ratio < 2.2, "{part} {} bytes takes {ratio} times {len}", 2 * len);
        }
    }
    for (costs, len) in all.iter().zip(sizes) {
        let records = record_bytes(11, len) + record_bytes(11, 100) + record_bytes(11, 200);
        assert_eq!(costs[1], records, "each record is sealed once");
    }
}

/// A record that ends where a write does, one byte before and after, and in its head.
#[test]
fn records_that_a_write_cuts_anywhere_are_whole() {
    const WRITE: usize = 1 << 20;
    let head = record_bytes(11, 0) as usize;
    let mut store = Store::with(&MemoryDevices::default(), 32 << 20, 1 << 30);
    let mut sequences = 0;
    for len in [WRITE - 40, WRITE - 21, WRITE - 20, WRITE - 1, WRITE, WRITE + 1, 3 * WRITE - 9] {
        for lens in [[len - head, 100, 500], [len, 2 * WRITE, len], [4060, len, len]] {
            store.flush(sequences + 1, &lens);
            sequences += 3;
        }
    }
    // Reads what each is and compares its checksum.
    assert_eq!(scan_all(&store.slabs, &store.live).unwrap(), (1..=sequences).collect::<Vec<_>>());
}
