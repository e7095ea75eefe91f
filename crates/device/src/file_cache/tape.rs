//! The files of the cache, on one endless tape of positions.
//!
//! ```text
//!   position   ..|- file 12 -|- file 15 -|   gone   |- file 21 -|- file 22, being filled -| head
//! ```
//! A file gets the positions behind the newest one; nothing is put under a position twice. So an
//! entry whose file is gone leads nowhere, whatever came after.
//!
//! Threads: readers load a snapshot of the list; the one that fills the cache replaces it.

use super::lookup::POSITIONS;
use super::sealed::{POSITION_BYTES, Sealed};
use crate::file::File;
use std::sync::Arc;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::OnceLock;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Reads of a file that may fail before it is given up.
const FAILURES_MAX: u32 = 16;

/// A failure that comes so many requests of the cache after the one before is the first again:
/// about one look-up in a million finds another block's copy, which is no fault of its file.
const FAILURES_APART: u64 = 1 << 20;

/// A file that blocks are read from.
#[derive(Debug)]
pub struct CacheFile {
    /// The file itself.
    pub file: Arc<File>,
    /// The position of its first byte.
    start: u64,
    /// Bytes that it has or will have.
    pub bytes: u64,
    /// The contents of its footer, once it has one.
    pub sealed: OnceLock<Sealed>,
    /// The time of the last hit, or of its making.
    last_hit: AtomicU64,
    /// The time of the last failure, or 0.
    last_failure: AtomicU64,
    failures: AtomicU32,
    retired: AtomicBool,
}

impl CacheFile {
    /// Its number.
    pub fn number(&self) -> FileNumber {
        self.file.number()
    }

    /// The position of a byte of the file.
    pub fn position(&self, offset: u64) -> u64 {
        debug_assert!(offset.is_multiple_of(POSITION_BYTES));
        self.start + offset / POSITION_BYTES
    }

    fn end(&self) -> u64 {
        self.start + self.bytes / POSITION_BYTES
    }

    /// A read of it failed, `now` in requests. True for the one failure that is too much.
    pub fn failed(&self, now: u64) -> bool {
        let before = self.last_failure.swap(now, Relaxed);
        if now.saturating_sub(before) > FAILURES_APART {
            self.failures.store(0, Relaxed);
        }
        let is_too_much = self.failures.fetch_add(1, Relaxed) + 1 >= FAILURES_MAX;
        is_too_much && !self.retired.swap(true, Relaxed)
    }

    /// It is to go.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    /// The time of the last hit, or of its making.
    pub fn last_hit(&self) -> u64 {
        self.last_hit.load(Relaxed)
    }
}

/// A list of them at some moment, by position.
#[derive(Clone, Debug)]
pub struct Files {
    list: Vec<Arc<CacheFile>>,
    /// The position behind the newest file there has been.
    head: u64,
}

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// No file yet. Position 0 is nothing's.
    pub fn new() -> Self {
        Self { list: Vec::new(), head: 1 }
    }

    /// The list with one more, of `bytes`, made at `now`; and the new one.
    pub fn with(&self, file: Arc<File>, bytes: u64, now: u64) -> (Self, Arc<CacheFile>) {
        let made = Arc::new(CacheFile {
            file,
            start: self.head,
            bytes,
            sealed: OnceLock::new(),
            last_hit: AtomicU64::new(now),
            last_failure: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            retired: AtomicBool::new(false),
        });
        let mut with = self.clone();
        with.head = made.end();
        with.list.push(Arc::clone(&made));
        (with, made)
    }

    /// The list without some.
    pub fn without(&self, goes: impl Fn(&CacheFile) -> bool) -> Self {
        let mut without = self.clone();
        without.list.retain(|file| !goes(file));
        without
    }

    /// Oldest first.
    pub fn list(&self) -> &[Arc<CacheFile>] {
        &self.list
    }

    /// Bytes of all files, as long as they may become.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|file| file.bytes).sum()
    }

    /// The file of a position of which the low bits are given, and the whole position.
    fn file_at(&self, low: u64) -> Option<(&Arc<CacheFile>, u64)> {
        let back = self.head.wrapping_sub(low) % POSITIONS;
        let position = self.head.checked_sub(back)?;
        let after = self.list.partition_point(|file| file.start <= position);
        let file = self.list.get(after.checked_sub(1)?)?;
        (position < file.end()).then_some((file, position))
    }

    /// A file lies at the position of these low bits.
    pub fn is_live(&self, low: u64) -> bool {
        self.file_at(low).is_some()
    }

    /// Where the copy of `len` bytes is whose position has these low bits: its file, and bytes from
    /// the start of that. It is hit at `now`.
    pub fn copy_at(&self, low: u64, len: u32, now: u64) -> Option<(&Arc<CacheFile>, u64)> {
        let (file, position) = self.file_at(low)?;
        let offset = (position - file.start) * POSITION_BYTES;
        if file.is_retired() || offset + u64::from(len) > file.bytes {
            return None;
        }
        file.last_hit.store(now, Relaxed);
        Some((file, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::MemoryDriver;
    use crate::{Driver, FileKind, TierIndex};
    use thermocline_foundation::DatabaseId;

    fn file(number: u64) -> Arc<File> {
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
        let handle = driver.create("c").unwrap();
        let (database, number, kind) =
            (DatabaseId([1; 16]), FileNumber(number), FileKind::BlockCache);
        Arc::new(File::new(database, number, kind, TierIndex(0), driver, handle))
    }

    #[test]
    fn positions_lead_to_the_file_that_lies_there_also_where_their_bits_wrap() {
        let mut files = Files { list: Vec::new(), head: 3 * POSITIONS - 5000 };
        let mut made = Vec::new();
        for number in 0..4 {
            let (with, file) = files.with(file(number), 64 << 10, 0);
            files = with;
            made.push(file);
        }
        assert!(files.head > 3 * POSITIONS, "the bits have wrapped");
        for file in &made {
            for offset in [0, 160, (64 << 10) - 16] {
                let (at, found) = files.copy_at(file.position(offset) % POSITIONS, 16, 7).unwrap();
                assert_eq!((at.number(), found), (file.number(), offset));
            }
            assert_eq!(file.last_hit(), 7);
        }
        let last = made[0].position((64 << 10) - 16);
        assert!(files.copy_at(last % POSITIONS, 17, 7).is_none(), "it would reach beyond");
        let without = files.without(|file| file.number() == FileNumber(1));
        let gone = made[1].position(160);
        assert!(files.is_live(gone % POSITIONS) && !without.is_live(gone % POSITIONS));
        assert_eq!(without.bytes(), 3 * (64 << 10));
    }

    #[test]
    fn the_sixteenth_failure_retires_a_file_once() {
        let (files, file) = Files::new().with(file(1), 64 << 10, 0);
        let too_much = (0..40).filter(|_| file.failed(1)).count();
        assert!(too_much == 1 && file.is_retired());
        assert!(files.copy_at(file.position(0), 16, 1).is_none());
    }

    #[test]
    fn failures_far_apart_retire_no_file() {
        let (files, file) = Files::new().with(file(1), 64 << 10, 0);
        let fails = |now| {
            assert!(files.copy_at(file.position(0), 16, now).is_some());
            file.failed(now)
        };
        let far = FAILURES_APART + 1;
        assert!((1..100).all(|time| !fails(time * far)));
        let last = 99 * far;
        assert!((1..15).all(|time| !fails(last + time * FAILURES_APART)));
        assert!(fails(last + 15 * FAILURES_APART) && file.is_retired(), "sixteen in a row");
    }
}
