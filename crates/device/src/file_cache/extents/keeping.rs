//! The files of the cache: written, sealed, adopted, and gone for others or for want of room.
//!
//! 1. An error costs extents, and switches the cache off for a while.
//! 2. A file gets at most the bytes that were planned for it, seal included.
//! 3. The oldest file leaves for a new one; of its extents those are written again that were read
//!    since, half a file at most.
//! 4. What has to leave for the host's files goes as it is.
//! 5. A file is adopted where it has extents of the size that is set now: its seal says which, as
//!    the life.
//! 6. A number of a file is given once: the opening's generation is in it.
//!
//! Threads: one at a time.

use super::{ExtentKey, Extents};
use crate::context::FileKind;
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::file_cache::filling::Batch;
use crate::file_cache::sealed::{CachedBlock, Layout, Seal, Sealed};
use crate::file_cache::tape::CacheFile;
use crate::identity::InstanceId;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{DatabaseId, FileNumber};
use thermocline_popularity::{EvictionPolicy, LeavingBlock, reinserted};

/// Bits of a file's number below the generation.
const COUNTER_BITS: u32 = 24;

/// What fills the cache, and with what it is at.
#[derive(Debug)]
pub(super) struct Keeping {
    database: DatabaseId,
    instance: InstanceId,
    generation: u64,
    made: u64,
    /// Files of earlier openings that were not looked at yet, the newest first.
    found: Vec<FileNumber>,
    filled: Option<Filled>,
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Filled {
    file: Arc<CacheFile>,
    /// Where the next batch goes.
    end: u64,
    blocks: Vec<CachedBlock>,
}

/// A file that is read no more, but for the extents that are written again, the next one last.
#[derive(Debug)]
struct Leaving {
    file: Arc<CacheFile>,
    blocks: Vec<CachedBlock>,
}

/// The name of a file of the cache.
fn file_name(number: FileNumber) -> String {
    format!("{number}.{}", FileKind::BlockCache.extension())
}

/// Removes the files of a cache that is switched off; one that stays is in the way of nothing but
/// for its room.
pub(crate) fn delete_files(driver: &dyn Driver) {
    let names = driver.list().unwrap_or_default().into_iter().map(|entry| entry.name);
    for name in names.filter(|name| parse_file_name(name).is_some()) {
        if let Err(error) = driver.delete(&name) {
            tracing::warn!(name, %error, "a file of extents stays");
        }
    }
}

/// The number of a file of the cache; none for other files.
fn parse_file_name(name: &str) -> Option<FileNumber> {
    let (number, extension) = name.split_once('.')?;
    let number = FileNumber(number.parse().ok()?);
    (extension == FileKind::BlockCache.extension() && file_name(number) == name).then_some(number)
}

fn key_of(block: &CachedBlock) -> ExtentKey {
    ExtentKey { file: block.table, offset: block.offset, len: block.len }
}

impl Extents {
    /// The directory is this process's from now on, in an opening of this generation.
    pub fn begin(&self, database: DatabaseId, instance: InstanceId, generation: u64) {
        let mut found: Vec<_> = match self.tier.driver().list() {
            Ok(entries) => {
                entries.iter().filter_map(|entry| parse_file_name(&entry.name)).collect()
            }
            Err(error) => {
                tracing::warn!(%error, "the cache of extents is off until reopening");
                return;
            }
        };
        found.sort_unstable();
        found.reverse();
        self.is_filled.store(found.is_empty(), Relaxed);
        self.tables();
        let (made, filled, leaving) = (0, None, None);
        *self.keeping.lock() =
            Some(Keeping { database, instance, generation, made, found, filled, leaving });
    }

    /// One bounded piece of what there is to do, while the host's files leave `room_bytes`; false
    /// where there is nothing more.
    pub fn step(&self, room_bytes: u64) -> bool {
        let mut keeping = self.keeping.lock();
        let Some(keeping) = keeping.as_mut() else { return false };
        let asked_bytes = self.asked_room_bytes.swap(u64::MAX, Relaxed);
        let room_bytes = room_bytes.min(asked_bytes).min(self.plan.capacity_bytes);
        self.keep_to(keeping, room_bytes);
        self.look_for_room(keeping, room_bytes);
        if let Some(number) = keeping.found.pop() {
            self.adopt(keeping, number);
            self.is_filled.store(keeping.found.is_empty(), Relaxed);
            return true;
        }
        self.give_up_retired(keeping);
        if let Some(leaving) = keeping.leaving.take() {
            self.write_again(keeping, leaving);
            return true;
        }
        let batch = self.tables().filling.lock().take_full();
        if let Some(batch) = batch {
            self.write(keeping, batch, room_bytes);
            return true;
        }
        false
    }

    /// Notes whether the next file needs another one's room.
    fn look_for_room(&self, keeping: &Keeping, room_bytes: u64) {
        let is_known = keeping.found.is_empty() && keeping.leaving.is_none();
        let bytes = self.files.load().bytes() + self.plan.file_bytes;
        self.has_room.store(is_known && bytes <= room_bytes, Relaxed);
    }

    /// Writes what readers have filled in so far, although it is less than a batch.
    pub fn write_gathered(&self, room_bytes: u64) {
        let mut keeping = self.keeping.lock();
        let Some(keeping) = keeping.as_mut() else { return };
        let rest = self.tables().filling.lock().take_rest();
        if let Some(batch) = rest {
            self.write(keeping, batch, room_bytes.min(self.plan.capacity_bytes));
        }
    }

    /// The host's files leave no more than `room_bytes`: the oldest files go. Where one is being
    /// filled, they go with the next piece of upkeep.
    pub fn give_way(&self, room_bytes: u64) {
        match self.keeping.try_lock() {
            Some(mut keeping) => {
                if let Some(keeping) = keeping.as_mut() {
                    self.keep_to(keeping, room_bytes);
                }
            }
            None => {
                self.asked_room_bytes.fetch_min(room_bytes, Relaxed);
                self.wake();
            }
        }
    }

    /// All files go, because the device is full, and what is on its way; false if there was none.
    /// The cache pauses, so that it does not take at once what it gave.
    pub fn clear(&self) -> bool {
        let mut keeping = self.keeping.lock();
        let Some(keeping) = keeping.as_mut() else { return false };
        self.tables().filling.lock().clear();
        keeping.filled = None;
        let leaving = keeping.leaving.take().map(|leaving| leaving.file.number());
        let files = self.files.load_full();
        let listed = files.list().iter().map(|file| file.number());
        let all: Vec<_> = listed.chain(leaving).chain(keeping.found.drain(..)).collect();
        self.files.store(Arc::new(files.without(|_| true)));
        all.iter().for_each(|number| self.delete(*number));
        self.is_filled.store(true, Relaxed);
        if !all.is_empty() {
            self.pause();
        }
        !all.is_empty()
    }

    /// Seals what is being filled, so that the next opening finds it.
    pub(super) fn end(&self) {
        let mut keeping = self.keeping.lock();
        let Some(mut keeping) = keeping.take() else { return };
        let rest = {
            let mut filling = self.tables().filling.lock();
            [filling.take_full(), filling.take_rest()]
        };
        for batch in rest.into_iter().flatten() {
            self.write(&mut keeping, batch, self.plan.capacity_bytes);
        }
        self.seal(&mut keeping);
    }

    fn write(&self, keeping: &mut Keeping, batch: Batch<ExtentKey>, room_bytes: u64) -> bool {
        let (buffer, blocks) = batch.into_parts();
        let (bytes, count) = (buffer.len() as u64, blocks.len() as u64);
        let has_place = self.has_place(keeping, bytes, count, room_bytes);
        let Some(filled) = keeping.filled.as_mut().filter(|_| has_place) else {
            self.counts.dropped.add(count);
            return false;
        };
        if let (_, Err(error)) = filled.file.file.write(filled.end, buffer) {
            self.give_up_filled(keeping, &error);
            return false;
        }
        self.counts.written_bytes.add(bytes);
        let files = self.files.load();
        for (key, at) in blocks {
            let position = filled.end + at;
            let place = filled.file.position(position);
            self.tables().lookup.insert(key.hash(), place, |low| files.is_live(low));
            let ExtentKey { file: table, offset, len } = key;
            filled.blocks.push(CachedBlock { table, offset, position, len });
        }
        self.counts.admitted.add(count);
        filled.end += bytes;
        true
    }

    /// There is a file that has room for so many bytes of so many extents.
    fn has_place(&self, keeping: &mut Keeping, bytes: u64, count: u64, room_bytes: u64) -> bool {
        if self.is_off() {
            return false;
        }
        let fits = |filled: &Filled| {
            let overhead = Sealed::overhead_bytes(filled.blocks.len() as u64 + count);
            filled.end + bytes + overhead <= filled.file.bytes
        };
        if !keeping.filled.as_ref().is_some_and(fits) {
            self.seal(keeping);
            if let Err(error) = self.begin_file(keeping, room_bytes) {
                tracing::warn!(%error, "the cache of extents cannot make a file");
                self.pause_after(&error);
            }
        }
        keeping.filled.as_ref().is_some_and(fits)
    }

    fn begin_file(&self, keeping: &mut Keeping, room_bytes: u64) -> Result<()> {
        let bytes = self.plan.file_bytes;
        if room_bytes < bytes {
            return Ok(());
        }
        if self.files.load().bytes() + bytes > room_bytes {
            self.evict(keeping);
        }
        keeping.made += 1;
        let number = FileNumber(keeping.generation << COUNTER_BITS | keeping.made);
        let handle = self.tier.driver().create(&file_name(number))?;
        let file = self.file(keeping.database, number, handle);
        let (files, file) = self.files.load().with(Arc::new(file), bytes, 0);
        self.files.store(Arc::new(files));
        keeping.filled = Some(Filled { file, end: 0, blocks: Vec::new() });
        Ok(())
    }

    fn file(&self, database: DatabaseId, number: FileNumber, handle: crate::Handle) -> File {
        let (index, driver) = (self.tier.index(), Arc::clone(self.tier.driver()));
        File::new(database, number, FileKind::BlockCache, index, driver, handle)
    }

    fn seal(&self, keeping: &mut Keeping) {
        let Some(Filled { file, end, blocks }) = keeping.filled.take() else { return };
        if blocks.is_empty() {
            return self.drop_file(&file);
        }
        let seal = Seal {
            instance: keeping.instance,
            generation: keeping.generation,
            life: self.plan.extent_bytes,
            numbers_below: FileNumber(file.number().0 + 1),
        };
        match Sealed::write(&file.file, end, seal, &blocks) {
            Ok(sealed) => {
                file.sealed.get_or_init(|| sealed);
                self.counts.written_bytes.add(Sealed::overhead_bytes(blocks.len() as u64));
            }
            Err(error) => {
                keeping.filled = Some(Filled { file, end, blocks });
                self.give_up_filled(keeping, &error);
            }
        }
    }

    fn pause(&self) {
        let mut back_off = self.back_off.lock();
        back_off.switch_off(self.clock.now_ns());
        self.off_until_ns.store(back_off.until_ns(), Relaxed);
    }

    fn pause_after(&self, error: &Error) {
        if error.kind() != ErrorKind::TooManyOpenFiles {
            self.pause();
        }
    }

    fn give_up_filled(&self, keeping: &mut Keeping, error: &Error) {
        let Some(filled) = keeping.filled.take() else { return };
        tracing::warn!(%error, "a file of extents is given up; the cache pauses");
        self.pause_after(error);
        self.drop_file(&filled.file);
    }

    fn give_up_retired(&self, keeping: &mut Keeping) {
        let files = self.files.load_full();
        for file in files.list().iter().filter(|file| file.is_retired()) {
            if keeping.filled.as_ref().is_some_and(|filled| Arc::ptr_eq(&filled.file, file)) {
                keeping.filled = None;
            }
            self.drop_file(file);
        }
    }

    /// Takes in the file that an earlier opening sealed, or deletes it.
    fn adopt(&self, keeping: &Keeping, number: FileNumber) {
        let why = match self.adopted(keeping, number) {
            Ok(true) => return,
            Ok(false) => "it is of another copy of the directory, or another size".to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::info!(%number, %why, "a file of extents does not count any more");
        self.delete(number);
    }

    fn adopted(&self, keeping: &Keeping, number: FileNumber) -> Result<bool> {
        let handle = self.tier.driver().open(&file_name(number))?;
        let file = self.file(keeping.database, number, handle);
        let sealed = Sealed::read(&file)?;
        let Seal { instance, life, .. } = sealed.seal;
        if instance != keeping.instance || life != self.plan.extent_bytes {
            return Ok(false);
        }
        let blocks = sealed.blocks(&file)?;
        let bytes = file.len()?;
        let (files, file) = self.files.load().with(Arc::new(file), bytes, 0);
        file.sealed.get_or_init(|| sealed);
        for block in &blocks {
            let position = file.position(block.position);
            self.tables().lookup.insert(key_of(block).hash(), position, |low| files.is_live(low));
        }
        // Only now can readers find them.
        self.files.store(Arc::new(files));
        self.counts.adopted_files.add(1);
        self.counts.adopted.add(blocks.len() as u64);
        Ok(true)
    }

    /// Deletes the oldest files until they keep to the room.
    fn keep_to(&self, keeping: &mut Keeping, room_bytes: u64) {
        let used_bytes = || self.files.load().bytes();
        let leaving_bytes = keeping.leaving.as_ref().map_or(0, |leaving| leaving.file.bytes);
        // Beside one that leaves for another there may be one too many.
        if used_bytes() + leaving_bytes > room_bytes.saturating_add(self.plan.file_bytes)
            && let Some(leaving) = keeping.leaving.take()
        {
            self.delete(leaving.file.number());
        }
        let files = self.files.load_full();
        for file in files.list().iter().filter(|file| file.sealed.get().is_some()) {
            if used_bytes() <= room_bytes {
                return;
            }
            self.drop_file(file);
        }
        if used_bytes() > room_bytes
            && let Some(filled) = keeping.filled.take()
        {
            self.drop_file(&filled.file);
        }
    }

    /// The oldest file leaves for a new one.
    fn evict(&self, keeping: &mut Keeping) {
        let files = self.files.load_full();
        let Some(file) = files.list().iter().find(|file| file.sealed.get().is_some()) else {
            return;
        };
        self.forget(file);
        let read = file.sealed.get().map(|sealed| sealed.blocks(&file.file));
        let blocks = read.and_then(Result::ok).unwrap_or_default();
        let take = |block: &CachedBlock| {
            let hits =
                self.tables().lookup.take(key_of(block).hash(), file.position(block.position))?;
            Some((*block, LeavingBlock { hits, len: block.len }))
        };
        let (blocks, hits): (Vec<_>, Vec<_>) = blocks.iter().filter_map(take).unzip();
        let stay = reinserted(EvictionPolicy::FifoReinsert, file.bytes, &hits);
        let blocks = stay.into_iter().rev().map(|at| blocks[at]).collect();
        let leaving = Leaving { file: Arc::clone(file), blocks };
        if let Some(before) = keeping.leaving.replace(leaving) {
            self.delete(before.file.number());
        }
    }

    /// Writes a batch of the extents again that stay, and deletes their file after the last.
    fn write_again(&self, keeping: &mut Keeping, Leaving { file, mut blocks }: Leaving) {
        let mut batch = Batch::new(self.plan.batch_bytes);
        let mut count = 0;
        while let Some(block) = blocks.pop() {
            // Its checksum is looked at when it is read for its sake.
            let Ok(stored) = file.file.read(block.position, block.len as usize) else { continue };
            if !batch.add(Layout::Packed, key_of(&block), &stored) {
                blocks.push(block);
                break;
            }
            count += 1;
        }
        let is_written = !batch.is_empty() && self.write(keeping, batch, u64::MAX);
        self.counts.kept.add(if is_written { count } else { 0 });
        if is_written && !blocks.is_empty() && keeping.leaving.is_none() {
            keeping.leaving = Some(Leaving { file, blocks });
        } else {
            self.delete(file.number());
        }
    }

    fn drop_file(&self, file: &CacheFile) {
        self.forget(file);
        self.delete(file.number());
    }

    /// Takes a file off the list: nothing is found there any more.
    fn forget(&self, file: &CacheFile) {
        let files = self.files.load().without(|other| other.number() == file.number());
        self.files.store(Arc::new(files));
    }

    /// A file that stays is looked at by the next opening.
    fn delete(&self, number: FileNumber) {
        match self.tier.driver().delete(&file_name(number)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%number, %error, "a file of extents stays until reopening");
            }
            _ => {}
        }
    }
}
