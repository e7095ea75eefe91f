//! A thread beside the writers that works when it is woken.
//!
//! Threads: woken and stopped by any; stopping waits for the work at hand.

use crate::Outcome;
use std::sync::Arc;
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads::{self, JoinHandle};

#[derive(Debug, Default)]
struct Orders {
    wanted: bool,
    over: bool,
}

#[derive(Debug, Default)]
struct Door {
    orders: Mutex<Orders>,
    changed: Condvar,
}

/// See the module. Dropped, it lets the thread end and waits for it.
#[derive(Debug)]
pub(super) struct Background {
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Calls `work` whenever it was woken since the call before began.
    pub fn start(name: &str, work: impl Fn() + Send + 'static) -> Outcome<Self> {
        let door = Arc::new(Door::default());
        let own = Arc::clone(&door);
        let thread = threads::spawn(name, move || {
            while own.wait() {
                work();
            }
        })?;
        Ok(Self { door, thread: Some(thread) })
    }

    pub fn wake(&self) {
        self.door.orders.lock().wanted = true;
        self.door.changed.notify_one();
    }
}

impl Door {
    /// Waits for work; false where there will be none any more.
    fn wait(&self) -> bool {
        let mut orders = self.orders.lock();
        while !orders.wanted && !orders.over {
            self.changed.wait(&mut orders);
        }
        std::mem::take(&mut orders.wanted) || !orders.over
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.door.orders.lock().over = true;
        self.door.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The state that it left tells why it panicked.
            let _ = thread.join();
        }
    }
}
