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

fn golden() -> [Vec<u8>; 8] {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    ["plain-v1", "lz4-v1", "zstd-v1", "plain-v2", "lz4-v2", "zstd-v2", "dictionary-v3", "load-v2"]
        .map(|name| std::fs::read(folder.join(format!("{name}.table"))).expect("a golden file"))
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

#[test]
fn blocks_by_themselves_read_the_same_from_both_ends() {
    // Entries, of which one shares a prefix, restarts, their counts; and a block of none.
    let entry = |shared: u8, key: &[u8], value: &[u8]| {
        let head = [shared, key.len() as u8, value.len() as u8];
        [&head[..], key, &1u64.to_le_bytes(), value].concat()
    };
    let entries = [entry(0, b"warm", b"water"), entry(3, b"p", b""), entry(0, b"wet", b"7")];
    let restarts = [0, entries[0].len() + entries[1].len()].map(|at| (at as u32).to_le_bytes());
    let two = [entries.concat(), restarts.concat(), vec![2, 0, 0, 0, 0, 0]].concat();
    let seeds = [two, vec![0; 6]];
    let (accepted, runs) = check("block", &seeds, ALLOWANCE, properties::block);
    assert!(accepted >= runs / 100, "{accepted} of {runs}: nothing of the inside");
}

#[test]
fn index_partitions_by_themselves_read_the_same_from_both_ends() {
    // A whole entry, one that shares with it, one with a word at the next page, and a restart.
    let whole =
        |key: &[u8]| [&[0xf2, key.len() as u8][..], key, &[0x80, 0x20, 0x80, 0x32]].concat();
    let long = [&[0xf1, 2, 1, b't'][..], &7u64.to_le_bytes(), &[0x81, 0x32]].concat();
    let entries = [whole(b"warm"), vec![0x11, b'n', 0x80, 0x32], long, whole(b"zero")];
    let restart = entries[..3].iter().map(Vec::len).sum::<usize>() as u32;
    let restarts = [0, restart].map(u32::to_le_bytes);
    let seed = [entries.concat(), restarts.concat(), vec![2, 0, 0, 0, 0, 0]].concat();
    let check =
        |seeds: &[Vec<u8>]| check("index partition", seeds, ALLOWANCE, properties::index_partition);
    let (accepted, runs) = check(&[seed, vec![0; 6]]);
    assert!(accepted >= runs / 100, "{accepted} of {runs}: nothing of the inside");
}

#[test]
fn footers_and_addresses_read_back_what_they_say() {
    let [plain_v1, _, _, plain, ..] = golden();
    let footers = [plain_v1, plain].map(|table| table[table.len() - 4096..].to_vec());
    check("footer", &footers, ALLOWANCE, properties::footer);
    let values = [vec![5, 7], vec![0x80, 0x40, 0x90, 1, 9, 9]];
    let (accepted, runs) = check("index entry", &values, ALLOWANCE, properties::index_entry);
    assert!(accepted >= runs / 20, "{accepted} of {runs}: nothing of the inside");
}

#[test]
fn filters_pass_what_was_added_whatever_the_hashes() {
    let mut seed = vec![10];
    (0..40u64).for_each(|n| seed.extend(n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()));
    check("filter", &[seed], ALLOWANCE, properties::filter);
}
