//! A batch of reads of which those that lie close together in a file are one read.
//!
//! ```text
//!   asked for   |b|b|b| |b|        |b|     blocks, in any order
//!   read        [---------]        [-]     each is cut out of what was read
//! ```
//! A cheap device that does 10,000 or 20,000 reads a second takes as long for one of them as for
//! tens of kilobytes, so that a gap is cheaper to read than to leave out.
//!
//! Where a joined read fails, each of its parts is read alone: one that cannot be read does not
//! take its neighbours with it.

use crate::buffer::Buffer;
use crate::error::Result;
use crate::file_queue::{PendingBatch, ReadAt, read_batch, start_batch};
use crate::io_classes::PIECE_BYTES;

/// Bytes between two parts of a read, at the most.
const GAP_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a joined read at the most: what background work asks a device for at once.
const JOINED_BYTES_MAX: u64 = PIECE_BYTES as u64;

/// One read of the file of its parts: their places in the batch, at least one.
#[derive(Debug)]
struct Joined {
    offset: u64,
    len: usize,
    parts: Vec<usize>,
}

impl Joined {
    /// Takes the read at `place`, which begins no earlier than any part; false where it is too far
    /// away.
    fn takes(&mut self, place: usize, reads: &[ReadAt<'_>]) -> bool {
        let next = &reads[place];
        let is_near = || {
            let end = self.offset.checked_add(self.len as u64)?;
            let next_end = next.offset.checked_add(next.len as u64)?.max(end);
            let bytes = next_end - self.offset;
            (next.offset.saturating_sub(end) <= GAP_BYTES_MAX && bytes <= JOINED_BYTES_MAX)
                .then_some(bytes as usize)
        };
        if !std::ptr::eq(reads[self.parts[0]].file, next.file) {
            return false;
        }
        let Some(bytes) = is_near() else { return false };
        self.len = bytes;
        self.parts.push(place);
        true
    }

    fn read<'a>(&self, reads: &[ReadAt<'a>]) -> ReadAt<'a> {
        ReadAt { file: reads[self.parts[0]].file, offset: self.offset, len: self.len }
    }

    /// What was asked for as `part`, out of what was read.
    fn cut(&self, bytes: &[u8], part: &ReadAt<'_>) -> Buffer {
        let from = (part.offset - self.offset) as usize;
        let mut buffer = Buffer::for_read(part.len);
        buffer.copy_from_slice(&bytes[from..from + part.len]);
        buffer
    }
}

/// The reads that `reads` are together, in the order of files and places.
fn joined(reads: &[ReadAt<'_>]) -> Vec<Joined> {
    let mut order: Vec<usize> = (0..reads.len()).collect();
    order.sort_unstable_by_key(|at| (reads[*at].file.number(), reads[*at].offset, *at));
    let mut joined: Vec<Joined> = Vec::with_capacity(reads.len());
    for at in order {
        if !joined.last_mut().is_some_and(|last| last.takes(at, reads)) {
            let ReadAt { offset, len, .. } = reads[at];
            joined.push(Joined { offset, len, parts: vec![at] });
        }
    }
    joined
}

/// What was asked for as `reads`, of what `arrived` of the joined ones.
fn parted(
    reads: &[ReadAt<'_>],
    joined: &[Joined],
    arrived: Vec<Result<Buffer>>,
) -> Vec<Result<Buffer>> {
    let mut found: Vec<Option<Result<Buffer>>> = reads.iter().map(|_| None).collect();
    let mut alone = Vec::new();
    for (joined, arrived) in joined.iter().zip(arrived) {
        match (&joined.parts[..], arrived) {
            ([part], arrived) => found[*part] = Some(arrived),
            (parts, Ok(bytes)) => {
                for part in parts {
                    found[*part] = Some(Ok(joined.cut(&bytes, &reads[*part])));
                }
            }
            (parts, Err(_)) => alone.extend_from_slice(parts),
        }
    }
    let again: Vec<_> = alone.iter().map(|part| reads[*part]).collect();
    for (part, arrived) in alone.iter().zip(read_batch(&again)) {
        found[*part] = Some(arrived);
    }
    found.into_iter().flatten().collect()
}

/// As [`read_batch`], in as few reads as the places of `reads` allow; results in the order of
/// `reads`. For blocks in the order of their keys, of which many are neighbours.
pub fn read_joined(reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
    let joined = joined(reads);
    if joined.len() == reads.len() {
        return read_batch(reads);
    }
    let whole: Vec<_> = joined.iter().map(|joined| joined.read(reads)).collect();
    parted(reads, &joined, read_batch(&whole))
}

/// Reads under way as few; see [`start_joined`]. Dropping it waits for them.
#[derive(Debug)]
pub struct PendingJoined {
    joined: Vec<Joined>,
    /// How many of them were started.
    started: usize,
    batch: PendingBatch,
}

/// As [`read_joined`], to be waited for later. What is read meanwhile are `bytes_max` bytes at the
/// most, gaps included; the rest is read when it is waited for.
pub fn start_joined(reads: &[ReadAt<'_>], bytes_max: usize) -> PendingJoined {
    let joined = joined(reads);
    let mut room = bytes_max;
    let fits = |joined: &&Joined| {
        let rest = room.checked_sub(joined.len);
        room = rest.unwrap_or(0);
        rest.is_some()
    };
    let whole: Vec<_> = joined.iter().take_while(fits).map(|joined| joined.read(reads)).collect();
    let (started, batch) = (whole.len(), start_batch(&whole));
    PendingJoined { joined, started, batch }
}

impl PendingJoined {
    /// Waits for the reads to finish. `reads` are those that it was started with; results in their
    /// order.
    pub fn wait(self, reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
        let Self { joined, started, batch } = self;
        let whole: Vec<_> = joined.iter().map(|joined| joined.read(reads)).collect();
        let (before, rest) = whole.split_at(started);
        let rest_batch = start_batch(rest);
        let mut arrived = batch.wait(before);
        arrived.extend(rest_batch.wait(rest));
        parted(reads, &joined, arrived)
    }
}
