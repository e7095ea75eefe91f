//! What the contract is checked on: a fresh directory under each driver.

#![allow(clippy::disallowed_macros, reason = "a test that is passed over says why")]

mod places;

pub use places::{Mount, clock, scratch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use thermocline_device::drivers::{
    Batches, DirectDriver, EmulatedDriver, MemoryDriver, PosixDriver, Profile, Waiting,
};
use thermocline_device::{Driver, ErrorKind};
use thermocline_foundation::{Clock, random::Random};

/// A driver over an empty directory.
pub struct Subject {
    pub driver: Arc<dyn Driver>,
    /// Opens the same directory once more.
    pub again: Box<dyn Fn() -> Arc<dyn Driver>>,
    _scratch: Option<TempDir>,
}

impl Subject {
    /// A length that any request may have: the alignment, or an odd number where there is none.
    pub fn unit(&self) -> usize {
        if self.driver.alignment() > 1 { self.driver.alignment() } else { 577 }
    }

    /// The names in the directory, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.driver.list().unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }
}

/// `len` bytes that differ between seeds.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(seed ^ 0x5EED).fill(&mut bytes);
    bytes
}

pub fn memory() -> Option<Subject> {
    let driver = MemoryDriver::new();
    let shared = driver.clone();
    let again = Box::new(move || Arc::new(shared.clone()) as Arc<dyn Driver>);
    Some(Subject { driver: Arc::new(driver), again, _scratch: None })
}

pub fn posix() -> Option<Subject> {
    let scratch = scratch();
    let path = scratch.path().to_owned();
    let again = Box::new(move || Arc::new(PosixDriver::open(&path).unwrap()) as Arc<dyn Driver>);
    Some(Subject { driver: again(), again, _scratch: Some(scratch) })
}

pub fn direct(ring: bool) -> Option<Subject> {
    let scratch = scratch();
    let path = scratch.path().to_owned();
    let batches = if ring { Batches::Ring } else { Batches::Threads };
    let driver = match DirectDriver::open(&path, batches) {
        Ok(driver) if driver.uses_ring() == ring => driver,
        Ok(_) => {
            eprintln!("passed over: this system refuses io_uring");
            return None;
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            eprintln!("passed over: {error}");
            return None;
        }
    };
    let again =
        Box::new(move || Arc::new(DirectDriver::open(&path, batches).unwrap()) as Arc<dyn Driver>);
    Some(Subject { driver: Arc::new(driver), again, _scratch: Some(scratch) })
}

/// Direct I/O through rings, whose callers wait in this way.
pub fn direct_waiting(way: Waiting) -> Option<Subject> {
    let subject = direct(true)?;
    let path = subject.driver.host_directory()?.to_owned();
    let again = Box::new(move || {
        let driver = DirectDriver::open(&path, Batches::Ring).unwrap();
        Arc::new(driver.waiting(way, clock())) as Arc<dyn Driver>
    });
    Some(Subject { driver: again(), again, ..subject })
}

pub fn emulated(way: Waiting) -> Option<Subject> {
    let memory = MemoryDriver::new();
    let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
    let again = Box::new(move || {
        let (inner, clock) = (Arc::new(memory.clone()), Arc::clone(&clock));
        let profile = Profile::Gp3;
        let (name, model) = (profile.name(), profile.model());
        let driver = EmulatedDriver::waiting(inner, name, model, clock, way);
        Arc::new(driver) as Arc<dyn Driver>
    });
    Some(Subject { driver: again(), again, _scratch: None })
}

/// Time passes only where a caller sleeps.
#[derive(Debug, Default)]
struct SteppedClock {
    ns: AtomicU64,
}

impl Clock for SteppedClock {
    fn now_ns(&self) -> u64 {
        self.ns.load(Ordering::SeqCst)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) {
        self.ns.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
    }
}
