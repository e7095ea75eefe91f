//! Writes many records into their slots: long writes in order of position, several in flight.
//!
//! ```text
//!   slots to write      |  A  |  B  |(live)|  C  |                    by position
//!   aligned windows   [ page 1 ][ page 2 ][ page 3 ]                  touching ones become one run
//!   chunks            [ at most 1 MiB, cut at the alignment    ]      one write each
//! ```
//! Direct I/O moves whole pages, and slots do not end where pages do. A page that a live slot
//! shares with one being written is read, together with others nearby, changed and written back.
//! What that rests on: the device writes a sector of 512 bytes whole or not at all (docs/media.md).
//! The neighbour's bytes are the same before and after, so each sector of it is the same whichever
//! version survives a power cut.
//!
//! 1. The bytes of a slot that is not free (live, reserved by another, held) and not written here
//!    are never changed. Free slots may become zeros.
//! 2. Reading, changing and writing a slab happens under its `writing` lock: two writers of one
//!    page do not lose each other's bytes.
//! 3. Chunks of a run do not overlap, so their order on the device does not matter.
//! 4. A completed call is not durable: [`Slabs::sync`] makes it so.
//!
//! Threads: any.

use crate::address::{SlabId, SlotAddress};
use crate::format::{Record, SLOT_HEADER_BYTES, copy_part};
use crate::reader::share_a_read;
use crate::slab::Slab;
use crate::slabs::Slabs;
use std::ops::Range;
use thermocline_device::{Buffer, Error, ErrorKind, ReadAt, Result, read_batch};
use thermocline_foundation::{Planted, planted};

/// Most bytes of one write.
const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks whose shared pages are read in one submission, and which are written in one.
const BATCH_BYTES: u64 = 4 << 20;
const CHUNKS_AT_ONCE: usize = 64;
/// Bytes in flight while a batch is made, at most.
const IN_FLIGHT_BYTES: u64 = 8 << 20;

const _: () = assert!(CHUNK_BYTES <= BATCH_BYTES && BATCH_BYTES <= IN_FLIGHT_BYTES);

/// One write: a window of the file and which of the records reach into it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    window: Range<u64>,
    records: Range<usize>,
}

/// A record and its slot in the slab at hand.
type Placed<'a, 'b> = (u32, &'a Record<'b>);

impl Slabs {
    /// Writes records into slots that the caller reserved, each slot once, in any order; returns
    /// the slabs to [`Slabs::sync`].
    ///
    /// # Errors
    /// `Invalid` where a record is larger than its slot; the device's. After a failure any of the
    /// slots may hold anything; other slots are as they were.
    pub fn write(&self, records: &[(SlotAddress, Record<'_>)]) -> Result<Vec<SlabId>> {
        let mut order: Vec<&(SlotAddress, Record<'_>)> = records.iter().collect();
        order.sort_unstable_by_key(|(address, _)| *address);
        assert!(order.is_sorted_by(|a, b| a.0 < b.0), "a slot is written once in a call");
        let mut touched = Vec::new();
        for group in order.chunk_by(|a, b| a.0.slab == b.0.slab) {
            let mut placed = Vec::with_capacity(group.len());
            for (address, record) in group {
                let slab = self.slab_of(*address)?;
                if record.bytes() > u64::from(slab.shape.slot_bytes) {
                    let text = format!("a record of {} bytes is too large for {address}", {
                        record.bytes()
                    });
                    return Err(Error::new(ErrorKind::Invalid, text));
                }
                placed.push((address.slot, record));
            }
            if let Some((address, _)) = group.first() {
                self.write_slab(&*self.slab(address.slab)?, &placed)?;
                touched.push(address.slab);
            }
        }
        Ok(touched)
    }

    fn write_slab(&self, slab: &Slab, placed: &[Placed<'_, '_>]) -> Result<()> {
        let alignment = slab.file.alignment() as u64;
        let chunks = plan(slab, placed, alignment);
        let _writing = slab.writing.lock();
        let mut stream = slab.file.start_writes(CHUNKS_AT_ONCE)?;
        let mut cut = None;
        for batch in batches(&chunks) {
            let shared: Vec<Vec<Range<u64>>> =
                batch.iter().map(|chunk| self.shared(slab, placed, chunk, alignment)).collect();
            let kept = self.read_kept(slab, &shared.concat())?;
            let encoded = batch.iter().zip(&shared).map(|(chunk, shared)| {
                let start = chunk.window.start;
                let mut buffer = Buffer::zeroed((chunk.window.end - start) as usize);
                for range in shared {
                    let at = (range.start - start) as usize..(range.end - start) as usize;
                    buffer[at].copy_from_slice(kept.bytes(range));
                }
                let placed = &placed[chunk.records.clone()];
                self.sealed_bytes.add(fill(slab, placed, start, &mut buffer, &mut cut));
                (start, buffer)
            });
            stream.write_all(encoded.collect(), IN_FLIGHT_BYTES as usize)?;
        }
        stream.finish()
    }

    /// Reads ranges, ascending and apart, of which those that lie close together are one read.
    fn read_kept(&self, slab: &Slab, ranges: &[Range<u64>]) -> Result<Kept> {
        let spans: Vec<_> = spans(ranges).collect();
        let bytes = |span: &&[Range<u64>]| span[span.len() - 1].end - span[0].start;
        self.kept_reads.add(spans.len() as u64);
        self.kept_read_bytes.add(spans.iter().map(bytes).sum());
        let reads = spans.iter().map(|span| ReadAt {
            file: &slab.file,
            offset: span[0].start,
            len: bytes(span) as usize,
        });
        let mut kept = Vec::with_capacity(spans.len());
        for (span, buffer) in spans.iter().zip(read_batch(&reads.collect::<Vec<_>>())) {
            match buffer {
                // What lies between may be all that cannot be read.
                Err(_) if span.len() > 1 => {
                    for range in *span {
                        let len = (range.end - range.start) as usize;
                        kept.push((range.start, slab.file.read(range.start, len)?));
                    }
                }
                buffer => kept.push((span[0].start, buffer?)),
            }
        }
        Ok(Kept(kept))
    }

    /// Aligned ranges of a chunk that hold bytes of slots to keep: neither free nor written here.
    fn shared(
        &self,
        slab: &Slab,
        placed: &[Placed<'_, '_>],
        chunk: &Chunk,
        alignment: u64,
    ) -> Vec<Range<u64>> {
        if planted(Planted::SlotNeighboursNotKept) {
            return Vec::new();
        }
        let slot_at = |offset: u64| {
            let slots = offset.saturating_sub(slab.shape.offset(0));
            (slots / u64::from(slab.shape.slot_bytes)).min(u64::from(slab.shape.slots)) as u32
        };
        let Range { start, end } = chunk.window;
        let last = slot_at(end - 1).min(slab.shape.slots.saturating_sub(1));
        let mut written = placed[chunk.records.clone()].iter().map(|(slot, _)| *slot).peekable();
        let mut shared: Vec<Range<u64>> = Vec::new();
        let allocation = self.allocation.lock();
        for slot in slot_at(start)..=last {
            if written.next_if_eq(&slot).is_some() {
                continue;
            }
            if allocation.is_free(SlotAddress { slab: slab.id, slot }) {
                continue;
            }
            let from = slab.shape.offset(slot).max(start) / alignment * alignment;
            let to = slab.shape.offset(slot + 1).min(end).next_multiple_of(alignment);
            match shared.last_mut() {
                Some(range) if range.end >= from => range.end = range.end.max(to),
                _ => shared.push(from..to),
            }
        }
        shared
    }
}

/// What was read of a slab, ascending: where, and the bytes.
struct Kept(Vec<(u64, Buffer)>);

impl Kept {
    /// The bytes of one of the ranges that were read.
    fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let next = self.0.partition_point(|(start, _)| *start <= range.start);
        let (start, buffer) = &self.0[next - 1];
        &buffer[(range.start - start) as usize..(range.end - start) as usize]
    }
}

/// Ranges in groups of which each is one read.
fn spans(ranges: &[Range<u64>]) -> impl Iterator<Item = &[Range<u64>]> {
    let mut rest = ranges;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let follows = |pair: &&[Range<u64>]| share_a_read(&(first.start..pair[0].end), &pair[1]);
        let count = 1 + rest.windows(2).take_while(follows).count();
        let (span, others) = rest.split_at(count);
        rest = others;
        Some(span)
    })
}

/// Chunks in groups that are read and written together.
fn batches(chunks: &[Chunk]) -> impl Iterator<Item = &[Chunk]> {
    let mut rest = chunks;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |chunk: &&Chunk| {
            bytes += chunk.window.end - chunk.window.start;
            bytes <= BATCH_BYTES
        };
        let count = rest.iter().take(CHUNKS_AT_ONCE).take_while(fits).count();
        let (batch, others) = rest.split_at(count);
        rest = others;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Where a record lies in its slab.
fn span(slab: &Slab, (slot, record): Placed<'_, '_>) -> Range<u64> {
    let start = slab.shape.offset(slot);
    start..start + record.bytes()
}

/// The chunks that hold all records, ascending and apart.
fn plan(slab: &Slab, placed: &[Placed<'_, '_>], alignment: u64) -> Vec<Chunk> {
    let mut runs: Vec<Chunk> = Vec::new();
    for (index, record) in placed.iter().enumerate() {
        let span = span(slab, *record);
        let start = span.start / alignment * alignment;
        let end = span.end.next_multiple_of(alignment);
        match runs.last_mut() {
            // Neighbours are one run although the first does not fill its slot: no record has the
            // bytes between.
            Some(run) if run.window.end >= start || placed[index - 1].0 + 1 == record.0 => {
                run.window.end = run.window.end.max(end);
                run.records.end = index + 1;
            }
            _ => runs.push(Chunk { window: start..end, records: index..index + 1 }),
        }
    }
    runs.into_iter().flat_map(|run| cut(slab, placed, &run)).collect()
}

/// A run in pieces of at most [`CHUNK_BYTES`].
fn cut(slab: &Slab, placed: &[Placed<'_, '_>], run: &Chunk) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let mut start = run.window.start;
    let mut first = run.records.start;
    while start < run.window.end {
        let end = (start + CHUNK_BYTES).min(run.window.end);
        while first < run.records.end && span(slab, placed[first]).end <= start {
            first += 1;
        }
        let rest = &placed[first..run.records.end];
        let count = rest.partition_point(|record| span(slab, *record).start < end);
        chunks.push(Chunk { window: start..end, records: first..first + count });
        start = end;
    }
    chunks
}

/// Encodes records into a buffer that begins at `start` of the file, as far as they reach into it.
/// `cut` is the last record that did not end in the buffer before, with its sealed head: so a
/// record is sealed once however many chunks it fills.
fn fill(
    slab: &Slab,
    placed: &[Placed<'_, '_>],
    start: u64,
    buffer: &mut [u8],
    cut: &mut Option<(u32, [u8; SLOT_HEADER_BYTES])>,
) -> u64 {
    let mut sealed_bytes = 0;
    let end = start + buffer.len() as u64;
    for (slot, record) in placed {
        let span = span(slab, (*slot, *record));
        let begun = cut.take().filter(|(begun, _)| begun == slot);
        let head = begun.map_or_else(
            || {
                sealed_bytes += record.bytes();
                record.seal(&slab.file.place(span.start))
            },
            |(_, head)| head,
        );
        let (from, to) = (span.start.max(start), span.end.min(end));
        let out = &mut buffer[(from - start) as usize..(to - start) as usize];
        copy_part(&head, record, from - span.start, out);
        if span.end > end {
            *cut = Some((*slot, head));
        }
    }
    sealed_bytes
}
