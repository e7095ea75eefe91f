//! Reads and writes of files that overlap in time: batches, read-ahead and write streams.
//!
//! Each takes a queue of the tier for as long as it lasts, so the requests of a batch reach a
//! device together and devices work side by side.
//!
//! 1. A queue goes back to its tier empty: its holder reaps all that it submitted, also when the
//!    holder is dropped early.
//! 2. The location found at the start serves the whole request; a migration meanwhile does not
//!    disturb it.
//!
//! 3. Background work makes way for writes of the log (`io_classes.rs`): its reads ahead wait until
//!    they are wanted, and batches and streams go in turns.
//!
//! Threads: [`read_batch`] and [`sync_batch`] from any; a [`PendingRead`], `PendingBatch` or
//! [`WriteStream`] belongs to one thread at a time.

use crate::buffer::Buffer;
use crate::driver::{Completion, Operation, Queue, Request};
use crate::error::{ErrorKind, Result};
use crate::file::{File, Label, Location, Span};
use crate::io_classes::{PIECE_BYTES, PIECES_MAX};
use crate::tier::Tier;
use std::collections::VecDeque;
use std::sync::Arc;

/// One read of a batch.
#[derive(Clone, Copy, Debug)]
pub struct ReadAt<'a> {
    /// The file.
    pub file: &'a File,
    /// Bytes from its start.
    pub offset: u64,
    /// How many bytes, exactly.
    pub len: usize,
}

/// A queue on loan from its tier.
#[derive(Debug)]
struct Lane {
    tier: Arc<Tier>,
    queue: Option<Box<dyn Queue>>,
}

impl Lane {
    fn take(tier: &Arc<Tier>) -> Result<Self> {
        Ok(Self { tier: Arc::clone(tier), queue: Some(tier.take_queue()?) })
    }

    /// Waits for what is in flight and forgets it; not in a forked child, where it is its parent's.
    fn drain(&mut self) {
        if self.tier.require_owner().is_ok() {
            let in_flight = self.queue().in_flight();
            self.queue().reap(in_flight, &mut Vec::new());
        }
    }

    fn queue(&mut self) -> &mut Box<dyn Queue> {
        self.queue.as_mut().expect("the queue leaves only when the lane is dropped")
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.drain();
        let Some(queue) = self.queue.take() else {
            return;
        };
        if self.tier.require_owner().is_err() {
            // In a forked child: what is in flight is its parent's.
            std::mem::forget(queue);
            return;
        }
        self.tier.give_queue(queue);
    }
}

/// Carries out all reads, on any files of any tiers, as parallel as the devices like; results in
/// the order of `reads`.
pub fn read_batch(reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
    match reads {
        [] => Vec::new(),
        [read] => vec![read.file.read(read.offset, read.len)],
        [first, ..] if first.file.location().tier.classes().makes_way() => read_in_turns(reads),
        _ => read_at_once(reads),
    }
}

/// As [`read_batch`], as few at a time as make way for a log.
fn read_in_turns(reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
    let mut results = Vec::with_capacity(reads.len());
    let mut rest = reads;
    while let Some(first) = rest.first() {
        let tier = Arc::clone(&first.file.location().tier);
        let beside = |read: &&ReadAt<'_>| {
            read.len <= PIECE_BYTES && Arc::ptr_eq(&read.file.location().tier, &tier)
        };
        let (now, later) = match rest.iter().take(PIECES_MAX).take_while(beside).count() {
            0 | 1 => {
                results.push(first.file.read(first.offset, first.len));
                rest = &rest[1..];
                continue;
            }
            count => {
                let turns = tier.classes().turns(count);
                let (now, later) = rest.split_at(turns.count());
                (read_at_once(now), later)
            }
        };
        results.extend(now);
        rest = later;
    }
    results
}

fn read_at_once(reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
    Flight::start(reads).wait(reads)
}

/// A batch of reads under way; see [`start_batch`].
#[derive(Debug)]
pub(crate) struct PendingBatch {
    /// None where it is read when it is waited for.
    flight: Option<Flight>,
}

/// Starts all reads, to be waited for later: read-ahead.
pub(crate) fn start_batch(reads: &[ReadAt<'_>]) -> PendingBatch {
    let waits = |first: &ReadAt<'_>| first.file.location().tier.classes().makes_way();
    let is_later = reads.first().is_none_or(waits);
    PendingBatch { flight: (!is_later).then(|| Flight::start(reads)) }
}

impl PendingBatch {
    /// Waits for the reads to finish. `reads` are those that it was started with; results in their
    /// order.
    pub fn wait(self, reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
        match self.flight {
            Some(flight) => flight.wait(reads),
            None => read_batch(reads),
        }
    }
}

/// Reads of a batch that devices have.
#[derive(Debug)]
struct Flight {
    lanes: Vec<(Lane, Vec<Request>)>,
    /// By the places in the batch: what a device has, and where it has nothing of a read, why.
    parts: Vec<Option<(Arc<Location>, Span)>>,
    results: Vec<Option<Result<Buffer>>>,
}

impl Flight {
    fn start(reads: &[ReadAt<'_>]) -> Self {
        let mut results: Vec<Option<Result<Buffer>>> = reads.iter().map(|_| None).collect();
        let mut parts = Vec::with_capacity(reads.len());
        let mut lanes: Vec<(Lane, Vec<Request>)> = Vec::new();
        for (tag, read) in reads.iter().enumerate() {
            let planned = read.file.located().and_then(|location| {
                let location = Arc::clone(&location);
                let span = read.file.span(&location, read.offset, read.len)?;
                let lane = lane_of(&mut lanes, &location.tier)?;
                Ok((location, span, lane))
            });
            match planned {
                Ok((location, span, lane)) => {
                    let file = Arc::clone(location.handle());
                    let request = Request { tag: tag as u64, file, operation: span.operation() };
                    lanes[lane].1.push(request);
                    parts.push(Some((location, span)));
                }
                Err(error) => {
                    // The others of the batch may have the descriptors.
                    let waits = error.kind() == ErrorKind::TooManyOpenFiles;
                    results[tag] = (!waits).then_some(Err(error));
                    parts.push(None);
                }
            }
        }
        for (lane, requests) in &mut lanes {
            lane.queue().submit(requests);
        }
        Self { lanes, parts, results }
    }

    fn wait(self, reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
        let Self { mut lanes, mut parts, mut results } = self;
        debug_assert_eq!(parts.len(), reads.len(), "those that were started are waited for");
        let mut completions = Vec::with_capacity(reads.len());
        for (lane, _) in &mut lanes {
            let in_flight = lane.queue().in_flight();
            lane.queue().reap(in_flight, &mut completions);
        }
        for completion in completions {
            let tag = completion.tag as usize;
            let (location, span) = parts[tag].take().expect("a request completes once");
            let ReadAt { file, offset, len } = &reads[tag];
            let whole = location.finish_read(file.label(), span, completion);
            results[tag] = Some(whole.and_then(|buffer| file.require(*offset, *len, buffer)));
        }
        let alone = |(result, read): (Option<Result<Buffer>>, &ReadAt<'_>)| {
            result.unwrap_or_else(|| read.file.read(read.offset, read.len))
        };
        results.into_iter().zip(reads).map(alone).collect()
    }
}

/// Makes every completed write of each file durable, as parallel as the devices like: one after the
/// other they would take a flush of the device each. All are tried; results in the order of
/// `files`, which must differ.
pub fn sync_batch(files: &[&File]) -> Vec<Result<()>> {
    if let [file] = files {
        return vec![file.sync()];
    }
    let mut results: Vec<Option<Result<()>>> = files.iter().map(|_| None).collect();
    let mut flights = Vec::with_capacity(files.len());
    let mut lanes: Vec<(Lane, Vec<Request>)> = Vec::new();
    for (tag, file) in files.iter().enumerate() {
        let covered = file.covered();
        let location = Arc::clone(&file.location());
        let planned = file.begin_sync(&location).and_then(|handle| match handle {
            Some(handle) => Ok(Some((handle, lane_of(&mut lanes, &location.tier)?))),
            None => Ok(None),
        });
        match planned {
            Ok(Some((handle, lane))) => {
                let operation = Operation::Sync;
                lanes[lane].1.push(Request { tag: tag as u64, file: handle, operation });
            }
            Ok(None) => results[tag] = Some(Ok(())),
            Err(error) => results[tag] = Some(Err(error)),
        }
        flights.push((location, covered));
    }
    for (lane, requests) in &mut lanes {
        lane.queue().submit(requests);
    }
    let mut completions = Vec::with_capacity(files.len());
    for (lane, _) in &mut lanes {
        let in_flight = lane.queue().in_flight();
        lane.queue().reap(in_flight, &mut completions);
    }
    for completion in completions {
        let tag = completion.tag as usize;
        let (location, covered) = &flights[tag];
        results[tag] = Some(files[tag].end_sync(location, *covered, completion));
    }
    results.into_iter().map(|result| result.expect("every request completed")).collect()
}

/// The lane of `tier`, taken now if the batch has none yet.
fn lane_of(lanes: &mut Vec<(Lane, Vec<Request>)>, tier: &Arc<Tier>) -> Result<usize> {
    if let Some(found) = lanes.iter().position(|(lane, _)| Arc::ptr_eq(&lane.tier, tier)) {
        return Ok(found);
    }
    lanes.push((Lane::take(tier)?, Vec::new()));
    Ok(lanes.len() - 1)
}

/// A read under way; see [`File::start_read`].
#[derive(Debug)]
pub struct PendingRead {
    state: Pending,
}

#[derive(Debug)]
enum Pending {
    Done(Result<Buffer>),
    /// Read when it is waited for.
    Later {
        location: Arc<Location>,
        label: Label,
        span: Span,
    },
    InFlight {
        lane: Lane,
        location: Arc<Location>,
        label: Label,
        span: Span,
    },
}

impl PendingRead {
    /// Waits for the read to finish.
    pub fn wait(self) -> Result<Buffer> {
        match self.state {
            Pending::Done(result) => result,
            Pending::Later { location, label, span } => {
                location.finish_read(label, span, location.transfer(span.operation()))
            }
            Pending::InFlight { mut lane, location, label, span } => {
                let mut completions = Vec::with_capacity(1);
                lane.queue().reap(1, &mut completions);
                let completion = completions.pop().expect("reap waits for the one in flight");
                location.finish_read(label, span, completion)
            }
        }
    }
}

impl File {
    /// Starts reading up to `len` bytes at `offset` (fewer where the file ends), to be waited for
    /// later: read-ahead.
    pub fn start_read(&self, offset: u64, len: usize) -> PendingRead {
        let state = self.begin_read(offset, len);
        PendingRead { state: state.unwrap_or_else(|error| Pending::Done(Err(error))) }
    }

    fn begin_read(&self, offset: u64, len: usize) -> Result<Pending> {
        let location = self.located()?;
        let location = Arc::clone(&location);
        let (label, span) = (self.label(), self.span(&location, offset, len)?);
        if location.tier.classes().makes_way() {
            return Ok(Pending::Later { location, label, span });
        }
        let mut lane = Lane::take(&location.tier)?;
        let file = Arc::clone(location.handle());
        let request = Request { tag: 0, file, operation: span.operation() };
        lane.queue().submit(&mut vec![request]);
        Ok(Pending::InFlight { lane, location, label, span })
    }

    /// A stream of writes of which up to `depth` overlap.
    pub fn start_writes(self: &Arc<Self>, depth: usize) -> Result<WriteStream> {
        let location = Arc::clone(&*self.located_to_change()?);
        let changing = Changing(Arc::clone(self));
        let lane = Lane::take(&location.tier)?;
        Ok(WriteStream {
            lane,
            location,
            depth: depth.max(1),
            spans: VecDeque::new(),
            next_tag: 0,
            failed: None,
            changing,
        })
    }
}

/// Writes of one file that overlap; see [`File::start_writes`]. Ranges must not overlap. After a
/// failure every later call returns it. Dropping the stream waits for the writes and forgets their
/// results: call [`WriteStream::finish`].
#[derive(Debug)]
pub struct WriteStream {
    lane: Lane,
    location: Arc<Location>,
    depth: usize,
    /// Tag, offset and length of the writes in flight.
    spans: VecDeque<(u64, u64, usize)>,
    next_tag: u64,
    failed: Option<crate::Error>,
    /// Dropped after the lane, which waits for the writes.
    changing: Changing,
}

/// The change of a file that a stream of writes is.
#[derive(Debug)]
struct Changing(Arc<File>);

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.end_change();
    }
}

impl WriteStream {
    /// Starts writing the buffer's view at `offset`, first waiting while `depth` writes are in
    /// flight. Returns a buffer of a write that finished, if one did, for the caller to fill again.
    pub fn write(&mut self, offset: u64, buffer: Buffer) -> Result<Option<Buffer>> {
        if self.location.tier.classes().makes_way() {
            return self.write_in_turns(vec![(offset, buffer)]);
        }
        let spent = if self.spans.len() >= self.depth { self.reap(1) } else { None };
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let request = self.request(offset, buffer);
        self.lane.queue().submit(&mut vec![request]);
        Ok(spent)
    }

    /// Starts writing the views of all buffers, each at its offset, in one submission. First waits,
    /// while writes are in flight, until these and the new ones are `depth` at most and of
    /// `bytes_max`.
    pub fn write_all(&mut self, writes: Vec<(u64, Buffer)>, bytes_max: usize) -> Result<()> {
        if self.location.tier.classes().makes_way() {
            return self.write_in_turns(writes).map(drop);
        }
        let new_bytes: usize = writes.iter().map(|(_, buffer)| buffer.len()).sum();
        while !self.spans.is_empty() {
            let bytes = self.spans.iter().map(|(_, _, len)| len).sum::<usize>() + new_bytes;
            if self.spans.len() + writes.len() <= self.depth && bytes <= bytes_max {
                break;
            }
            self.reap(1);
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut requests: Vec<_> =
            writes.into_iter().map(|(offset, buffer)| self.request(offset, buffer)).collect();
        self.lane.queue().submit(&mut requests);
        Ok(())
    }

    /// Writes the views of all buffers, as few at a time as make way for a log. Returns one of
    /// them.
    fn write_in_turns(&mut self, writes: Vec<(u64, Buffer)>) -> Result<Option<Buffer>> {
        let mut spent = self.reap(self.spans.len());
        let location = Arc::clone(&self.location);
        let is_piece = |(_, buffer): &(u64, Buffer)| buffer.len() <= PIECE_BYTES;
        let (pieces, whole): (Vec<_>, Vec<_>) = writes.into_iter().partition(is_piece);
        for (offset, buffer) in whole {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            spent = Some(self.write_in_pieces(offset, buffer));
        }
        let mut pieces = pieces.into_iter().peekable();
        while pieces.peek().is_some() {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            let turns = location.tier.classes().turns(pieces.len());
            let now = pieces.by_ref().take(turns.count());
            let mut requests: Vec<_> =
                now.map(|(offset, buffer)| self.request(offset, buffer)).collect();
            self.lane.queue().submit(&mut requests);
            spent = self.reap(self.spans.len());
        }
        self.failed.clone().map_or(Ok(spent), Err)
    }

    fn write_in_pieces(&mut self, offset: u64, buffer: Buffer) -> Buffer {
        self.changing.0.count_write(&self.location, offset, &buffer);
        let len = buffer.len();
        let operation = Operation::Write { offset, buffer, durable: false };
        let Completion { result, buffer, .. } = self.location.transfer_in_pieces(operation);
        if let Err(error) = result {
            let error = self.changing.0.write_error(&self.location, offset, len, &error);
            self.failed.get_or_insert(error);
        }
        buffer
    }

    /// Notes a write that is about to be submitted.
    fn request(&mut self, offset: u64, buffer: Buffer) -> Request {
        self.changing.0.count_write(&self.location, offset, &buffer);
        self.spans.push_back((self.next_tag, offset, buffer.len()));
        let file = Arc::clone(self.location.handle());
        let request = Request {
            tag: self.next_tag,
            file,
            operation: Operation::Write { offset, buffer, durable: false },
        };
        self.next_tag += 1;
        request
    }

    /// Waits for all writes; the file still has to be synced.
    pub fn finish(mut self) -> Result<()> {
        self.reap(self.spans.len());
        self.failed.take().map_or(Ok(()), Err)
    }

    fn reap(&mut self, at_least: usize) -> Option<Buffer> {
        let mut completions = Vec::new();
        self.lane.queue().reap(at_least, &mut completions);
        let mut spent = None;
        for Completion { tag, result, buffer } in completions {
            let found = self.spans.iter().position(|span| span.0 == tag);
            let span = found.and_then(|found| self.spans.remove(found));
            let (_, offset, len) = span.expect("a request completes once");
            if let Err(error) = result {
                let error = self.changing.0.write_error(&self.location, offset, len, &error);
                self.failed.get_or_insert(error);
            }
            spent = Some(buffer);
        }
        spent
    }
}
