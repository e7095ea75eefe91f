//! What only grows: once all work has ended, everything that was taken for it has been given back.
//!
//! One check for all of it, for simulations and tests: claims, promises, reservations, holds, logs
//! that are counted, and slots that are live. What is not given back does no harm at first, and
//! after days the store stands still.
//!
//! Threads: the caller's, while no other caller is at work.

use crate::engine::Engine;
use crate::error::Result;
use thermocline_device::FileKind;

impl Engine {
    /// What was taken and not given back, one a line; none where all is at rest. Waits for the
    /// background; an error where that has failed.
    pub fn left_over(&self) -> Result<Vec<String>> {
        self.settle()?;
        let mut left = Vec::new();
        let mut expect = |what: &str, found: u64, right: u64| {
            if found != right {
                left.push(format!("{what}: {found}, right is {right}"));
            }
        };
        for (what, count) in self.versions.tables().claims.counts() {
            expect(what, count as u64, 0);
        }
        expect("memtables that wait", self.versions.current().frozen.len() as u64, 0);
        expect("tables that wait for their end", self.versions.store.obsolete.count() as u64, 0);
        let logs = self.shared.files.files().into_iter().filter(|file| file.kind == FileKind::Log);
        expect("logs that are counted", self.front.counted_logs(), logs.count() as u64);
        expect("writers in line", self.front.waiting_writers(), 0);
        expect("asynchronous requests", self.requests.stats().held, 0);
        expect("overdrafts of slots", self.shared.tier0.overdrafts() as u64, 0);
        self.layout.left_over(&mut expect);
        Ok(left)
    }
}
