//! A queue on io_uring: one system call starts a batch, one waits for it.
//!
//! The kernel is given addresses inside buffers that this queue owns, and uses them until it posts
//! the request's completion. Everything `unsafe` follows from that one promise.
//!
//! Invariants:
//! 1. A slot is taken from before its entry is written into the ring until its completion is seen;
//!    meanwhile no code touches, moves or frees the pages of its buffer, nor closes its file.
//! 2. At most `depth` slots exist and the ring has at least as many entries, so that neither the
//!    submission nor the completion ring overflows.
//! 3. Entries start in the order they were written. `waiting` lists those the kernel has not taken;
//!    if it refuses for good, they complete with the error and the ring is never entered to
//!    submit again.
//! 4. Dropping the queue waits for every started request. If waiting itself fails, the buffers
//!    are leaked rather than freed under the kernel's hands.
//! 5. A queue whose callers ask (`asking.rs`) reads the ring's memory while it does and enters the
//!    kernel only to start requests and where asking takes too long.
//! 6. A short transfer, an interruption, or a cancellation because the submitting thread ended, is
//!    finished with blocking calls: rare, and so needs no second path through the ring.
//!
//! Threads: a queue belongs to one thread at a time, and may move between threads.
#![allow(unsafe_code)]

use super::asking::{Asking, Batch, Caller};
use super::disk::{self, DiskFile};
use super::owner_process::{OwnerProcess, PerProcess};
use super::waiting::Awaited;
use crate::buffer::Buffer;
use crate::driver::{Completion, Handle, Operation, Queue, Request};
use crate::error::Result;
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The most a ring request moves at once; Linux itself stops at 2 GiB less a page. The rest is
/// finished like any short transfer.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// More in flight than any one device profits from; also a bound on the ring's memory.
const DEPTH_MAX: usize = 4096;

/// Whether rings can be made and know the operations used here. Asked of the kernel once.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: PerProcess<bool> = PerProcess::new();
    *AVAILABLE.get_or_make(|| {
        let Ok(ring) = IoUring::new(2) else {
            return false;
        };
        let mut probe = Probe::new();
        let known = ring.submitter().register_probe(&mut probe).is_ok();
        known
            && [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE]
                .into_iter()
                .all(|code| probe.is_supported(code))
    })
}

/// A request the kernel works on.
struct Slot {
    tag: u64,
    file: Handle,
    kind: Kind,
    buffer: Buffer,
}

#[derive(Clone, Copy)]
enum Kind {
    Read { offset: u64 },
    Write { offset: u64, durable: bool },
    Sync,
}

/// The queue. See the module's invariants.
pub(crate) struct RingQueue {
    ring: IoUring,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    /// Written into the ring, not yet taken by the kernel.
    waiting: VecDeque<usize>,
    finished: Vec<Completion>,
    refused: bool,
    /// A forked child shares the ring's memory, and would take away its parent's completions.
    owner: OwnerProcess,
    asking: Option<Arc<Asking>>,
    newest: Batch,
}

impl RingQueue {
    /// A ring for `depth` requests in flight.
    pub(super) fn new(depth: usize, asking: Option<Arc<Asking>>) -> io::Result<Self> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let ring = IoUring::new(depth.next_power_of_two() as u32)?;
        Ok(Self {
            ring,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth),
            finished: Vec::with_capacity(depth),
            refused: false,
            owner: OwnerProcess::current(),
            asking,
            newest: Batch { started_ns: 0, first: Awaited::Durable, is_single: false },
        })
    }

    /// It was made by this process, and the kernel takes its requests.
    pub(super) fn is_usable(&self) -> bool {
        self.owner.is_current() && !self.refused
    }

    /// Requests the kernel may be working on.
    fn started(&self) -> usize {
        self.slots.len() - self.free.len() - self.waiting.len()
    }

    /// Writes the request into the ring, or completes it where it cannot be started at all.
    fn enlist(&mut self, request: Request, index: usize) {
        let Request { tag, file, operation } = request;
        let (kind, mut buffer) = match operation {
            Operation::Read { offset, buffer } => (Kind::Read { offset }, buffer),
            Operation::Write { offset, buffer, durable } => {
                (Kind::Write { offset, durable }, buffer)
            }
            Operation::Sync => (Kind::Sync, Buffer::default()),
        };
        let entry = match entry(disk::disk_file(&file), kind, &mut buffer) {
            Ok(entry) => entry.user_data(index as u64),
            Err(error) => {
                self.free.push(index);
                self.finished.push(Completion { tag, result: Err(error), buffer });
                return;
            }
        };
        // The slot holds the buffer and the file before the kernel can learn of them.
        self.slots[index] = Some(Slot { tag, file, kind, buffer });
        // SAFETY: the entry's address and length are the view of the buffer, its descriptor that
        // of the file, both now owned by the slot, which stays until the completion (invariant 1).
        // Moving the `Buffer` moved a pointer to its heap pages, not the pages.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the ring has an entry for every slot (invariant 2)");
        self.waiting.push_back(index);
    }

    /// Gives the kernel everything that waits.
    fn start(&mut self) {
        while !self.waiting.is_empty() {
            match self.ring.submit() {
                Ok(taken) => drop(self.waiting.drain(..taken.min(self.waiting.len()))),
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR) => {}
                    // The kernel is out of memory for now: make room by finishing something.
                    Some(Errno::AGAIN | Errno::BUSY) if self.started() > 0 => self.collect(1),
                    _ => return self.refuse(&error),
                },
            }
        }
    }

    /// Completes what the kernel would not take, and never submits to this ring again.
    fn refuse(&mut self, error: &io::Error) {
        self.refused = true;
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        while let Some(index) = self.waiting.pop_front() {
            if let Some(slot) = self.slots[index].take() {
                self.free.push(index);
                let result = Err(disk::disk_file(&slot.file).failure("submit a request to", errno));
                self.finished.push(Completion { tag: slot.tag, result, buffer: slot.buffer });
            }
        }
    }

    /// The next completion that is there already.
    fn next_event(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Moves completions out of the ring, waiting until at least `at_least` have been moved.
    fn collect(&mut self, at_least: usize) {
        let before = self.finished.len();
        let mut caller = Caller::new(self.newest);
        loop {
            while let Some(event) = self.next_event() {
                self.complete(&event);
            }
            let missing = at_least.saturating_sub(self.finished.len() - before);
            if missing == 0 {
                self.asking.iter().for_each(|asking| asking.learn(&caller));
                return;
            }
            if self.asking.as_ref().is_some_and(|asking| asking.pause(&mut caller)) {
                continue;
            }
            if let Err(error) = self.wait(missing) {
                // The ring's own descriptor is broken: nothing sound can follow, and buffers the
                // kernel may still write to cannot be given back.
                panic!("cannot wait for an io_uring that was set up: {error}");
            }
        }
    }

    /// Sleeps until `count` completions are there; submits nothing.
    fn wait(&self, count: usize) -> io::Result<()> {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no entries are submitted and the argument is absent, so that the kernel reads
        // no memory of ours; completions only concern slots that are taken (invariant 1).
        match unsafe { self.ring.submitter().enter::<u64>(0, count as u32, flags, None) } {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn complete(&mut self, event: &cqueue::Entry) {
        let index = event.user_data() as usize;
        let slot = self.slots.get_mut(index).and_then(Option::take);
        let Some(mut slot) = slot else {
            unreachable!("a completion without a request (invariant 1)");
        };
        self.free.push(index);
        let result = conclude(&mut slot, event.result());
        self.finished.push(Completion { tag: slot.tag, result, buffer: slot.buffer });
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

/// The ring entry for a request that keeps the alignment.
fn entry(file: &DiskFile, kind: Kind, buffer: &mut Buffer) -> Result<squeue::Entry> {
    let descriptor = types::Fd(file.descriptor().as_raw_fd());
    let len = buffer.len().min(TRANSFER_BYTES_MAX) as u32;
    Ok(match kind {
        Kind::Read { offset } => {
            file.check_aligned("read", offset, buffer)?;
            opcode::Read::new(descriptor, buffer.as_mut_ptr(), len).offset(offset).build()
        }
        Kind::Write { offset, durable } => {
            file.check_aligned("write", offset, buffer)?;
            let flags = if durable { ReadWriteFlags::DSYNC.bits() as i32 } else { 0 };
            let write = opcode::Write::new(descriptor, buffer.as_ptr(), len).offset(offset);
            write.rw_flags(flags).build()
        }
        Kind::Sync => opcode::Fsync::new(descriptor).flags(types::FsyncFlags::DATASYNC).build(),
    })
}

/// Turns the kernel's answer into the request's, finishing what was cut short (invariant 6).
fn conclude(slot: &mut Slot, answer: i32) -> Result<usize> {
    let file = disk::disk_file(&slot.file);
    let outcome =
        if answer >= 0 { Ok(answer as usize) } else { Err(Errno::from_raw_os_error(-answer)) };
    let done = match outcome {
        Ok(done) => done,
        Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => match slot.kind {
            Kind::Sync => return file.sync(),
            _ => 0,
        },
        // The blocking call finds out what the file system has instead.
        Err(Errno::OPNOTSUPP) if matches!(slot.kind, Kind::Write { durable: true, .. }) => 0,
        Err(errno) => {
            let failed = |verb, at| Err(file.transfer_failure(verb, at, &slot.buffer, errno));
            return match slot.kind {
                Kind::Read { offset } => failed("read", offset),
                Kind::Write { offset, durable: false } => failed("write", offset),
                Kind::Write { offset, durable: true } => {
                    let _ = file.synced(Err(errno));
                    failed("write", offset)
                }
                Kind::Sync => file.synced(Err(errno)),
            };
        }
    };
    match slot.kind {
        Kind::Read { .. } | Kind::Write { durable: false, .. } if done == slot.buffer.len() => {
            Ok(done)
        }
        Kind::Read { offset } => file.read(offset, &mut slot.buffer, done),
        Kind::Write { offset, durable: false } => file.write(offset, &slot.buffer, done),
        Kind::Write { offset, durable: true } => file.write_durably(offset, &slot.buffer, done),
        Kind::Sync => file.synced(Ok(())),
    }
}

impl Queue for RingQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        if let (Some(asking), Some(first)) = (&self.asking, requests.first()) {
            self.newest = Batch {
                started_ns: asking.clock.now_ns(),
                first: Awaited::from(&first.operation),
                is_single: requests.len() == 1,
            };
        }
        for request in requests.drain(..) {
            while self.free.is_empty() && !self.refused {
                self.start();
                if self.free.is_empty() {
                    self.collect(1);
                }
            }
            match self.free.pop() {
                Some(index) if !self.refused => self.enlist(request, index),
                slot => {
                    self.free.extend(slot);
                    let Request { tag, file, operation } = request;
                    let done = disk::execute(&file, operation);
                    self.finished.push(Completion { tag, ..done });
                }
            }
        }
        self.start();
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        assert!(at_least <= self.in_flight(), "reaping more than is in flight");
        self.collect(at_least.saturating_sub(self.finished.len()));
        let count = self.finished.len();
        completions.append(&mut self.finished);
        count
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.finished.len()
    }
}

impl Drop for RingQueue {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            std::mem::forget(std::mem::take(&mut self.slots));
            return;
        }
        while self.started() > 0 {
            while let Some(event) = self.next_event() {
                if let Some(slot) = self.slots.get_mut(event.user_data() as usize) {
                    *slot = None;
                    self.free.push(event.user_data() as usize);
                }
            }
            if self.started() > 0
                && let Err(error) = self.wait(1)
            {
                tracing::error!(%error, "cannot wait for requests in flight; leaking buffers");
                std::mem::forget(std::mem::take(&mut self.slots));
                return;
            }
        }
    }
}

impl fmt::Debug for RingQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingQueue({} in flight of {})", self.in_flight(), self.slots.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::direct::{Batches, DirectDriver};
    use super::*;
    use crate::buffer::PAGE_BYTES;
    use crate::driver::Driver;

    /// A direct file of four pages, each filled with its number, where the system allows rings.
    fn numbered_pages() -> Option<(tempfile::TempDir, DirectDriver, Handle)> {
        let scratch = tempfile::tempdir().unwrap();
        let driver = DirectDriver::open(scratch.path(), Batches::Ring).ok()?;
        if !driver.uses_ring() {
            return None;
        }
        let file = driver.create("file").unwrap();
        for page in 0..4u8 {
            let offset = u64::from(page) * PAGE_BYTES as u64;
            let buffer = Buffer::copy_of(&[page; PAGE_BYTES]);
            driver
                .execute(&file, Operation::Write { offset, buffer, durable: false })
                .result
                .unwrap();
        }
        Some((scratch, driver, file))
    }

    fn page_read(tag: u64, file: &Handle) -> Request {
        let offset = tag * PAGE_BYTES as u64;
        let operation = Operation::Read { offset, buffer: Buffer::zeroed(PAGE_BYTES) };
        Request { tag, file: file.clone(), operation }
    }

    #[test]
    fn whatever_the_kernel_cut_short_is_finished() {
        let Some((_scratch, driver, file)) = numbered_pages() else {
            return;
        };
        let cut_short = [
            PAGE_BYTES as i32,
            0,
            -Errno::INTR.raw_os_error(),
            -Errno::AGAIN.raw_os_error(),
            -Errno::CANCELED.raw_os_error(),
        ];
        for answer in cut_short {
            let mut buffer = Buffer::zeroed(4 * PAGE_BYTES);
            let there = answer.max(0) as usize;
            buffer[..there].fill(0);
            let kind = Kind::Read { offset: 0 };
            let mut slot = Slot { tag: 0, file: file.clone(), kind, buffer };
            assert_eq!(conclude(&mut slot, answer).unwrap(), 4 * PAGE_BYTES, "{answer}");
            let pages = slot.buffer.chunks(PAGE_BYTES).zip(0u8..);
            pages.for_each(|(page, number)| assert!(page.iter().all(|byte| *byte == number)));

            for durable in [false, true] {
                let buffer = Buffer::copy_of(&[9; 2 * PAGE_BYTES]);
                let kind = Kind::Write { offset: 4 * PAGE_BYTES as u64, durable };
                let mut slot = Slot { tag: 0, file: file.clone(), kind, buffer };
                file.truncate(4 * PAGE_BYTES as u64).unwrap();
                assert_eq!(conclude(&mut slot, answer).unwrap(), 2 * PAGE_BYTES, "{answer}");
                assert_eq!(file.len().unwrap(), 6 * PAGE_BYTES as u64);
                file.truncate(4 * PAGE_BYTES as u64).unwrap();
            }
        }
        // A read cut by the end of the file has nothing to finish, also inside a page.
        file.truncate(PAGE_BYTES as u64 + 10).unwrap();
        for answer in [PAGE_BYTES as i32 + 10, PAGE_BYTES as i32] {
            let buffer = Buffer::zeroed(4 * PAGE_BYTES);
            let kind = Kind::Read { offset: 0 };
            let mut slot = Slot { tag: 0, file: file.clone(), kind, buffer };
            assert_eq!(conclude(&mut slot, answer).unwrap(), PAGE_BYTES + 10);
        }
        drop(driver);
    }

    #[test]
    fn failures_name_the_action_and_a_failed_sync_is_final() {
        let Some((_scratch, driver, file)) = numbered_pages() else {
            return;
        };
        let answer = -Errno::IO.raw_os_error();
        for (kind, text) in [
            (Kind::Read { offset: 8192 }, "read 4096 bytes at 8192 of"),
            (Kind::Write { offset: 4096, durable: false }, "write 4096 bytes at 4096 of"),
            (Kind::Sync, "sync"),
        ] {
            let buffer = Buffer::zeroed(PAGE_BYTES);
            let mut slot = Slot { tag: 0, file: file.clone(), kind, buffer };
            let error = conclude(&mut slot, answer).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("/file: "), "{error}");
        }
        // The kernel would sync now; the handle must not say so.
        let mut queue = driver.queue(2).unwrap();
        let sync = || Request { tag: 0, file: file.clone(), operation: Operation::Sync };
        queue.submit(&mut vec![sync(), sync()]);
        let mut done = Vec::new();
        queue.reap(2, &mut done);
        done.push(driver.execute(&file, Operation::Sync));
        for done in done {
            assert!(done.result.unwrap_err().to_string().contains("earlier sync failed"));
        }
        let durably = |file| {
            let buffer = Buffer::zeroed(PAGE_BYTES);
            driver.execute(file, Operation::Write { offset: 0, buffer, durable: true }).result
        };
        assert!(durably(&file).unwrap_err().to_string().contains("earlier sync failed"));
        let reopened = driver.open("file").unwrap();
        assert!(driver.execute(&reopened, Operation::Sync).result.is_ok());
        assert!(durably(&reopened).is_ok());
        // A durable write that fails is a sync that failed.
        let kind = Kind::Write { offset: 0, durable: true };
        let buffer = Buffer::zeroed(PAGE_BYTES);
        let mut slot = Slot { tag: 0, file: reopened.clone(), kind, buffer };
        assert!(conclude(&mut slot, answer).is_err());
        assert!(driver.execute(&reopened, Operation::Sync).result.is_err());
    }

    #[test]
    fn a_ring_the_kernel_refuses_answers_and_is_never_entered_again() {
        let Some((_scratch, _driver, file)) = numbered_pages() else {
            return;
        };
        let mut queue = RingQueue::new(4, None).unwrap();
        queue.submit(&mut vec![page_read(1, &file)]);
        for tag in [2, 3] {
            let index = queue.free.pop().unwrap();
            queue.enlist(page_read(tag, &file), index);
        }
        assert_eq!((queue.in_flight(), queue.started()), (3, 1));
        queue.refuse(&io::Error::from(Errno::NOMEM));
        queue.submit(&mut (0..4).map(|tag| page_read(tag, &file)).collect());
        assert_eq!(queue.in_flight(), 7);
        let mut done = Vec::new();
        queue.reap(7, &mut done);
        let (good, bad): (Vec<_>, Vec<_>) = done.into_iter().partition(|done| done.result.is_ok());
        assert_eq!(bad.iter().map(|done| done.tag).collect::<Vec<_>>(), [2, 3]);
        let text = bad[0].result.as_ref().unwrap_err().to_string();
        assert!(text.contains("submit a request to") && text.contains("memory"), "{text}");
        assert_eq!(good.len(), 5);
        for done in good {
            assert!(done.buffer.iter().all(|byte| u64::from(*byte) == done.tag));
        }
        assert_eq!((queue.in_flight(), queue.started()), (0, 0));
    }

    #[test]
    fn depths_of_any_size_make_a_ring() {
        for depth in [0, 1, 3, 100, usize::MAX] {
            if !is_available() {
                return;
            }
            let queue = RingQueue::new(depth, None).unwrap();
            assert_eq!(queue.slots.len(), depth.clamp(1, DEPTH_MAX));
            assert!(queue.ring.params().sq_entries() as usize >= queue.slots.len());
            assert!(queue.ring.params().cq_entries() as usize >= queue.slots.len());
        }
    }
}
