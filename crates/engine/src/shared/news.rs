//! Wakes the thread that tells other processes the store's figures. While nothing happens it
//! sleeps, without a timer.
//!
//! ```text
//!   thread:    arm -> look at the figures -> nothing new: sleep until the flag is gone
//!   a use:     count it -> is the flag set? -> take it away, wake the thread
//! ```
//! The flag is set before the figures are looked at, so a use that the look missed takes it away.
//! On processors that move the use's look before its count, the figures of one use may wait for
//! the next one; nothing but a figure depends on it.

use std::time::Duration;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex};

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct News {
    is_armed: AtomicBool,
    is_ending: Mutex<bool>,
    changed: Condvar,
}

impl News {
    /// Something happened that figures tell.
    #[inline]
    pub fn came(&self) {
        if self.is_armed.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_armed.swap(false, Ordering::AcqRel) {
            let _is_ending = self.is_ending.lock();
            self.changed.notify_all();
        }
    }

    /// From here on [`News::came`] is news.
    pub fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// Waits for `interval`, whatever happens; false where the thread is to end.
    pub fn pause(&self, interval: Duration) -> bool {
        self.is_armed.store(false, Ordering::Relaxed);
        let mut is_ending = self.is_ending.lock();
        if !*is_ending {
            self.changed.wait_for(&mut is_ending, interval);
        }
        !*is_ending
    }

    /// Waits until something has happened since [`News::arm`]; false where the thread is to end.
    pub fn wait(&self) -> bool {
        let mut is_ending = self.is_ending.lock();
        while !*is_ending && self.is_armed.load(Ordering::Acquire) {
            self.changed.wait(&mut is_ending);
        }
        !*is_ending
    }

    /// Ends the thread.
    pub fn end(&self) {
        *self.is_ending.lock() = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thermocline_foundation::threads;

    #[test]
    fn a_use_after_the_look_ends_the_wait_and_one_before_it_does_not() {
        let news = Arc::new(News::default());
        news.came();
        news.arm();
        assert!(news.is_armed.load(Ordering::Relaxed), "what came before is no news");
        news.came();
        assert!(news.wait(), "it does not sleep");
        news.arm();
        assert!(news.pause(Duration::ZERO));
        assert!(!news.is_armed.load(Ordering::Relaxed), "uses do not cut a pause short");
        news.arm();
        let waiting = Arc::clone(&news);
        let thread = threads::spawn("waits", move || assert!(waiting.wait())).unwrap();
        news.came();
        thread.join().unwrap();
    }

    #[test]
    fn an_end_ends_either_wait() {
        let news = News::default();
        news.arm();
        news.end();
        assert!(!news.wait());
        assert!(!news.pause(Duration::from_secs(3600)));
    }
}
