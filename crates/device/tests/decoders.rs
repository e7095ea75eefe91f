//! The files of the namespace under random damage: no panic, no memory that the bytes merely claim,
//! nothing read back otherwise than it was. See `foundation/tests/decoders/mutation.rs`.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]

#[path = "../../foundation/tests/decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, check};
use std::cell::Cell;
use std::path::PathBuf;
use thermocline_foundation::FileNumber;
use thermocline_foundation::coding::put_varint;

/// A chunk of a journal is read at once; texts take a parser's tables.
const FILES: Allowance = Allowance { fixed_bytes: 1 << 20, per_byte: 64 };
const TEXTS: Allowance = Allowance { fixed_bytes: 128 << 10, per_byte: 512 };

fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    std::fs::read(path).expect("a golden file")
}

/// The mutations must get past the checksums where those are made right.
fn assert_reaches_inside((accepted, runs): (u64, u64)) {
    assert!(accepted >= runs / 20, "{accepted} of {runs}: the mutations say nothing of the inside");
}

#[test]
fn damaged_journals_are_refused_or_go_on() {
    let seeds = [golden("journal-v1.bin")];
    let (accepted, runs) = check("journal", &seeds, FILES, properties::journal);
    assert!(
        accepted * 2 <= runs.max(20),
        "{accepted} of {runs} damaged journals were taken for good"
    );
    assert_reaches_inside(check("sealed journal", &seeds, FILES, properties::sealed_journal));
}

#[test]
fn damaged_file_maps_are_refused_or_go_on() {
    let seeds = [golden("file-map-v1.bin")];
    let (accepted, runs) = check("file map", &seeds, FILES, properties::file_map);
    assert!(accepted * 2 <= runs.max(20), "{accepted} of {runs} damaged maps were taken for good");
    assert_reaches_inside(check("sealed file map", &seeds, FILES, properties::sealed_file_map));
}

#[test]
fn a_map_that_reserves_numbers_beyond_all_is_damage_and_the_last_ones_run_out() {
    let reserving = |until: u64| {
        let mut payload = vec![1, 1, 2];
        put_varint(&mut payload, until);
        properties::open_map_of(&payload)
    };
    let error = reserving(u64::MAX).expect_err("no such number").to_string();
    assert!(error.contains("damaged") && error.contains("is the last"), "{error}");
    let mut map = reserving(1 << 62).expect("the last number");
    assert_eq!(map.next(), FileNumber(1 << 62));
    let error = map.allocate_number().expect_err("there is none left").to_string();
    assert!(error.contains("is the last"), "{error}");
}

#[test]
fn a_map_that_lists_what_is_never_published_is_damage() {
    // Reserves numbers up to 9 and adds file 1 on tier 0.
    let listing = |kind: u8| properties::open_map_of(&[1, 1, 2, 9, 3, 1, kind, 0, 0, 0]);
    assert_eq!(listing(5).expect("a slab may be listed").state().files.len(), 1);
    let error = listing(6).expect_err("a copy ends with its process").to_string();
    assert!(error.contains("no file kind [6, 0]"), "{error}");
    let error = listing(7).expect_err("a cache is no part of the database").to_string();
    assert!(error.contains("no file kind [7, 0]"), "{error}");
}

#[test]
fn damaged_cache_files_say_nothing() {
    let seeds = [golden("cache-file-v1.bin")];
    let (accepted, runs) = check("cache file", &seeds, FILES, properties::cache_file);
    // Flips in blocks are their tables' affair.
    assert!(accepted * 10 <= runs.max(10) * 9, "{accepted} of {runs} were taken for good");
    assert_reaches_inside(check("sealed cache file", &seeds, FILES, properties::sealed_cache_file));
}

#[test]
fn damaged_lists_of_cache_lives_are_none_or_read_back() {
    let seeds = [golden("cache-lives-v1.txt")];
    let (accepted, runs) = check("cache lives", &seeds, TEXTS, properties::cache_lives);
    assert!(accepted * 20 <= runs.max(20), "{accepted} of {runs} were taken for good");
    let sealed = properties::sealed_cache_lives;
    assert_reaches_inside(check("sealed cache lives", &seeds, TEXTS, sealed));
}

#[test]
fn damaged_identities_are_refused_or_repaired() {
    let seeds = [golden("tier-identity-v1.bin")];
    // The other copy answers where one is damaged.
    assert_reaches_inside(check("tier identity", &seeds, FILES, properties::tier_identity));
    let sealed = properties::sealed_tier_identity;
    assert_reaches_inside(check("sealed tier identity", &seeds, FILES, sealed));
}

/// None where one is longer.
fn flipped_bits(seed: &[u8], data: &[u8]) -> Option<u32> {
    let bits = seed.iter().zip(data).map(|(one, other)| (one ^ other).count_ones());
    (seed.len() == data.len()).then(|| bits.sum())
}

#[test]
fn edited_home_files_are_refused_or_read_back() {
    let names = ["database-home-v1.toml", "database-home-v2.toml", "database-home-cache-v1.toml"];
    let seeds = names.map(golden);
    // A single flipped bit is turned back.
    let turned_back = Cell::new(0);
    let property = |data: &[u8]| {
        let is_accepted = properties::home(data);
        let is_flip = seeds.iter().any(|seed| flipped_bits(seed, data) == Some(1));
        turned_back.set(turned_back.get() + u64::from(is_accepted && is_flip));
        is_accepted
    };
    let (accepted, runs) = check("home", &seeds, TEXTS, property);
    let accepted = accepted - turned_back.get();
    assert!(
        accepted * 20 <= runs.max(20),
        "{accepted} of {runs} edited home files were taken for good"
    );
    assert_reaches_inside(check("sealed home", &seeds, TEXTS, properties::sealed_home));
}

#[test]
fn edited_files_of_hosts_directories_are_refused_or_read_back() {
    let seeds = [golden("names-home-v1.toml")];
    let (accepted, runs) = check("names home", &seeds, TEXTS, properties::names_home);
    assert!(accepted * 20 <= runs.max(20), "{accepted} of {runs} edited files were taken for good");
    assert_reaches_inside(check("sealed names home", &seeds, TEXTS, properties::sealed_names_home));
    let seeds = [golden("names-link-v1.txt")];
    assert_reaches_inside(check("link text", &seeds, TEXTS, properties::link_text));
}

#[test]
fn edited_profiles_and_reports_of_fio_are_refused_or_read_back() {
    let seeds = [golden("tier-profile-v1.toml")];
    let (accepted, runs) = check("tier profile", &seeds, TEXTS, properties::tier_profile);
    assert!(accepted * 20 <= runs.max(20), "{accepted} of {runs} edited files were taken for good");
    let sealed = properties::sealed_tier_profile;
    assert_reaches_inside(check("sealed tier profile", &seeds, TEXTS, sealed));
    let seeds = [golden("fio-report.json")];
    assert_reaches_inside(check("fio report", &seeds, TEXTS, properties::fio_report));
}

#[test]
fn damaged_uris_are_refused_or_name_tiers_that_can_be() {
    let seeds = [
        "thermocline://?tier=/mnt/a:20GiB&tier=home:1TB",
        "thermocline://?tier=/a%26b:1%20MiB&placement=top_levels(2)&move_threads=3",
    ];
    let seeds = seeds.map(|uri| uri.as_bytes().to_vec());
    let (accepted, runs) = check("host uri", &seeds, TEXTS, properties::host_uri);
    assert!(accepted > 0, "none of {runs} is a URI: the mutations say nothing");
}

#[test]
fn driver_names_read_back_what_they_print() {
    let names = ["posix", "direct", "memory", "emulated-gp3", "emulated-hdd"];
    let seeds = names.map(|name| name.as_bytes().to_vec());
    check("driver name", &seeds, TEXTS, properties::driver_name);
}
