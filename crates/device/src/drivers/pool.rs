//! Batches without io_uring: a few threads that carry out blocking requests.
//!
//! A driver owns one pool and shares it among its queues. Threads start when work first waits for
//! one, up to [`THREADS_MAX`], and end with the driver.
//!
//! Invariants:
//! 1. A request that needs no device (a read the page cache can answer, asked with `RWF_NOWAIT`)
//!    and a lone request never change threads: a handover costs more than they do.
//! 2. A request in the pool owns its buffer and its handle. A dropped queue waits for its own
//!    requests, so that nothing is written after its owner is gone.
//! 3. Where the system has no thread to give, the submitter carries out the requests itself.
//! 4. A forked child, which has no such threads, waits for none of them.
//!
//! Threads: the pool is shared; a queue belongs to one thread at a time.

use super::disk;
use super::owner_process::OwnerProcess;
use crate::driver::{Completion, Operation, Queue, Request};
use rustix::io::ReadWriteFlags;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads;
use thermocline_foundation::threads::JoinHandle;

/// Enough to keep a fast device busy from blocking calls: drives reach most of their throughput
/// at 16 requests in flight (SpanDB, figure 2).
const THREADS_MAX: usize = 16;

/// The threads of one driver.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    owner: OwnerProcess,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    stop: bool,
}

#[derive(Debug)]
struct Job {
    request: Request,
    mailbox: Arc<Mailbox>,
}

/// Where a queue's finished requests arrive.
#[derive(Debug, Default)]
struct Mailbox {
    finished: Mutex<Vec<Completion>>,
    arrived: Condvar,
}

impl Pool {
    /// Queues `jobs` and makes sure that threads run; jobs that no thread will run stay in the
    /// argument.
    fn run(&self, jobs: &mut VecDeque<Job>) {
        let mut threads = self.threads.lock();
        let missing = {
            let state = self.shared.state.lock();
            (state.jobs.len() + jobs.len()).saturating_sub(state.idle)
        };
        for _ in 0..missing.min(THREADS_MAX - threads.len()) {
            let shared = Arc::clone(&self.shared);
            match threads::spawn("device-io", move || serve(&shared)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread for device requests");
                    break;
                }
            }
        }
        if threads.is_empty() {
            return;
        }
        let count = jobs.len();
        self.shared.state.lock().jobs.append(jobs);
        for _ in 0..count {
            self.shared.work.notify_one();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // In a forked child there are no such threads, and what they held stays held.
            std::mem::forget(std::mem::take(self.threads.get_mut()));
            return;
        }
        self.shared.state.lock().stop = true;
        self.shared.work.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a device thread panicked");
            }
        }
    }
}

/// A thread's life: take a job, carry it out, post it.
fn serve(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            let done = finish(job.request);
            let mut finished = job.mailbox.finished.lock();
            finished.push(done);
            drop(finished);
            job.mailbox.arrived.notify_one();
            state = shared.state.lock();
        } else if state.stop {
            return;
        } else {
            state.idle += 1;
            shared.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}

fn finish(request: Request) -> Completion {
    let Request { tag, file, operation } = request;
    Completion { tag, ..disk::execute(&file, operation) }
}

/// What the page cache can answer is answered at once; anything else comes back.
fn answer_from_cache(request: Request) -> Result<Completion, Request> {
    let Request { tag, file, operation } = request;
    let Operation::Read { offset, mut buffer } = operation else {
        return Err(Request { tag, file, operation });
    };
    let descriptor = disk::disk_file(&file).descriptor();
    let (len, nowait) = (buffer.len(), ReadWriteFlags::NOWAIT);
    let mut view = [IoSliceMut::new(&mut buffer)];
    match rustix::io::preadv2(descriptor, &mut view, offset, nowait) {
        Ok(got) if got == len => Ok(Completion { tag, result: Ok(got), buffer }),
        // A miss, the end of the file, or no such flag here: a thread finds out.
        _ => Err(Request { tag, file, operation: Operation::Read { offset, buffer } }),
    }
}

/// A queue whose requests the pool carries out.
#[derive(Debug)]
pub(crate) struct PoolQueue {
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    depth: usize,
    cached: bool,
    /// Given to the pool and not yet fetched from the mailbox.
    running: usize,
    finished: Vec<Completion>,
    batch: VecDeque<Job>,
}

impl PoolQueue {
    /// `cached` says that the files go through the page cache.
    pub(crate) fn new(pool: Arc<Pool>, depth: usize, cached: bool) -> Self {
        Self {
            pool,
            mailbox: Arc::default(),
            depth: depth.max(1),
            cached,
            running: 0,
            finished: Vec::new(),
            batch: VecDeque::new(),
        }
    }

    /// Fetches what has arrived, waiting until something has where `wait` says so.
    fn fetch(&mut self, wait: bool) {
        let mut arrived = self.mailbox.finished.lock();
        while wait && arrived.is_empty() {
            self.mailbox.arrived.wait(&mut arrived);
        }
        self.running -= arrived.len();
        self.finished.append(&mut arrived);
    }

    /// Hands the gathered batch to the pool.
    fn start_batch(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.running += self.batch.len();
        self.pool.run(&mut self.batch);
        // Left over only where no thread could be started.
        self.running -= self.batch.len();
        while let Some(job) = self.batch.pop_front() {
            self.finished.push(finish(job.request));
        }
    }
}

impl Queue for PoolQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        if requests.len() == 1
            && self.in_flight() == 0
            && let Some(request) = requests.pop()
        {
            self.finished.push(finish(request));
            return;
        }
        for request in requests.drain(..) {
            let request = match if self.cached { answer_from_cache(request) } else { Err(request) }
            {
                Ok(done) => {
                    self.finished.push(done);
                    continue;
                }
                Err(request) => request,
            };
            if self.running + self.batch.len() >= self.depth {
                self.start_batch();
                while self.running >= self.depth {
                    self.fetch(true);
                }
            }
            self.batch.push_back(Job { request, mailbox: Arc::clone(&self.mailbox) });
        }
        self.start_batch();
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        assert!(at_least <= self.in_flight(), "reaping more than is in flight");
        if self.running > 0 {
            self.fetch(false);
        }
        while self.finished.len() < at_least {
            self.fetch(true);
        }
        let count = self.finished.len();
        completions.append(&mut self.finished);
        count
    }

    fn in_flight(&self) -> usize {
        self.running + self.finished.len()
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        while self.running > 0 && self.pool.owner.is_current() {
            self.fetch(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::posix::PosixDriver;
    use super::*;
    use crate::buffer::Buffer;
    use crate::driver::{Driver, Handle};
    use rustix::fs::Advice;

    fn page_read(tag: u64, file: &Handle) -> Request {
        let operation = Operation::Read { offset: tag * 4096, buffer: Buffer::zeroed(4096) };
        Request { tag, file: file.clone(), operation }
    }

    fn numbered_pages(driver: &PosixDriver, count: u8) -> Handle {
        let file = driver.create("file").unwrap();
        let bytes: Vec<u8> = (0..count).flat_map(|page| [page; 4096]).collect();
        let buffer = Buffer::copy_of(&bytes);
        driver
            .execute(&file, Operation::Write { offset: 0, buffer, durable: false })
            .result
            .unwrap();
        driver.execute(&file, Operation::Sync).result.unwrap();
        file
    }

    #[test]
    fn batches_are_answered_whether_the_page_cache_has_them_or_not() {
        let scratch = tempfile::tempdir().unwrap();
        let driver = PosixDriver::open(scratch.path()).unwrap();
        let file = numbered_pages(&driver, 40);
        for cached in [true, false] {
            if !cached {
                let descriptor = disk::disk_file(&file).descriptor();
                rustix::fs::fadvise(descriptor, 0, None, Advice::DontNeed).unwrap();
            }
            let mut queue = PoolQueue::new(Arc::default(), 8, true);
            queue.submit(&mut (0..40).map(|tag| page_read(tag, &file)).collect());
            let mut done = Vec::new();
            queue.reap(40, &mut done);
            for done in done {
                assert_eq!(done.result.unwrap(), 4096);
                assert!(done.buffer.iter().all(|byte| u64::from(*byte) == done.tag));
            }
        }
    }

    #[test]
    fn threads_start_when_work_waits_stay_few_and_end_with_the_pool() {
        let scratch = tempfile::tempdir().unwrap();
        let driver = PosixDriver::open(scratch.path()).unwrap();
        let file = numbered_pages(&driver, 4);
        let pool: Arc<Pool> = Arc::default();
        let mut queue = PoolQueue::new(Arc::clone(&pool), 64, false);
        let mut done = Vec::new();
        queue.submit(&mut vec![page_read(0, &file)]);
        assert_eq!(pool.threads.lock().len(), 0, "a lone request needs no thread");
        queue.reap(1, &mut done);
        for _ in 0..20 {
            queue.submit(&mut (0..64).map(|tag| page_read(tag % 4, &file)).collect());
            queue.reap(64, &mut done);
        }
        assert_eq!(pool.threads.lock().len(), THREADS_MAX);
        assert_eq!(done.len(), 1 + 20 * 64);
        let shared = Arc::clone(&pool.shared);
        drop((queue, pool));
        assert_eq!(Arc::strong_count(&shared), 1, "every thread has ended");
    }
}
