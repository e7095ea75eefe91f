//! 4 KiB random reads through each driver: what a blocking read and a queue of 32 cost.
//!
//! `cargo bench -p thermocline-device --bench random_read -- DIRECTORY...`; each directory needs
//! 1 GiB of room. Prints reads a second and the mean time between completions; figures are in
//! `docs/decisions/0002-drivers.md`.

#![allow(clippy::disallowed_macros, reason = "a bench prints its result")]
#![allow(clippy::unwrap_used, reason = "a bench stops at what it did not expect")]

use std::path::Path;
use std::sync::Arc;
use thermocline_device::drivers::{
    Batches, DirectDriver, EmulatedDriver, MemoryDriver, PosixDriver, Profile,
};
use thermocline_device::{Buffer, Driver, Handle, Operation, Request};
use thermocline_foundation::{Clock, SystemClock, random::Random};

const FILE_PAGES: u64 = 1 << 18;
const PAGE_BYTES: usize = 4096;
const RUN_NS: u64 = 3_000_000_000;
const DEPTH: usize = 32;

fn main() {
    let directories: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for directory in directories {
        let scratch = tempfile::tempdir_in(&directory).unwrap();
        let posix = PosixDriver::open(scratch.path()).unwrap();
        fill(&posix);
        println!("{directory}");
        measure("posix, in the page cache", &posix, scratch.path(), false);
        measure("posix, cold", &posix, scratch.path(), true);
        for (name, batches) in
            [("direct, io_uring", Batches::Ring), ("direct, threads", Batches::Threads)]
        {
            match DirectDriver::open(scratch.path(), batches) {
                Ok(driver) => measure(name, &driver, scratch.path(), true),
                Err(error) => println!("  {name:<26} {error}"),
            }
        }
    }
    measure_emulated();
}

/// How close the emulated devices come to their models: 4 KiB reads of a file in memory.
fn measure_emulated() {
    println!("emulated");
    for profile in [Profile::OptaneP5800x, Profile::TlcNvme, Profile::Gp3] {
        let (inner, clock) = (Arc::new(MemoryDriver::new()), Arc::new(SystemClock::new()));
        let driver = EmulatedDriver::new(inner, profile.name(), profile.model(), clock);
        let file = driver.create("file").unwrap();
        file.truncate(FILE_PAGES * PAGE_BYTES as u64).unwrap();
        measure(profile.name(), &driver, Path::new("memory"), false);
    }
}

fn fill(driver: &dyn Driver) {
    let file = driver.create("file").unwrap();
    let mut random = Random::new(1);
    for chunk in 0..FILE_PAGES / 256 {
        let mut buffer = Buffer::zeroed(256 * PAGE_BYTES);
        random.fill(&mut buffer);
        let offset = chunk * (256 * PAGE_BYTES) as u64;
        driver.execute(&file, Operation::Write { offset, buffer, durable: false }).result.unwrap();
    }
    driver.execute(&file, Operation::Sync).result.unwrap();
}

fn measure(name: &str, driver: &dyn Driver, directory: &Path, cold: bool) {
    let file = driver.open("file").unwrap();
    for depth in [1, DEPTH] {
        if cold {
            drop_cache(&directory.join("file"));
        }
        let clock = SystemClock::new();
        let start = clock.now_ns();
        let reads = if depth == 1 {
            blocking(driver, &file, &clock)
        } else {
            queued(driver, &file, &clock)
        };
        let ns = (clock.now_ns() - start) / reads;
        let rate = 1_000_000_000 / ns.max(1);
        println!("  {name:<26} depth {depth:>2}  {rate:>9} reads/s  {ns:>7} ns each");
    }
}

fn drop_cache(path: &Path) {
    use rustix::fs::{Advice, Mode, OFlags};
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

fn blocking(driver: &dyn Driver, file: &Handle, clock: &SystemClock) -> u64 {
    let (mut random, mut reads) = (Random::new(2), 0);
    let mut buffer = Buffer::zeroed(PAGE_BYTES);
    let end = clock.now_ns() + RUN_NS;
    while clock.now_ns() < end {
        let offset = random.below(FILE_PAGES) * PAGE_BYTES as u64;
        let done = driver.execute(file, Operation::Read { offset, buffer });
        assert_eq!(done.result.unwrap(), PAGE_BYTES);
        buffer = done.buffer;
        reads += 1;
    }
    reads
}

/// Keeps `DEPTH` reads in flight: what has finished is replaced in one batch.
fn queued(driver: &dyn Driver, file: &Handle, clock: &SystemClock) -> u64 {
    let (mut random, mut reads) = (Random::new(3), 0);
    let mut queue = driver.queue(DEPTH).unwrap();
    let mut free: Vec<Buffer> = (0..DEPTH).map(|_| Buffer::zeroed(PAGE_BYTES)).collect();
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    let end = clock.now_ns() + RUN_NS;
    while clock.now_ns() < end {
        requests.extend(free.drain(..).map(|buffer| {
            let offset = random.below(FILE_PAGES) * PAGE_BYTES as u64;
            let operation = Operation::Read { offset, buffer };
            Request { tag: 0, file: file.clone(), operation }
        }));
        queue.submit(&mut requests);
        reads += queue.reap(1, &mut done) as u64;
        for completion in done.drain(..) {
            assert_eq!(completion.result.unwrap(), PAGE_BYTES);
            free.push(completion.buffer);
        }
    }
    reads
}
