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
use crate::file_queue::{ReadAt, read_batch};
use crate::io_classes::PIECE_BYTES;

/// Bytes between two parts of a read, at the most.
const GAP_BYTES_MAX: u64 = 16 << 10;
/// Bytes of a joined read at the most: what background work asks a device for at once.
const JOINED_BYTES_MAX: u64 = PIECE_BYTES as u64;

/// One read, and the places of its parts in the batch.
#[derive(Debug)]
struct Joined<'a> {
    read: ReadAt<'a>,
    parts: Vec<usize>,
}

impl<'a> Joined<'a> {
    /// Takes `next`, which begins no earlier than any part; false where it is too far away.
    fn takes(&mut self, place: usize, next: &ReadAt<'a>) -> bool {
        let is_near = || {
            let end = self.read.offset.checked_add(self.read.len as u64)?;
            let next_end = next.offset.checked_add(next.len as u64)?.max(end);
            let bytes = next_end - self.read.offset;
            (next.offset.saturating_sub(end) <= GAP_BYTES_MAX && bytes <= JOINED_BYTES_MAX)
                .then_some(bytes as usize)
        };
        if !std::ptr::eq(self.read.file, next.file) {
            return false;
        }
        let Some(bytes) = is_near() else { return false };
        self.read.len = bytes;
        self.parts.push(place);
        true
    }

    /// What was asked for as `part`, out of what was read.
    fn cut(&self, bytes: &[u8], part: &ReadAt<'_>) -> Buffer {
        let from = (part.offset - self.read.offset) as usize;
        let mut buffer = Buffer::for_read(part.len);
        buffer.copy_from_slice(&bytes[from..from + part.len]);
        buffer
    }
}

/// As [`read_batch`], in as few reads as the places of `reads` allow; results in the order of
/// `reads`. For blocks in the order of their keys, of which many are neighbours.
pub fn read_joined(reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
    let mut order: Vec<usize> = (0..reads.len()).collect();
    order.sort_unstable_by_key(|at| (reads[*at].file.number(), reads[*at].offset, *at));
    let mut joined: Vec<Joined<'_>> = Vec::with_capacity(reads.len());
    for at in order {
        if !joined.last_mut().is_some_and(|last| last.takes(at, &reads[at])) {
            joined.push(Joined { read: reads[at], parts: vec![at] });
        }
    }
    if joined.len() == reads.len() {
        return read_batch(reads);
    }
    let whole: Vec<_> = joined.iter().map(|joined| joined.read).collect();
    let mut found: Vec<Option<Result<Buffer>>> = reads.iter().map(|_| None).collect();
    let mut alone = Vec::new();
    for (joined, arrived) in joined.iter().zip(read_batch(&whole)) {
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
