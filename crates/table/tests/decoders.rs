//! Tables under random damage: no panic, no memory that the bytes merely claim, and what is found
//! good reads the same from both ends. See `foundation/tests/decoders/mutation.rs`.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]

#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, check};
use std::path::PathBuf;

/// Read-ahead windows and the cache's table; Zstandard's working memory.
const ALLOWANCE: Allowance = Allowance { fixed_bytes: 4 << 20, per_byte: 64 };

fn golden() -> [Vec<u8>; 3] {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    ["plain.table", "lz4.table", "zstd.table"]
        .map(|name| std::fs::read(folder.join(name)).expect("a golden file"))
}

#[test]
fn damaged_tables_are_refused() {
    let (accepted, runs) = check("table", &golden(), ALLOWANCE, properties::table);
    // A mutation may put back what an earlier one changed.
    assert!(
        accepted * 20 <= runs.max(20),
        "{accepted} of {runs} damaged tables were taken for good"
    );
}

#[test]
fn wrong_bytes_under_right_checksums_are_refused_or_read_consistently() {
    let (accepted, runs) = check("sealed table", &golden(), ALLOWANCE, properties::sealed_table);
    assert!(accepted >= runs / 50, "{accepted} of {runs}: the mutations say nothing of the inside");
}
