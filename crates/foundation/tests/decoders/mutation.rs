//! Damages good bytes at random and holds a decoder to its promises; shared by the `decoders` tests
//! of all crates, which include this file.
//!
//! What it is for: continuous integration has no nightly compiler and so no libFuzzer. The
//! properties that `fuzz/` runs under it run here too, over mutations of the golden files.
//!
//! 1. Every run has its own seed, and the same seed makes the same bytes. A failure names it;
//!    `THERMOCLINE_FUZZ_SEED=<seed> THERMOCLINE_FUZZ_RUNS=1` repeats that run.
//! 2. The inputs of `fuzz/corpus/NAME`, where libFuzzer once found something new, run too.
//! 3. `THERMOCLINE_FUZZ_RUNS` is the number of runs of each property; by default there are about
//!    20,000 in the whole workspace.
//! 4. A run may hold no more memory at once than its [`Allowance`], which grows with the input and
//!    with nothing that the input claims.
//!
//! Threads: a property runs on the thread that calls [`check`], and only its allocations count.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::disallowed_methods, reason = "the corpus is the tests' own")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use thermocline_foundation::random::{Random, mix};

/// Runs of each property by default; there are 20-odd properties.
pub const RUNS: u64 = 900;

/// Memory that a property may hold at once.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Bytes for any input: buffers of fixed size.
    pub fixed_bytes: u64,
    /// Bytes for each byte of the input.
    pub per_byte: u64,
}

/// Runs `property` on the seeds as they are, which it must accept, and on mutations of them.
/// Returns how many mutations it accepted and how many there were.
pub fn check(
    name: &str,
    seeds: &[Vec<u8>],
    allowance: Allowance,
    property: impl Fn(&[u8]) -> bool,
) -> (u64, u64) {
    check_times(RUNS, name, seeds, allowance, property)
}

/// As [`check`], with another number of runs by default: for properties that take long.
pub fn check_times(
    runs: u64,
    name: &str,
    seeds: &[Vec<u8>],
    allowance: Allowance,
    property: impl Fn(&[u8]) -> bool,
) -> (u64, u64) {
    run_corpus(name, allowance, &property);
    let start = name.bytes().fold(0, |sum, byte| mix(sum ^ u64::from(byte)));
    let start = number("THERMOCLINE_FUZZ_SEED").unwrap_or(start);
    let runs = number("THERMOCLINE_FUZZ_RUNS").unwrap_or(runs);
    check_from(start..start.saturating_add(runs), name, seeds, allowance, property)
}

/// Runs `property` on every input of its folder in `fuzz/corpus`. None of them must be accepted.
fn run_corpus(name: &str, allowance: Allowance, property: &impl Fn(&[u8]) -> bool) {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a crate has a folder");
    let folder = crates.with_file_name("fuzz").join("corpus").join(name.replace(' ', "_"));
    let entries = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}; run fuzz/seed.sh", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder's entry").path()).collect();
    assert!(!paths.is_empty(), "{} is empty; run fuzz/seed.sh", folder.display());
    paths.sort();
    for path in paths {
        let bytes = std::fs::read(&path).expect("an input of the corpus");
        run(&format!("{}", path.display()), &bytes, allowance, property);
    }
}

/// As [`check`], with these seeds of runs.
pub fn check_from(
    runs: Range<u64>,
    name: &str,
    seeds: &[Vec<u8>],
    allowance: Allowance,
    property: impl Fn(&[u8]) -> bool,
) -> (u64, u64) {
    for (index, seed) in seeds.iter().enumerate() {
        let what = format!("{name}, golden input {index} unchanged");
        assert!(run(&what, seed, allowance, &property), "{what}: not accepted");
    }
    run(&format!("{name}, no bytes"), &[], allowance, &property);
    let count = runs.end - runs.start;
    let mut accepted = 0;
    for seed in runs {
        let bytes = mutation(&mut Random::new(seed), seeds);
        let repeat = format!("THERMOCLINE_FUZZ_SEED={seed} THERMOCLINE_FUZZ_RUNS=1");
        accepted += u64::from(run(&format!("{name}, {repeat}"), &bytes, allowance, &property));
    }
    (accepted, count)
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text}: expected a whole number")))
}

/// Runs the property once; a panic or too much memory fails the test with `what`.
fn run(what: &str, bytes: &[u8], allowance: Allowance, property: &impl Fn(&[u8]) -> bool) -> bool {
    let mut outcome = None;
    let used = allocation_counter::measure(|| {
        outcome = Some(catch_unwind(AssertUnwindSafe(|| property(bytes))));
    });
    let Some(Ok(accepted)) = outcome else {
        panic!("{what}: the property failed on {} bytes, see above", bytes.len());
    };
    let allowed = allowance.fixed_bytes + allowance.per_byte * bytes.len() as u64;
    let most = used.bytes_max;
    assert!(most <= allowed, "{what}: {most} bytes of memory for {} bytes", bytes.len());
    accepted
}

/// One of the seeds with one to four changes.
pub fn mutation(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = any(random, seeds).clone();
    for _ in 0..1 + random.below(4) {
        change(random, &mut bytes, seeds);
    }
    bytes
}

fn any<'a, T>(random: &mut Random, of: &'a [T]) -> &'a T {
    &of[random.below(of.len() as u64) as usize]
}

/// A position in `bytes`, which are not none. Golden files are mostly padding, so a byte that is
/// not zero is looked for a while.
fn position(random: &mut Random, bytes: &[u8]) -> usize {
    let mut at = 0;
    for _ in 0..8 {
        at = random.below(bytes.len() as u64) as usize;
        if bytes[at] != 0 {
            break;
        }
    }
    at
}

/// One change. Most keep the length: what follows a shifted byte is seldom looked at.
fn change(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let kind = if bytes.is_empty() { 8 } else { random.below(10) };
    match kind {
        0..=2 => {
            let at = position(random, bytes);
            bytes[at] ^= 1 << random.below(8);
        }
        3 => {
            let at = position(random, bytes);
            bytes[at] = random.next_u64() as u8;
        }
        4..=6 => edit_integer(random, bytes),
        7 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        8 => {
            let at = random.below(bytes.len() as u64 + 1) as usize;
            let mut more = vec![0; 1 + random.below(16) as usize];
            random.fill(&mut more);
            bytes.splice(at..at, more);
        }
        _ => splice(random, bytes, seeds),
    }
}

/// Sets one to eight bytes to a number at an edge, or to their number plus or minus a little.
fn edit_integer(random: &mut Random, bytes: &mut [u8]) {
    const EDGES: [u64; 10] =
        [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 8, u64::MAX];
    let at = position(random, bytes);
    let len = (1 << random.below(4)).min(bytes.len() - at);
    let field = &mut bytes[at..at + len];
    let mut present = [0; 8];
    present[..len].copy_from_slice(field);
    let present = u64::from_le_bytes(present);
    let number = match random.below(3) {
        0 => *any(random, &EDGES),
        1 => present.wrapping_add(1 + random.below(16)),
        _ => present.wrapping_sub(1 + random.below(16)),
    };
    field.copy_from_slice(&number.to_le_bytes()[..len]);
}

/// Puts a piece of a seed over bytes, at its own place or another: a stale or misdirected write.
fn splice(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let from = any(random, seeds);
    if from.is_empty() {
        return;
    }
    let start = random.below(from.len() as u64) as usize;
    let len = 1 + random.below((from.len() - start) as u64) as usize;
    let at = match random.below(2) {
        0 => start.min(bytes.len()),
        _ => random.below(bytes.len() as u64 + 1) as usize,
    };
    let end = (at + len).min(bytes.len());
    bytes.splice(at..end, from[start..start + len].iter().copied());
}
