//! Header pages, slots and live slots under random damage: no panic, no memory that the bytes
//! merely claim. See `foundation/tests/decoders/mutation.rs`. The golden files hold the formats
//! fast; `THERMOCLINE_BLESS=1 cargo test -p thermocline-slab --test decoders` writes them anew,
//! after a change of the format with its version and its page.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]

#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, check};
use std::path::PathBuf;
use thermocline_foundation::{DatabaseId, FileNumber, Place, Sequence};
use thermocline_slab::packed::unpack;
use thermocline_slab::{LiveSlots, Record, RecordKind, SlabShape, decoders};

/// A slab's bitmap takes at most 128 KiB, and 13 bytes can claim one.
const ALLOWANCE: Allowance = Allowance { fixed_bytes: 2 << 20, per_byte: 64 << 10 };

fn compare(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}");
}

/// 100 times `w`, packed with LZ4: one literal, 93 bytes that repeat the byte before, six literals.
const PACKED: &[u8] = b"\x01\x64\0\0\0\x1fw\x01\0\x4a\x60wwwwww";

fn slot(value: &[u8], packed: bool) -> Vec<u8> {
    let (database, file) = (DatabaseId([0x5a; 16]), FileNumber(1));
    let (sequence, kind) = (Sequence(77), RecordKind::Put);
    let record = Record { key: b"warm", value, packed, sequence, kind, clean: true };
    let mut bytes = vec![0; record.bytes() as usize];
    record.encode(&Place { database, file, offset: 4096 + 128 }, &mut bytes);
    bytes
}

fn header() -> Vec<u8> {
    let place = Place { database: DatabaseId([0x5a; 16]), file: FileNumber(1), offset: 0 };
    decoders::header(&place, SlabShape { slot_bytes: 128, slots: 480 })
}

/// A change that brings a slab, and the state after it and another.
fn live() -> (Vec<u8>, Vec<u8>) {
    let mut live = LiveSlots::default();
    let shape = SlabShape { slot_bytes: 128, slots: 480 };
    let born: Vec<_> = (3..90).map(|slot| (slot, Sequence(u64::from(slot)))).collect();
    let first = live.change(FileNumber(1), Some(shape), &born, &[]);
    live.apply(&first).unwrap();
    let odd: Vec<_> = (1..480).step_by(3).map(|slot| (slot, Sequence(9))).collect();
    live.apply(&live.change(FileNumber(5), Some(shape), &odd, &[])).unwrap();
    let (mut change, mut state) = (Vec::new(), Vec::new());
    first.encode(&mut change);
    live.encode(&mut state);
    (change, state)
}

#[test]
fn the_formats_are_those_of_the_golden_files() {
    let (change, state) = live();
    compare("slab-header-v1.bin", &header());
    compare("slot-v1.bin", &slot(b"water floats", false));
    compare("slot-packed-v1.bin", &slot(PACKED, true));
    assert_eq!(unpack(PACKED.into()).unwrap(), [b'w'; 100][..]);
    compare("slab-change-v1.bin", &change);
    compare("live-slots-v1.bin", &state);
}

#[test]
fn damaged_slots_are_refused() {
    let seeds = [slot(b"water floats", false), slot(PACKED, true)];
    let (accepted, runs) = check("slab_slot", &seeds, ALLOWANCE, properties::slab_slot);
    assert!(accepted * 2 <= runs.max(20), "{accepted} of {runs} damaged slots were taken for good");
    check("sealed_slab_slot", &seeds, ALLOWANCE, properties::sealed_slab_slot);
}

#[test]
fn damaged_header_pages_are_refused() {
    let seeds = [header()];
    let (accepted, runs) = check("slab_header", &seeds, ALLOWANCE, properties::slab_header);
    // Some changes put back what was there.
    assert!(
        accepted * 20 <= runs.max(20),
        "{accepted} of {runs} damaged pages were taken for good"
    );
    check("sealed_slab_header", &seeds, ALLOWANCE, properties::sealed_slab_header);
}

#[test]
fn damaged_changes_and_states_are_refused_or_written_as_they_were_read() {
    let (change, state) = live();
    check("slab_change", &[change], ALLOWANCE, properties::slab_change);
    check("live_slots", &[state], ALLOWANCE, properties::live_slots);
}
