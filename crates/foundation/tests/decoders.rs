//! Units and integers from damaged input, and the tester itself: see `decoders/mutation.rs`.

#[path = "decoders/mutation.rs"]
mod mutation;
#[path = "decoders/properties.rs"]
mod properties;

use mutation::{Allowance, RUNS, check, check_from};
use std::panic::catch_unwind;
use thermocline_foundation::random::Random;

const SMALL: Allowance = Allowance { fixed_bytes: 4 << 10, per_byte: 16 };

fn texts() -> Vec<Vec<u8>> {
    [
        "64 MiB",
        "1.5GB",
        "512",
        "250 ms",
        "0.5 s",
        "9007199254740993 B",
        "00112233445566778899aabbccddeeff",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

#[test]
fn units_read_back_what_they_print() {
    let (accepted, runs) = check("units", &texts(), SMALL, properties::units);
    assert!(accepted >= runs / 20, "{accepted} of {runs}: the mutations say nothing of the inside");
}

#[test]
fn integers_read_back_what_they_write() {
    let seed = [&[3][..], &[2, 7, 7], &[0xff, 0x7f, 0], &[0x80, 1, 5], b"water"].concat();
    let (accepted, runs) = check("coding", &[seed], SMALL, properties::coding);
    assert!(accepted >= runs / 20, "{accepted} of {runs}: the mutations say nothing of the inside");
}

#[test]
fn a_property_that_fails_names_the_seed_that_repeats_it() {
    let seeds = [vec![1; 64]];
    let fails = |bytes: &[u8]| {
        assert!(bytes.is_empty() || bytes.len() == 64 || !bytes.len().is_multiple_of(7), "planted");
        true
    };
    let text = |outcome: std::thread::Result<_>| {
        *outcome.expect_err("the planted failure was found").downcast::<String>().expect("a text")
    };
    let failure = text(catch_unwind(|| check_from(0..RUNS, "planted", &seeds, SMALL, fails)));
    let seed =
        failure.split("THERMOCLINE_FUZZ_SEED=").nth(1).and_then(|rest| rest.split(' ').next());
    let seed: u64 = seed.and_then(|seed| seed.parse().ok()).expect("a seed");
    let again = mutation::mutation(&mut Random::new(seed), &seeds);
    assert!(again.len() != 64 && again.len().is_multiple_of(7));
    let greedy = |bytes: &[u8]| vec![0u8; bytes.len() * 1000].len() == bytes.len() * 1000;
    let failure = text(catch_unwind(|| check_from(0..1, "greedy", &seeds, SMALL, greedy)));
    assert!(failure.contains("64000 bytes of memory for 64 bytes"), "{failure}");
}

#[test]
fn mutations_are_of_every_sort() {
    let seeds = [vec![0x55; 300], vec![0xaa; 300]];
    let made: Vec<_> = (0..500).map(|n| mutation::mutation(&mut Random::new(n), &seeds)).collect();
    assert!(made.iter().any(|bytes| bytes.len() < 300) && made.iter().any(|b| b.len() > 300));
    let both = |bytes: &Vec<u8>| bytes.contains(&0x55) && bytes.contains(&0xaa);
    assert!(made.iter().any(both), "a piece of one input in another");
    let flipped = |bytes: &Vec<u8>| bytes.iter().any(|byte| (byte ^ 0x55).count_ones() == 1);
    assert!(made.iter().any(flipped));
    assert!(made.iter().any(|bytes| bytes.windows(4).any(|four| *four == [0xff; 4])));
    assert!(made.iter().filter(|bytes| seeds.contains(*bytes)).count() < 25, "changes change");
}
