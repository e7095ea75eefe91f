//! What only grows: once all work has ended, everything that was taken for it has been given back.
//!
//! One check for all of it, for simulations and tests: claims, promises, reservations, holds, logs
//! that are counted, and slots that are live. What is not given back does no harm at first, and
//! after days the store stands still.
//!
//! A store that is closed may have memtables, which its logs have too, and files that readers kept
//! to the end: the next opening removes these. All else that a job took is given back when the
//! closing drops the job.
//!
//! Threads: the caller's, while no other caller is at work.

use crate::engine::Engine;
use thermocline_device::{FileInfo, FileKind, Keeping};

impl Engine {
    /// What was taken and not given back, one a line; none where all is well. The store is settled,
    /// or it `is_closed`.
    pub fn left_over(&self, is_closed: bool) -> Vec<String> {
        let mut left = Vec::new();
        let mut expect = |what: &str, found: u64, right: u64| {
            if found != right {
                left.push(format!("{what}: {found}, right is {right}"));
            }
        };
        for (what, count) in self.versions.tables().claims.counts() {
            expect(what, count as u64, 0);
        }
        let files = self.shared.files.files();
        let logs = files.iter().filter(|file| file.kind == FileKind::Log).count();
        // A slab is published with its first record, and a scratch file never.
        let is_kept = |kind: FileKind| kind != FileKind::Slab && kind.keeping() == Keeping::Durable;
        let is_unpublished = |file: &&FileInfo| !file.published && is_kept(file.kind);
        let unpublished = files.iter().filter(is_unpublished).count();
        if !is_closed {
            let obsolete = self.versions.store.obsolete.count();
            expect("memtables that wait", self.versions.current().frozen.len() as u64, 0);
            expect("tables that wait for their end", obsolete as u64, 0);
        }
        expect("files that are not published", unpublished as u64, 0);
        expect("logs that are counted", self.front.counted_logs(), logs as u64);
        expect("writers in line", self.front.waiting_writers(), 0);
        expect("asynchronous requests", self.requests.stats().held, 0);
        expect("overdrafts of slots", self.shared.tier0.overdrafts() as u64, 0);
        self.layout.left_over(&mut expect);
        left
    }

    /// The files that the store has on each tier: its index, and the file's name.
    pub fn file_names(&self) -> Vec<(usize, String)> {
        let files = self.shared.files.files().into_iter();
        let name = |file: FileInfo| {
            (file.tier.position(), format!("{}.{}", file.number, file.kind.extension()))
        };
        files.map(name).collect()
    }
}
