//! Small stores whose device calls can be held up, failed, or made to panic, and ways to wait for
//! an answer that end where none comes.

use crate::hooked::{Call, HookedDevices};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline::{
    ByteSize, Compression, Db, Environment, ErrorKind, Preset, Result, Settings, Ticket, Tier,
};
use thermocline_device::MemoryDevices;
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::{Clock, SystemClock};

pub const PRESETS: [Preset; 2] = [Preset::Leveled, Preset::Hybrid];

/// Looks at an answer, a millisecond apart, before it counts as one that never comes.
const LOOKS_MAX: usize = 60_000;

pub fn home() -> &'static Path {
    Path::new("/home")
}

pub fn settings(preset: Preset) -> Settings {
    Settings {
        preset: Some(preset),
        tiers: vec![
            Tier::new("/fast", ByteSize::mib(16)).driver("memory"),
            Tier::new("/slow", ByteSize::mib(256)).driver("memory"),
        ],
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(64),
        background_threads: 1,
        // Where a wait for a lock is a mistake of the store, the test waits for ever.
        lock_timeout: thermocline::Duration::ms(600_000),
        compression: vec![Compression::None],
        stats_interval: thermocline::Duration::ms(0),
        ..Settings::default()
    }
}

/// What a device call of a thread meets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Met {
    #[default]
    Nothing,
    /// It waits until that is over.
    Wait,
    Failure,
    Panic,
}

#[derive(Debug, Default)]
struct Rules {
    /// Syncs of logs, and reads of tables and slabs.
    syncs: Met,
    reads: Met,
    /// Calls that are held up.
    held: usize,
}

/// Devices in memory that do as a test says.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    memory: MemoryDevices,
    rules: Arc<(Mutex<Rules>, Condvar)>,
}

impl Devices {
    pub fn environment(&self) -> Environment {
        let rules = Arc::clone(&self.rules);
        let hook = Arc::new(move |call: Call, _: &Path, name: &str| {
            let (rules, changed) = &*rules;
            let is_log = name.ends_with(".log");
            let met = |rules: &Rules| match call {
                Call::Sync if is_log => rules.syncs,
                Call::Read if !is_log => rules.reads,
                _ => Met::Nothing,
            };
            let mut guard = rules.lock();
            for _ in 0..LOOKS_MAX {
                if met(&guard) != Met::Wait {
                    break;
                }
                guard.held += 1;
                changed.wait_for(&mut guard, Duration::from_millis(1));
                guard.held -= 1;
            }
            let now = met(&guard);
            drop(guard);
            let text = format!("{call:?} of {name}");
            match now {
                Met::Nothing => Ok(()),
                Met::Panic => panic!("{text} panics"),
                Met::Failure | Met::Wait => {
                    Err(thermocline_device::Error::new(thermocline_device::ErrorKind::Io, text))
                }
            }
        });
        let devices = Arc::new(HookedDevices::new(Arc::new(self.memory.clone()), hook));
        Environment { devices, ..Environment::default() }
    }

    pub fn create(&self, settings: &Settings) -> Db {
        self.environment().create(home(), settings).unwrap()
    }

    pub fn open(&self) -> Db {
        self.environment().open(home()).unwrap()
    }

    /// From now on syncs of logs meet this.
    pub fn syncs(&self, met: Met) {
        self.rules.0.lock().syncs = met;
        self.rules.1.notify_all();
    }

    /// From now on reads of tables and slots meet this.
    pub fn reads(&self, met: Met) {
        self.rules.0.lock().reads = met;
        self.rules.1.notify_all();
    }

    /// Waits until a call is held up.
    pub fn wait_until_held(&self) {
        until("a call that is held up", || self.rules.0.lock().held > 0);
    }
}

/// Looks again and again until `is_so`.
pub fn until(awaited: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        clock.sleep(Duration::from_millis(1));
    }
    panic!("{awaited}: it never comes");
}

/// The answer of a ticket that a thread of the store gives.
pub fn answer<T>(mut ticket: Ticket<T>) -> Result<T> {
    let mut answer = None;
    until("the answer of a ticket", || {
        answer = ticket.poll_now();
        answer.is_some()
    });
    answer.unwrap()
}

/// A ticket of `call`, which is made again while the queue is full.
pub fn insist<T>(mut call: impl FnMut() -> Result<Ticket<T>>) -> Ticket<T> {
    let mut made = None;
    until("room in the queue", || match call() {
        Ok(ticket) => {
            made = Some(ticket);
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            false
        }
    });
    made.unwrap()
}
