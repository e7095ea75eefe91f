//! The thread that looks at the tiers' devices every 100 ms while they do something for a directory
//! that is being changed, and every second else.
//!
//! 1. It holds the list of directories while it looks, which no host waits for longer than a few
//!    files of the kernel are read; so a directory that is released has no user here.
//! 2. What was seen is kept every ten minutes, and at the end. A host that makes a file does not
//!    wait for that; one that gives the directory back does.
//!
//! Threads: one of its own, until the value is dropped.

use super::Shared;
use super::mover::Waker;
use crate::error::{Error, Result};
use crate::names::Names;
use crate::profile::INTERVAL_NS;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_foundation::threads::{self, JoinHandle};

const INTERVAL: Duration = Duration::from_nanos(INTERVAL_NS);
/// While no device does anything.
const IDLE: Duration = Duration::from_secs(1);
const STORED_NS: u64 = 600_000_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Sampler {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub fn start(shared: Arc<Shared>) -> Result<Self> {
        let waker = Arc::<Waker>::default();
        let theirs = Arc::clone(&waker);
        let thread = threads::spawn("thermocline-profile", move || shared.sample(&theirs))
            .map_err(|error| Error::io("start a thread for", Path::new("profiles"), &error))?;
        Ok(Self { waker, thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.waker.end();
        if let Some(thread) = self.thread.take().filter(|thread| !threads::is_current(thread)) {
            // It kept what it could, whatever became of it.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn sample(&self, waker: &Waker) {
        let mut stored_ns = self.clock.now_ns();
        let mut is_idle = true;
        while waker.wait(Some(if is_idle { IDLE } else { INTERVAL })) {
            let now_ns = self.clock.now_ns();
            is_idle = true;
            for names in self.open.lock().open.values().filter(|names| names.is_writer()) {
                is_idle &= !names.sample_devices(now_ns);
            }
            if now_ns.saturating_sub(stored_ns) >= STORED_NS {
                self.store();
                stored_ns = now_ns;
            }
        }
        self.store();
    }

    fn store(&self) {
        let directories: Vec<_> = self.open.lock().open.keys().cloned().collect();
        for directory in directories {
            // A directory that is released meanwhile must have no user here.
            let _moving = self.end_moves();
            let names = self.open.lock().open.get(&directory).cloned();
            let Some(names) = names.filter(Names::is_writer) else { continue };
            if let Err(error) = names.store_profiles() {
                tracing::warn!(%error, "what was seen of the tiers' devices is not kept");
            }
        }
    }
}
