//! Any driver, slowed down to the figures of another device.
//!
//! The wrapped driver does the work; a request completes at the later of its own completion and
//! the time the model (`model.rs`) gives. Time comes from a [`Clock`], so that a simulation runs
//! as fast as it can compute and a test can name the nanosecond.
//!
//! ```text
//!   submit --> model says when --> inner queue --> held until then --> reap
//! ```
//!
//! Invariants:
//! 1. Nothing completes before its modelled time; nothing is slowed down further than the kernel's
//!    timer makes unavoidable, and lateness never adds up, since times are booked at submission.
//! 2. Data is where the wrapped driver keeps it: handles, names and locks are its own.
//! 3. Syncs of the directory take the model's sync time; other directory operations take none.
//! 4. What the device did is counted as the model has it, not as the device below did it.
//!
//! Threads: as the contract says; the device is one, however many queues there are.

use super::asking::{Asking, Batch, Caller, sharpen_timer};
use super::model::{Access, DeviceModel, Position, Schedule};
use super::waiting::{Awaited, Waiting};
use crate::driver::{
    Completion, CountedDevice, DeviceCounts, DirectoryId, DirectoryLock, Driver, Entry, Handle,
    HostUse, Operation, Queue, Request, Space,
};
use crate::error::Result;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::Clock;

/// The driver.
#[derive(Debug)]
pub struct EmulatedDriver {
    inner: Arc<dyn Driver>,
    device: Arc<Device>,
    name: String,
    text: String,
}

/// The modelled device, and how its callers wait, by the clock it lives by.
#[derive(Debug)]
struct Device {
    schedule: Schedule,
    asking: Asking,
}

/// A request that was asked for and will be done.
#[derive(Clone, Copy, Debug)]
struct Booking {
    request: Batch,
    due_ns: u64,
}

impl EmulatedDriver {
    /// `inner`, as slow as `model`; `device` names it in messages.
    pub fn new(
        inner: Arc<dyn Driver>,
        device: &str,
        model: DeviceModel,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::waiting(inner, device, model, clock, Waiting::Interrupt)
    }

    /// As [`EmulatedDriver::new`], whose callers wait in this way.
    pub fn waiting(
        inner: Arc<dyn Driver>,
        device: &str,
        model: DeviceModel,
        clock: Arc<dyn Clock>,
        waiting: Waiting,
    ) -> Self {
        let (name, text) = (device.to_owned(), format!("{} as {device}", inner.describe()));
        let (schedule, asking) = (Schedule::new(model), Asking::new(waiting, clock));
        let device = Arc::new(Device { schedule, asking });
        Self { inner, device, name, text }
    }
}

impl Device {
    /// Books what a program does itself.
    fn book_use(&self, file: usize, of: HostUse) -> u64 {
        let position = |offset| Position { file, offset };
        let access = match of {
            HostUse::Read { offset, len } => Access::Read { position: position(offset), len },
            HostUse::Write { offset, len } => {
                Access::Write { position: position(offset), len, durable: false }
            }
            HostUse::Sync => Access::Sync,
        };
        self.schedule.schedule(self.clock().now_ns(), access)
    }

    /// Books `operation` and says when it is done.
    fn book(&self, file: &Handle, operation: &Operation) -> Booking {
        // Handles are told apart by address: one that is reused only misjudges one disk seek.
        let position = |offset| Position { file: Arc::as_ptr(file).addr(), offset };
        let access = match operation {
            Operation::Read { offset, buffer } => {
                Access::Read { position: position(*offset), len: buffer.len() }
            }
            Operation::Write { offset, buffer, durable } => {
                let (position, len) = (position(*offset), buffer.len());
                Access::Write { position, len, durable: *durable }
            }
            Operation::Sync => Access::Sync,
        };
        let (started_ns, first) = (self.clock().now_ns(), Awaited::from(operation));
        let due_ns = self.schedule.schedule(started_ns, access);
        Booking { request: Batch { started_ns, first, is_single: true }, due_ns }
    }

    /// Waits until the request is done, in the way that callers of this device wait.
    fn wait_for(&self, booking: Booking) {
        let mut caller = Caller::new(booking.request);
        while self.clock().now_ns() < booking.due_ns {
            if !self.asking.pause(&mut caller) {
                return self.wait_until(booking.due_ns);
            }
        }
        self.asking.learn(&caller);
    }

    fn clock(&self) -> &dyn Clock {
        &*self.asking.clock
    }

    fn wait_until(&self, due_ns: u64) {
        loop {
            let now = self.clock().now_ns();
            if now >= due_ns {
                return;
            }
            sharpen_timer();
            self.clock().sleep(Duration::from_nanos(due_ns - now));
        }
    }
}

#[derive(Debug)]
struct Due {
    tag: u64,
    booking: Booking,
    /// Present once the wrapped queue has finished it.
    done: Option<Completion>,
}

/// Requests under their own numbers, since callers may use a tag twice.
#[derive(Debug)]
struct EmulatedQueue {
    inner: Box<dyn Queue>,
    device: Arc<Device>,
    due: HashMap<u64, Due>,
    next: u64,
    batch: Vec<Request>,
    fetched: Vec<Completion>,
}

impl EmulatedQueue {
    /// Takes what the wrapped queue has finished, waiting for at least `at_least`.
    fn fetch(&mut self, at_least: usize) {
        self.inner.reap(at_least, &mut self.fetched);
        for completion in self.fetched.drain(..) {
            if let Some(due) = self.due.get_mut(&completion.tag) {
                due.done = Some(completion);
            }
        }
    }

    /// Appends what is finished and due, the earliest first.
    fn release(&mut self, completions: &mut Vec<Completion>) -> usize {
        let now = self.device.clock().now_ns();
        let ready = |due: &Due| due.booking.due_ns <= now && due.done.is_some();
        let mut numbers: Vec<(u64, u64)> = self
            .due
            .iter()
            .filter(|(_, due)| ready(due))
            .map(|(number, due)| (due.booking.due_ns, *number))
            .collect();
        numbers.sort_unstable();
        let before = completions.len();
        for (_, number) in numbers {
            if let Some(Due { tag, done: Some(done), .. }) = self.due.remove(&number) {
                completions.push(Completion { tag, ..done });
            }
        }
        completions.len() - before
    }
}

impl Queue for EmulatedQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            let Request { tag, file, operation } = request;
            let number = self.next;
            self.next += 1;
            let booking = self.device.book(&file, &operation);
            self.due.insert(number, Due { tag, booking, done: None });
            self.batch.push(Request { tag: number, file, operation });
        }
        self.inner.submit(&mut self.batch);
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        assert!(at_least <= self.in_flight(), "reaping more than is in flight");
        self.fetch(0);
        let mut count = self.release(completions);
        while count < at_least {
            // Whichever is due first decides what to wait for: the clock or the device below.
            match self.due.values().min_by_key(|due| (due.booking.due_ns, due.done.is_none())) {
                Some(Due { booking, done: Some(_), .. }) => self.device.wait_for(*booking),
                _ => self.fetch(1),
            }
            count += self.release(completions);
        }
        count
    }

    fn in_flight(&self) -> usize {
        self.due.len()
    }
}

impl Driver for EmulatedDriver {
    fn name(&self) -> &'static str {
        "emulated"
    }

    fn describe(&self) -> String {
        self.text.clone()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.inner.create(name)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.inner.open(name)
    }

    fn open_to_read(&self, name: &str) -> Result<Handle> {
        self.inner.open_to_read(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        let due = self.device.schedule.schedule(self.device.clock().now_ns(), Access::Sync);
        let result = self.inner.sync_directory();
        self.device.wait_until(due);
        result
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(name)
    }

    fn lock_shared(&self, name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        self.inner.lock_shared(name)
    }

    fn directory_id(&self) -> Option<DirectoryId> {
        self.inner.directory_id()
    }

    fn device_counts(&self) -> Option<DeviceCounts> {
        Some(self.device.schedule.counts(self.device.clock().now_ns()))
    }

    fn block_bytes(&self) -> Option<usize> {
        self.inner.block_bytes()
    }

    fn counted_device(&self) -> Option<CountedDevice> {
        Some(CountedDevice::Emulated(Arc::as_ptr(&self.device).addr()))
    }

    fn emulated_as(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn book(&self, file: usize, of: HostUse) -> Option<u64> {
        Some(self.device.book_use(file, of))
    }

    fn wait_until(&self, due_ns: u64) {
        self.device.wait_until(due_ns);
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(EmulatedQueue {
            inner: self.inner.queue(depth)?,
            device: Arc::clone(&self.device),
            due: HashMap::new(),
            next: 0,
            batch: Vec::new(),
            fetched: Vec::new(),
        }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        let due = self.device.book(file, &operation);
        let completion = self.inner.execute(file, operation);
        self.device.wait_for(due);
        completion
    }

    fn host_directory(&self) -> Option<&Path> {
        self.inner.host_directory()
    }

    fn try_link(&self, name: &str, into: &dyn Driver, new_name: &str) -> Result<bool> {
        self.inner.try_link(name, into, new_name)
    }

    fn make_link(&self, name: &str, text: &str) -> Result<()> {
        self.inner.make_link(name, text)
    }

    fn read_link(&self, name: &str) -> Result<Option<String>> {
        self.inner.read_link(name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryDriver, Profile};
    use super::*;
    use crate::buffer::Buffer;
    use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};

    /// Time passes only where a caller sleeps.
    #[derive(Debug, Default)]
    struct SteppedClock(AtomicU64);

    impl Clock for SteppedClock {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::SeqCst)
        }

        fn wall_s(&self) -> u64 {
            0
        }

        fn sleep(&self, duration: Duration) {
            self.0.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
        }
    }

    fn emulated(profile: Profile) -> (EmulatedDriver, Arc<SteppedClock>, Handle) {
        let clock = Arc::new(SteppedClock::default());
        let (inner, shared) = (Arc::new(MemoryDriver::new()), Arc::clone(&clock));
        let driver = EmulatedDriver::new(inner, profile.name(), profile.model(), shared);
        let file = driver.create("file").unwrap();
        assert_eq!(clock.now_ns(), 0, "creating a file takes no time");
        (driver, clock, file)
    }

    fn read(len: usize) -> Operation {
        Operation::Read { offset: 0, buffer: Buffer::zeroed(len) }
    }

    #[test]
    fn blocking_requests_take_exactly_what_the_model_says() {
        let (driver, clock, file) = emulated(Profile::Gp3);
        let write =
            Operation::Write { offset: 0, buffer: Buffer::zeroed(3_000_000), durable: false };
        driver.execute(&file, write).result.unwrap();
        assert_eq!(clock.now_ns(), 700_000 + 10_000_000, "0.7 ms, then 3 MB at 300 MB/s");
        driver.execute(&file, read(3_000)).result.unwrap();
        assert_eq!(clock.now_ns(), 10_700_000 + 700_000 + 10_000);
        driver.execute(&file, Operation::Sync).result.unwrap();
        assert_eq!(clock.now_ns(), 11_410_000 + 700_000);
        driver.sync_directory().unwrap();
        assert_eq!(clock.now_ns(), 12_110_000 + 700_000);
    }

    #[test]
    fn a_queue_gives_back_each_request_at_its_time_and_not_before() {
        let (driver, clock, file) = emulated(Profile::Gp3);
        let mut queue = driver.queue(8).unwrap();
        let request = |tag| Request { tag, file: file.clone(), operation: read(0) };
        queue.submit(&mut (0..4).map(request).collect());
        let mut done = Vec::new();
        assert_eq!(queue.reap(0, &mut done), 0, "nothing is due yet");
        assert_eq!((queue.in_flight(), clock.now_ns()), (4, 0));
        // 10,000 a second: starts lie 0.1 ms apart.
        assert_eq!((queue.reap(1, &mut done), clock.now_ns()), (1, 700_000));
        assert_eq!((queue.reap(2, &mut done), clock.now_ns()), (2, 900_000));
        clock.sleep(Duration::from_secs(1));
        assert_eq!((queue.reap(0, &mut done), queue.in_flight()), (1, 0));
        assert_eq!(done.iter().map(|done| done.tag).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn what_a_program_does_itself_takes_the_device_s_time_and_is_counted() {
        let (driver, clock, file) = emulated(Profile::Gp3);
        let of = HostUse::Write { offset: 0, len: 3_000_000 };
        let due = driver.book(1, of).unwrap();
        assert_eq!((due, clock.now_ns()), (10_700_000, 0), "it is booked, and nothing waits yet");
        driver.wait_until(due);
        assert_eq!(clock.now_ns(), due);
        clock.sleep(Duration::from_secs(1));
        driver.execute(&file, read(3_000)).result.unwrap();
        let counts = driver.device_counts().unwrap();
        assert_eq!((counts.read_bytes, counts.written_bytes), (3_000, 3_000_000));
        assert_eq!(counts.busy_ns, 10_700_000 + 710_000, "the second in between was idle");
        let due = driver.book(1, HostUse::Sync).unwrap();
        assert_eq!(due, clock.now_ns() + 700_000);
        assert_eq!(driver.device_counts().unwrap().busy_ns, counts.busy_ns, "it is not over yet");
        assert_eq!(MemoryDriver::new().book(1, of), None);
    }

    #[test]
    fn queues_share_one_device() {
        let (driver, clock, file) = emulated(Profile::Hdd);
        let mut queues = [driver.queue(1).unwrap(), driver.queue(1).unwrap()];
        for (queue, offset) in queues.iter_mut().zip([1_000_000, 0]) {
            let operation = Operation::Read { offset, buffer: Buffer::zeroed(0) };
            queue.submit(&mut vec![Request { tag: 0, file: file.clone(), operation }]);
        }
        let mut done = Vec::new();
        queues[1].reap(1, &mut done);
        assert_eq!(clock.now_ns(), 2 * 12_700_000, "one arm, two seeks");
        assert_eq!(queues[0].reap(0, &mut done), 1);
    }
}
