//! Measuring a device: a file of its own is read and written by 1, 2, 4 and up to 64 workers, for
//! each shape until more of them bring less (Keigo, sections 3.1 and 4.2).
//!
//! ```text
//!   4 KiB, 64 KiB  x  sequential, random  x  read direct, write direct, write synced
//! ```
//! 1. The file has no name while it is used: what is killed leaves nothing.
//! 2. It takes a fourth of the free space at most.
//! 3. Each worker has a part of the file for itself, and blocks of random bytes: a device that
//!    compresses or knows duplicates gains nothing.
//! 4. Where the file system has no direct I/O, reads and unsynced writes go through the page cache,
//!    and the figures say so.
//!
//! Threads: the caller, and the workers, which end with each point.

use super::{Access, Curve, DeviceProfile, Order, Point, Shape, Source, Through};
use crate::buffer::Buffer;
use crate::driver::{Driver, Handle, Operation};
use crate::error::{Error, ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::random::Random;
use thermocline_foundation::threads::{self, JoinHandle};
use thermocline_foundation::{ByteSize, Clock};

/// Workers of the points of a curve.
const WORKERS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Throughput has fallen below so many percent of the best: more workers are not tried.
const FALLEN_PERCENT: u64 = 90;
/// Bytes of the blocks of a shape.
const BLOCKS: [u64; 2] = [4 << 10, 64 << 10];
/// Bytes of a write that fills the file.
const FILL_BYTES: u64 = 1 << 20;
/// Syncs of which the one in the middle counts.
const SYNCS: usize = 15;
/// The file's name while it is made.
const TEST_NAME: &str = "PROFILE.test";
/// The least a file may have: a block of 64 KiB for each of 64 workers, twice.
const FILE_BYTES_MIN: u64 = 8 << 20;

/// How much is done for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes of the file; 8 MiB at least. One that a device's own cache holds shows that cache.
    pub file_bytes: u64,
    /// How long the workers of a point are busy.
    pub point: Duration,
}

impl Default for Effort {
    fn default() -> Self {
        Self { file_bytes: 256 << 20, point: Duration::from_millis(300) }
    }
}

/// What is measured: one directory by two drivers.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Through the page cache.
    pub buffered: Arc<dyn Driver>,
    /// Past it, where the file system allows that.
    pub direct: Option<Arc<dyn Driver>>,
}

/// A point is about to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What the workers do.
    pub shape: Shape,
    /// How many they are.
    pub workers: u16,
    /// Points behind it, those that were left out included.
    pub done: usize,
    /// Points at most.
    pub total: usize,
}

/// An open file of a driver.
#[derive(Clone, Debug)]
struct TestFile {
    driver: Arc<dyn Driver>,
    handle: Handle,
}

impl TestFile {
    fn write(&self, offset: u64, buffer: Buffer) -> Result<Buffer> {
        let write = Operation::Write { offset, buffer, durable: false };
        let completion = self.driver.execute(&self.handle, write);
        completion.result.map(|_| completion.buffer)
    }

    fn read(&self, offset: u64, buffer: Buffer) -> Result<Buffer> {
        let completion = self.driver.execute(&self.handle, Operation::Read { offset, buffer });
        completion.result.map(|_| completion.buffer)
    }

    fn sync(&self) -> Result<()> {
        self.driver.execute(&self.handle, Operation::Sync).result.map(drop)
    }
}

/// Measures a device; `tell` hears of each point before it is measured.
///
/// Errors: `OutOfSpace` where the file would take more than a fourth of the free space, `Invalid`
/// for a file that is too small, and the drivers'.
pub fn measure(
    subject: &Subject,
    effort: Effort,
    clock: &Arc<dyn Clock>,
    tell: &mut dyn FnMut(Step),
) -> Result<DeviceProfile> {
    let (buffered, direct) = open(subject, effort)?;
    let direct_or_cached = direct.as_ref().unwrap_or(&buffered);
    fill(direct_or_cached, effort.file_bytes)?;
    let sync_ns = sync_ns(&buffered, &**clock)?;
    let shapes = shapes(direct.is_some());
    let total = shapes.len() * WORKERS.len();
    let mut curves = Vec::with_capacity(shapes.len());
    for (index, shape) in shapes.into_iter().enumerate() {
        let file = if shape.through == Through::Synced { &buffered } else { direct_or_cached };
        let mut points = 0;
        let curve = climb(|workers| {
            tell(Step { shape, workers, done: index * WORKERS.len() + points, total });
            points += 1;
            rate(file, shape, workers, effort, clock)
        })?;
        curves.push((shape, curve));
    }
    Ok(DeviceProfile { source: Source::Measured, sync_ns, curves })
}

fn shapes(is_direct: bool) -> Vec<Shape> {
    let unsynced = if is_direct { Through::Direct } else { Through::PageCache };
    let ways =
        [(Access::Read, unsynced), (Access::Write, unsynced), (Access::Write, Through::Synced)];
    let mut shapes = Vec::new();
    for (access, through) in ways {
        for order in [Order::Sequential, Order::Random] {
            let shape = |block_bytes| Shape { access, order, block_bytes, through };
            shapes.extend(BLOCKS.map(shape));
        }
    }
    shapes
}

/// Makes the file, and takes its name away.
fn open(subject: &Subject, effort: Effort) -> Result<(TestFile, Option<TestFile>)> {
    let (driver, bytes) = (&subject.buffered, effort.file_bytes);
    if bytes < FILE_BYTES_MIN {
        let least = ByteSize(FILE_BYTES_MIN);
        let text = format!(
            "a file of {} is too small to measure with; name {least} at least",
            ByteSize(bytes)
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let free = driver.space()?.free_bytes;
    if bytes > free / 4 {
        let text = format!(
            "{} has {} free; a file of {} would take more than a fourth of it: name a smaller one",
            driver.describe(),
            ByteSize(free),
            ByteSize(bytes)
        );
        return Err(Error::new(ErrorKind::OutOfSpace, text));
    }
    crate::small_file::remove(&**driver, TEST_NAME)?;
    let handle = driver.create(TEST_NAME)?;
    let direct = subject.direct.as_ref().map(|driver| {
        let handle = driver.open(TEST_NAME)?;
        Ok(TestFile { driver: Arc::clone(driver), handle })
    });
    driver.delete(TEST_NAME)?;
    Ok((TestFile { driver: Arc::clone(driver), handle }, direct.transpose()?))
}

fn fill(file: &TestFile, bytes: u64) -> Result<()> {
    let mut buffer = random_block(FILL_BYTES, 0);
    for offset in (0..bytes).step_by(FILL_BYTES as usize) {
        let len = FILL_BYTES.min(bytes - offset) as usize;
        // Whole blocks: direct I/O takes nothing else.
        buffer.set_view(0..len.next_multiple_of(BLOCKS[0] as usize));
        buffer = file.write(offset, buffer)?;
    }
    file.sync()
}

fn random_block(bytes: u64, seed: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes as usize);
    Random::new(seed).fill(&mut buffer);
    buffer
}

/// What a sync of one written block takes, in the middle of several.
fn sync_ns(file: &TestFile, clock: &dyn Clock) -> Result<u64> {
    let mut buffer = random_block(BLOCKS[0], 0);
    let mut spans = [0; SYNCS];
    for (index, span) in spans.iter_mut().enumerate() {
        buffer = file.write(index as u64 * BLOCKS[0], buffer)?;
        let start = clock.now_ns();
        file.sync()?;
        *span = clock.now_ns() - start;
    }
    spans.sort_unstable();
    Ok(spans[SYNCS / 2])
}

/// The curve of one shape: twice the workers, until they bring less.
fn climb(mut rate_of: impl FnMut(u16) -> Result<u64>) -> Result<Curve> {
    let (mut points, mut best) = (Vec::new(), 0);
    for workers in WORKERS {
        let bytes_per_s = rate_of(workers)?;
        points.push(Point { workers, bytes_per_s });
        best = best.max(bytes_per_s);
        if u128::from(bytes_per_s) * 100 < u128::from(best) * u128::from(FALLEN_PERCENT) {
            break;
        }
    }
    Ok(Curve::new(points))
}

/// Bytes a second of so many workers together.
fn rate(
    file: &TestFile,
    shape: Shape,
    workers: u16,
    effort: Effort,
    clock: &Arc<dyn Clock>,
) -> Result<u64> {
    let part = effort.file_bytes / u64::from(workers) / shape.block_bytes * shape.block_bytes;
    let start = |number: u16| {
        let first = u64::from(number) * part;
        let worker = Worker { file: file.clone(), shape, part: first..first + part };
        let (clock, span) = (Arc::clone(clock), effort.point);
        let run = move || worker.run(u64::from(number), &*clock, span);
        threads::spawn("profile", run).map_err(|error| {
            let text = format!("cannot start the {workers} threads of a measurement: {error}");
            Error::new(ErrorKind::Io, text)
        })
    };
    // All that were started are waited for, whatever becomes of the others.
    let started: Vec<Result<JoinHandle<_>>> = (0..workers).map(start).collect();
    let ended: Vec<Result<u64>> = started.into_iter().map(|thread| end_of(thread?)).collect();
    ended.into_iter().sum()
}

fn end_of(thread: JoinHandle<Result<u64>>) -> Result<u64> {
    let lost = |_| Error::new(ErrorKind::Io, "a thread of a measurement panicked");
    thread.join().map_err(lost)?
}

/// One of those that read or write at once.
#[derive(Debug)]
struct Worker {
    file: TestFile,
    shape: Shape,
    /// Its part of the file.
    part: Range<u64>,
}

impl Worker {
    /// Reads or writes for `span`, and says how many bytes a second that was.
    fn run(self, seed: u64, clock: &dyn Clock, span: Duration) -> Result<u64> {
        let block = self.shape.block_bytes;
        let blocks = (self.part.end - self.part.start) / block;
        let (mut random, mut buffer) = (Random::new(seed), random_block(block, seed));
        let (start, mut moved) = (clock.now_ns(), 0_u64);
        loop {
            let at = match self.shape.order {
                Order::Sequential => moved / block % blocks,
                Order::Random => random.below(blocks),
            };
            buffer = self.step(self.part.start + at * block, buffer)?;
            moved += block;
            let elapsed = clock.now_ns() - start;
            if u128::from(elapsed) >= span.as_nanos() {
                let per_s = u128::from(moved) * 1_000_000_000 / u128::from(elapsed.max(1));
                return Ok(per_s.try_into().unwrap_or(u64::MAX));
            }
        }
    }

    fn step(&self, offset: u64, buffer: Buffer) -> Result<Buffer> {
        let buffer = match self.shape.access {
            Access::Read => self.file.read(offset, buffer)?,
            Access::Write => self.file.write(offset, buffer)?,
        };
        if self.shape.through == Through::Synced {
            self.file.sync()?;
        }
        Ok(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The workers that were tried on a device of these rates.
    fn tried(rates: [u64; 7]) -> Vec<u16> {
        let mut tried = Vec::new();
        let curve = climb(|workers| {
            tried.push(workers);
            Ok(rates[workers.ilog2() as usize])
        });
        assert_eq!(curve.unwrap().points().len(), tried.len());
        tried
    }

    #[test]
    fn workers_are_doubled_until_they_bring_less() {
        assert_eq!(tried([210, 390, 500, 330, 226, 194, 188]), [1, 2, 4, 8]);
        assert_eq!(tried([100, 200, 400, 800, 800, 790, 795]), WORKERS, "level is not less");
        assert_eq!(tried([100, 90, 89, 100, 100, 100, 100]), [1, 2, 4], "noise is not");
        let failed = climb(|_| Err(Error::new(ErrorKind::Io, "the device is gone")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
    }

    #[test]
    fn every_shape_is_measured_and_says_what_it_went_through() {
        let all = shapes(true);
        assert_eq!(all.len(), 12);
        assert!(all.iter().all(|shape| shape.through != Through::PageCache));
        let cached = shapes(false).iter().filter(|s| s.through == Through::PageCache).count();
        assert_eq!(cached, 8);
    }
}
