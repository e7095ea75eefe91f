//! The input formats of `load` under random damage: no panic, errors of one line, and records that
//! read back. See `foundation/tests/decoders/mutation.rs`.
//!
//! The program has no library, so its sources are included here, all but the loader.
#![allow(dead_code, reason = "the program uses what the test does not")]

#[path = "../src/failure.rs"]
mod failure;
#[path = "../src/load"]
mod load {
    pub mod deb822;
    pub mod jsonl;
    pub mod lines;
    #[path = "../../tests/decoders/loader.rs"]
    pub mod loader;
    pub mod tsv;
}
#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;
#[path = "../src/text.rs"]
mod text;

use mutation::{Allowance, check};

/// The buffer of the input; a line of two bytes is a record of two vectors, kept twice over.
const ALLOWANCE: Allowance = Allowance { fixed_bytes: 1 << 20, per_byte: 512 };

fn assert_reaches_inside((accepted, runs): (u64, u64)) {
    assert!(accepted >= runs / 50, "{accepted} of {runs}: the mutations say nothing of the inside");
}

#[test]
fn tab_separated_lines_are_refused_or_read_back() {
    let seeds = [b"key\tvalue\n\t\nk\\tk\\\\\t\\x00\\xfF\ttab\r\nlast\t1".to_vec()];
    assert_reaches_inside(check("load tsv", &seeds, ALLOWANCE, properties::tsv));
}

#[test]
fn json_lines_are_refused_or_read_back() {
    let seeds = [
        "{\"key\": \"k\", \"value\": \"\\u00fc\\n\"}\n\n{\"key_base64\":\"/w==\",\"value\":\"\"}\n",
        "{\"value_base64\": \"AAEC\", \"key\": \"water\"}",
    ];
    let seeds = seeds.map(|text| text.as_bytes().to_vec());
    assert_reaches_inside(check("load jsonl", &seeds, ALLOWANCE, properties::jsonl));
}

#[test]
fn package_indexes_are_refused_or_read_back() {
    let index = "Package: zstd\nVersion: 1.5\nArchitecture: amd64\nDescription: fast\n on\n\t.\n\n\
                 # a comment\nversion: 2\nPACKAGE: a\n\n\nPackage: last\nVersion: 1:2-3";
    let seeds = [index.as_bytes().to_vec()];
    assert_reaches_inside(check("load deb822", &seeds, ALLOWANCE, properties::deb822));
}
