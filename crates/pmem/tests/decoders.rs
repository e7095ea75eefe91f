//! Regions and their parts under random damage: no panic, no memory that the bytes merely claim.
//! See `foundation/tests/decoders/mutation.rs`. The golden file holds the format fast;
//! `THERMOCLINE_BLESS=1 cargo test -p thermocline-pmem --test decoders` writes it anew, after a
//! change of the format with its version and its page.
#![cfg(not(any(shuttle, loom)))]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]

#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, check, check_times};
use std::path::PathBuf;
use thermocline_pmem::decoders::{
    self, PARTS, example_region, example_states, examples, read_region,
};

const ALLOWANCE: Allowance = Allowance { fixed_bytes: 2 << 20, per_byte: 64 };

fn compare(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == bytes, "{name}");
}

#[test]
fn the_format_is_that_of_the_golden_files() {
    compare("region-v1.bin", &example_region().unwrap());
    for (example, name) in examples().iter().zip(0..PARTS) {
        compare(&format!("region-part-{name}-v1.bin"), example);
    }
    let (records, entries) = read_region(&example_region().unwrap()).unwrap();
    assert_eq!((records.len(), entries.len()), (4, 40));
}

#[test]
fn damaged_regions_are_refused_or_read_without_a_panic() {
    let seeds = [example_region().unwrap()];
    check_times(200, "region", &seeds, ALLOWANCE, properties::region);
}

#[test]
fn damaged_parts_are_refused() {
    let (accepted, runs) = check("region_part", &examples(), ALLOWANCE, properties::region_part);
    assert!(accepted * 2 <= runs.max(20), "{accepted} of {runs} damaged parts were taken for good");
    check("sealed_region_part", &examples(), ALLOWANCE, properties::sealed_region_part);
}

/// Every byte of a region that is changed is reported, or changes nothing that is read. Only the
/// last group of an arena may be missing: it looks torn.
#[test]
fn every_byte_that_rots_is_reported_or_harmless() {
    let good = example_region().unwrap();
    let (records, entries) = read_region(&good).unwrap();
    let mut reported = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        match read_region(&bytes) {
            Err(_) => reported += 1,
            Ok((found_records, found_entries)) => {
                assert!(found_entries == entries, "byte {at} changes the index");
                let is_first_group = found_records.iter().all(|record| record.1.0 <= 2);
                let is_torn = is_first_group && found_records.len() == 2;
                assert!(found_records == records || is_torn, "byte {at} changes records");
            }
        }
    }
    assert!(reported > 3000, "{reported} bytes count");
}

/// Parts of an older state are intact by themselves, and not with the rest: lines, nodes and whole
/// chunks. What they change is reported, but for a memtable that had not been begun by then.
#[test]
fn parts_of_an_older_state_are_reported_or_harmless() {
    let [old, new] = example_states().unwrap();
    let [older, newer] = [&old, &new].map(|bytes| read_region(bytes).unwrap());
    assert!(older.0.len() < newer.0.len() && older.1 != newer.1);
    let mut reported = 0;
    for unit in [64, 512, 4096] {
        for at in (0..new.len()).step_by(unit) {
            let mut bytes = new.clone();
            bytes[at..at + unit].copy_from_slice(&old[at..at + unit]);
            match read_region(&bytes) {
                Err(_) => reported += 1,
                Ok((records, entries)) => {
                    assert!(entries == newer.1, "{unit} bytes at {at} change the index");
                    let is_torn = records == older.0;
                    assert!(records == newer.0 || is_torn, "{unit} bytes at {at} change records");
                }
            }
        }
    }
    assert!(reported > 10, "{reported} parts differ");
}

#[test]
fn lines_that_are_zeros_or_elsewhere_are_reported_or_harmless() {
    let new = example_region().unwrap();
    let (_, entries) = read_region(&new).unwrap();
    let zeros = vec![0; new.len()];
    for (old, what) in [(&zeros, "zeros"), (&shifted(&new), "the next lines")] {
        for at in (0..new.len()).step_by(64) {
            let mut bytes = new.clone();
            bytes[at..at + 64].copy_from_slice(&old[at..at + 64]);
            if let Ok((_, found)) = read_region(&bytes) {
                assert!(found == entries, "{what} at {at} change the index");
            }
        }
    }
    assert!(decoders::rewrite(3, &new[..512]).is_none());
}

/// Each line replaced by the one behind it.
fn shifted(bytes: &[u8]) -> Vec<u8> {
    [&bytes[64..], &bytes[..64]].concat()
}
