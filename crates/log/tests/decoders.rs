//! Logs under random damage: no panic, no memory that the bytes merely claim, records in order. See
//! `foundation/tests/decoders/mutation.rs`.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]

#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, check};
use std::path::PathBuf;

/// A chunk of the file is read at once.
const ALLOWANCE: Allowance = Allowance { fixed_bytes: 1 << 20, per_byte: 32 };

fn golden() -> [Vec<u8>; 2] {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    ["sealed.log", "recycled.log"].map(|name| std::fs::read(folder.join(name)).expect("golden"))
}

#[test]
fn damaged_logs_are_refused_or_end_early() {
    let (accepted, runs) = check("log", &golden(), ALLOWANCE, properties::log);
    assert!(accepted * 2 <= runs.max(20), "{accepted} of {runs} damaged logs were taken for good");
}

#[test]
fn wrong_bytes_under_right_checksums_are_refused_or_read_in_order() {
    // The recycled one has sectors of its earlier life, which sealing turns into its own.
    let [sealed, _] = golden();
    let (accepted, runs) = check("sealed log", &[sealed], ALLOWANCE, properties::sealed_log);
    assert!(accepted >= runs / 20, "{accepted} of {runs}: the mutations say nothing of the inside");
}

#[test]
fn headers_are_written_as_they_were_read() {
    let [sealed, _] = golden();
    let seed = sealed[4096..4096 + 64].to_vec();
    let (accepted, runs) = check("log headers", &[seed], ALLOWANCE, properties::log_headers);
    assert!(accepted >= runs / 20, "{accepted} of {runs}: the mutations say nothing of the inside");
}
