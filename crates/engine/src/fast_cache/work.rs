//! The one job of the cache: it writes batches, seals files, makes room, and reads what earlier
//! openings left.
//!
//! ```text
//!   files of earlier openings ── adopted or deleted ──┐ (adoption.rs)
//!   readers ──> batch ──> file being filled ──> sealed files ──> oldest
//!                             ^                                    │ no room: eviction.rs
//!                             '──────── blocks that were hit ──────'
//! ```
//! Invariants:
//! 1. Nothing that happens here fails anything else: an error costs blocks and switches the cache
//!    off for a while.
//! 2. A file gets at most the bytes that were announced for it, seal included.
//! 3. Used bytes, those of files that wait to be looked at included, keep to what tier 0 leaves
//!    (`room.rs`), but for the one file whose blocks are being written again.
//!
//! Threads: one job at a time, and the thread that closes when no job runs any more.

use super::FastCache;
use super::copies::hash_of;
use crate::jobs::Step;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::file_cache::{Batch, CacheFile, CachedBlock, Seal, Sealed};
use thermocline_device::{Error, ErrorKind, FileContext, FileInfo, FileKind, Origin};
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_table::BlockKey;

/// What the job knows from step to step.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Files of earlier openings that were not looked at yet, the newest first.
    pub found: Vec<FileInfo>,
    /// Lengths of the tables that lay on slower tiers when the first of them was looked at: those
    /// that have come since have no blocks there.
    pub slow_tables: Option<BTreeMap<FileNumber, u64>>,
    pub filled: Option<Filled>,
    pub leaving: Option<Leaving>,
    /// Files went for want of room: what comes back may be taken again, and their blocks, which
    /// were admitted, would have made way for all that is read once.
    pub has_given_way: bool,
}

/// The file that is being filled.
#[derive(Debug)]
pub(super) struct Filled {
    pub file: Arc<CacheFile>,
    /// Where the next batch goes.
    end: u64,
    blocks: Vec<CachedBlock>,
}

/// A file that is read no more, but for the blocks that are written again.
#[derive(Debug)]
pub(super) struct Leaving {
    pub file: Arc<CacheFile>,
    /// The next one last.
    pub blocks: Vec<CachedBlock>,
}

impl FastCache {
    /// One bounded piece of what there is to do.
    pub(super) fn step(&self) -> Step {
        let mut work = self.work.lock();
        self.copies.looked();
        let step = self.work_on(&mut work);
        self.look_for_room(&work);
        step
    }

    fn work_on(&self, work: &mut Work) -> Step {
        self.give_up_retired(work);
        self.give_way(work);
        if self.adopt_next(work) {
            return Step::More;
        }
        if work.leaving.is_some() {
            self.reinsert(work);
            return Step::More;
        }
        let batch = self.copies.filling.lock().take_full();
        if let Some(batch) = batch {
            self.write(work, batch);
        }
        if work.leaving.is_some() { Step::More } else { Step::Done }
    }

    /// Notes whether the next file needs another one's room: a block that takes no other's place
    /// is worth its write, unless writes are what there is little of.
    fn look_for_room(&self, work: &Work) {
        let is_known = work.found.is_empty() && work.leaving.is_none() && !work.has_given_way;
        let bytes = self.copies.files.load().bytes() + self.copies.plan.file_bytes;
        let has_room = is_known && bytes <= self.room_bytes();
        self.copies.note_room(has_room && self.write_budget_dwpd().is_none());
    }

    /// Seals the file that is being filled, with what was gathered for it: the next opening finds
    /// it.
    pub(super) fn finish(&self) {
        let mut work = self.work.lock();
        let rest = {
            let mut filling = self.copies.filling.lock();
            [filling.take_full(), filling.take_rest()]
        };
        for batch in rest.into_iter().flatten() {
            self.write(&mut work, batch);
        }
        self.seal(&mut work);
        // What is leaving stays as it is, sealed.
        work.leaving = None;
    }

    /// Writes a batch into the file that is being filled, or into a new one.
    pub(super) fn write(&self, work: &mut Work, batch: Batch<BlockKey>) {
        let copies = &self.copies;
        let (buffer, blocks) = batch.into_parts();
        let bytes = buffer.len() as u64;
        if !self.has_place(work, bytes, blocks.len()) {
            copies.counts.dropped.add(blocks.len() as u64);
            return;
        }
        let Some(filled) = &mut work.filled else { return };
        let (_, written) = filled.file.file.write(filled.end, buffer);
        if let Err(error) = written {
            self.give_up_filled(work, &error);
            return;
        }
        copies.wrote(bytes);
        let files = copies.files.load();
        for (key, at) in blocks {
            let position = filled.end + at;
            let place = filled.file.position(position);
            copies.lookup.insert(hash_of(key), place, |low| files.is_live(low));
            let (table, offset) = (key.table, key.offset);
            filled.blocks.push(CachedBlock { table, offset, position, len: key.len });
            copies.counts.inserted_blocks.add(1);
        }
        filled.end += bytes;
    }

    /// There is a file that has room for so many bytes of so many blocks.
    fn has_place(&self, work: &mut Work, bytes: u64, blocks: usize) -> bool {
        if self.copies.is_off() {
            return false;
        }
        let fits = |filled: &Filled| {
            let overhead = Sealed::overhead_bytes((filled.blocks.len() + blocks) as u64);
            filled.end + bytes + overhead <= filled.file.bytes
        };
        if work.filled.as_ref().is_some_and(fits) {
            return true;
        }
        self.seal(work);
        self.begin_file(work);
        work.filled.as_ref().is_some_and(fits)
    }

    /// Begins a file, where there is room for it or another leaves. None leaves for one that cannot
    /// be made.
    fn begin_file(&self, work: &mut Work) {
        let bytes = self.copies.plan.file_bytes;
        let room_bytes = self.room_bytes();
        if room_bytes < bytes {
            return;
        }
        let is_one_too_many = || self.copies.files.load().bytes() + bytes > room_bytes;
        let context = FileContext { kind: FileKind::BlockCache, origin: Origin::CacheFill };
        let mut made = self.shared.files.create_file(context, bytes);
        let is_full = |error: &Error| error.kind() == ErrorKind::OutOfSpace;
        if made.as_ref().is_err_and(is_full) {
            if work.leaving.is_none() {
                self.evict(work);
            }
            if let Some(Leaving { file, .. }) = work.leaving.take() {
                // Its blocks cannot be written again beside it.
                self.delete(file.number());
                made = self.shared.files.create_file(context, bytes);
            }
        }
        match made {
            Ok(file) => {
                if is_one_too_many() {
                    self.evict(work);
                }
                let (files, file) = self.copies.files.load().with(file, bytes, self.copies.now());
                self.copies.files.store(Arc::new(files));
                work.filled = Some(Filled { file, end: 0, blocks: Vec::new() });
            }
            // Another file was faster, or there is no descriptor: the next batch tries again.
            Err(error) if is_full(&error) || error.kind() == ErrorKind::TooManyOpenFiles => {}
            Err(error) => {
                tracing::warn!(%error, "the block cache cannot make a file");
                self.copies.write_failed();
            }
        }
    }

    /// Ends the file that is being filled, if there is one.
    pub(super) fn seal(&self, work: &mut Work) {
        let Some(Filled { file, end, blocks }) = work.filled.take() else { return };
        if blocks.is_empty() {
            self.drop_file(&file);
            return;
        }
        let files = &self.shared.files;
        let seal = Seal {
            instance: files.instance(),
            generation: files.generation(),
            life: self.opening.life,
            numbers_below: files.numbers_below(),
        };
        match Sealed::write(&file.file, end, seal, &blocks) {
            Ok(sealed) => {
                file.sealed.get_or_init(|| sealed);
                self.copies.wrote(Sealed::overhead_bytes(blocks.len() as u64));
            }
            Err(error) => {
                work.filled = Some(Filled { file, end, blocks });
                self.give_up_filled(work, &error);
            }
        }
    }

    /// The device does not take what is written to the file that is being filled.
    fn give_up_filled(&self, work: &mut Work, error: &Error) {
        let Some(filled) = work.filled.take() else { return };
        tracing::warn!(%error, "a file of the block cache is given up; the cache pauses");
        if error.kind() != ErrorKind::TooManyOpenFiles {
            self.copies.write_failed();
        }
        self.drop_file(&filled.file);
    }

    /// Gives up files of which too many reads failed.
    fn give_up_retired(&self, work: &mut Work) {
        let files = self.copies.files.load_full();
        for file in files.list().iter().filter(|file| file.is_retired()) {
            if work.filled.as_ref().is_some_and(|filled| Arc::ptr_eq(&filled.file, file)) {
                work.filled = None;
            }
            self.drop_file(file);
        }
    }

    /// Ends a file and all that it has.
    pub(super) fn drop_file(&self, file: &CacheFile) {
        self.forget(file);
        self.delete(file.number());
    }

    /// Takes a file off the list: nothing is found there any more.
    pub(super) fn forget(&self, file: &CacheFile) {
        let goes = |other: &CacheFile| other.number() == file.number();
        let files = self.copies.files.load().without(goes);
        self.copies.files.store(Arc::new(files));
    }

    /// A file that stays is in the way of nothing but for its room, and is deleted or adopted at
    /// the next opening.
    pub(super) fn delete(&self, number: FileNumber) {
        if planted(Planted::CacheFileLeaked) {
            return;
        }
        if let Err(error) = self.shared.files.delete_files(&[number]) {
            tracing::warn!(%number, %error, "a file of the block cache stays until reopening");
        }
    }
}
