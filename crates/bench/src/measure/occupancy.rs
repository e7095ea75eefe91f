//! The most bytes that the files below a directory have taken.
//!
//! A capacity is a bound for some engines and a hint for others. RocksDB places levels by their
//! target sizes: the outputs of merges, and what a level has above its target, come on top. A look
//! twenty times a second says how much an engine really had.

use crate::Outcome;
use crate::files::allocated_bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use thermocline_foundation::threads::{self, JoinHandle};

const PAUSE: Duration = Duration::from_millis(50);

/// Looks until it is dropped.
#[derive(Debug)]
pub struct Occupancy {
    /// Closed to end the thread.
    going_on: Sender<()>,
    most: Arc<AtomicU64>,
    looks: JoinHandle<Outcome<()>>,
}

impl Occupancy {
    /// Begins to look at `path`.
    pub fn watch(path: &Path) -> Outcome<Self> {
        let (going_on, stop) = channel();
        let most = Arc::new(AtomicU64::new(0));
        let (path, seen) = (path.to_owned(), Arc::clone(&most));
        let looks = threads::spawn("occupancy", move || {
            loop {
                seen.fetch_max(allocated_bytes(&path)?, Ordering::Relaxed);
                if stop.recv_timeout(PAUSE) == Err(RecvTimeoutError::Disconnected) {
                    return Ok(());
                }
            }
        })?;
        Ok(Self { going_on, most, looks })
    }

    /// The most bytes seen.
    pub fn most(self) -> Outcome<u64> {
        drop(self.going_on);
        self.looks.join().map_err(|_| "the look at the fast tier's files panicked")??;
        Ok(self.most.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test makes a file and waits for real looks")]
    fn a_file_that_is_gone_again_has_been_seen() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        let occupancy = Occupancy::watch(scratch.path()).unwrap();
        std::fs::write(&path, vec![1; 256 << 10]).unwrap();
        let looked = || occupancy.most.load(Ordering::Relaxed) >= 256 << 10;
        let sees = (0..1000).any(|_| {
            std::thread::sleep(PAUSE);
            looked()
        });
        assert!(sees, "no look in 50 seconds saw the file");
        std::fs::remove_file(&path).unwrap();
        assert!((256 << 10..1 << 20).contains(&occupancy.most().unwrap()));
    }
}
