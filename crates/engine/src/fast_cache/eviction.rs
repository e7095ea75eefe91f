//! Room: a file leaves when another begins, or when tier 0 has none left for the cache, or for a
//! file that finds none anywhere.
//!
//! What leaves for a new file writes those of its blocks again that were hit since they were
//! written, up to half a file, a batch a step. What has to leave for logs, levels or slots goes as
//! it is: there is no room to write anything in.

use super::FastCache;
use super::copies::hash_of;
use super::work::{Leaving, Work};
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::file_cache::{Batch, CacheFile, CachedBlock};
use thermocline_device::{FileInfo, FileKind, TierIndex};
use thermocline_foundation::FileNumber;
use thermocline_popularity::{LeavingBlock, choose_file, reinserted};
use thermocline_table::BlockKey;

fn key_of(block: &CachedBlock) -> BlockKey {
    BlockKey { table: block.table, offset: block.offset, len: block.len }
}

impl FastCache {
    /// Lengths of the tables that lie on slower tiers.
    pub(super) fn slow_tables(&self) -> BTreeMap<FileNumber, u64> {
        let is_slow_table = |file: &FileInfo| {
            file.tier != TierIndex(0) && matches!(file.kind, FileKind::Table { .. })
        };
        let files = self.shared.files.files().into_iter().filter(is_slow_table);
        files.map(|file| (file.number, file.bytes)).collect()
    }

    /// Files that may leave, the oldest first: those that are sealed.
    fn evictable(&self) -> Vec<Arc<CacheFile>> {
        let files = self.copies.files.load_full();
        let sealed = files.list().iter().filter(|file| file.sealed.get().is_some());
        sealed.cloned().collect()
    }

    /// Bytes of the files that are read, as long as they may become, and of those that wait to be
    /// looked at.
    pub(super) fn used_bytes(&self, work: &Work) -> u64 {
        let found_bytes: u64 = work.found.iter().map(|file| file.bytes).sum();
        self.copies.files.load().bytes() + found_bytes
    }

    /// The same, and those of the file that leaves.
    pub(super) fn held_bytes(&self, work: &Work) -> u64 {
        self.used_bytes(work) + work.leaving.as_ref().map_or(0, |leaving| leaving.file.bytes)
    }

    /// Deletes the file that leaves, whatever of it was to be written again.
    pub(super) fn end_leaving(&self, work: &mut Work) {
        if let Some(Leaving { file, .. }) = work.leaving.take() {
            self.delete(file.number());
        }
    }

    /// Deletes the oldest files until the cache keeps to its room.
    pub(super) fn give_way(&self, work: &mut Work) {
        // One of those that wait may be one that a crash cut off, which goes by itself.
        let cut_off_bytes = if work.found.is_empty() { 0 } else { self.copies.plan.file_bytes };
        let room_bytes = self.room_bytes() + cut_off_bytes;
        // Beside one that leaves for another there may be one too many.
        if self.held_bytes(work) > room_bytes + self.copies.plan.file_bytes {
            self.end_leaving(work);
        }
        self.keep_to(work, room_bytes);
    }

    /// Deletes the oldest files until there are so many bytes at most: of those of earlier openings
    /// the ones that were adopted, then the ones that wait for it.
    pub(super) fn keep_to(&self, work: &mut Work, room_bytes: u64) {
        for file in self.evictable() {
            if self.used_bytes(work) <= room_bytes {
                return;
            }
            work.has_given_way = true;
            self.copies.counts.evicted_files.add(1);
            self.drop_file(&file);
        }
        let mut surplus_bytes = self.used_bytes(work).saturating_sub(room_bytes);
        while surplus_bytes > 0
            && let Some(file) = work.found.pop()
        {
            // Adoption had not looked at it: no block of it was admitted here.
            self.copies.counts.evicted_files.add(1);
            self.delete(file.number);
            surplus_bytes = surplus_bytes.saturating_sub(file.bytes);
        }
        if surplus_bytes > 0
            && let Some(filled) = work.filled.take()
        {
            self.drop_file(&filled.file);
        }
    }

    /// Takes a file off the list for a new one, and says which of its blocks are to be written
    /// again.
    pub(super) fn evict(&self, work: &mut Work) {
        let policy = self.copies.plan.eviction;
        let files = self.evictable();
        let last_hits: Vec<_> = files.iter().map(|file| file.last_hit()).collect();
        let Some(file) = choose_file(policy, &last_hits).map(|at| Arc::clone(&files[at])) else {
            return;
        };
        self.forget(&file);
        self.copies.counts.evicted_files.add(1);
        let read = file.sealed.get().map(|sealed| sealed.blocks(&file.file));
        let blocks = match read {
            Some(Ok(blocks)) => blocks,
            Some(Err(error)) => {
                tracing::warn!(%error, "a file of the block cache leaves with all its blocks");
                Vec::new()
            }
            None => Vec::new(),
        };
        let blocks = self.worth_keeping(&file, &blocks);
        if let Some(Leaving { file, .. }) = work.leaving.replace(Leaving { file, blocks }) {
            self.delete(file.number());
        }
    }

    /// Those of the `blocks` of a file that leaves which are to be written again, the last first.
    fn worth_keeping(&self, file: &CacheFile, blocks: &[CachedBlock]) -> Vec<CachedBlock> {
        let tables = self.slow_tables();
        let take = |block: &CachedBlock| {
            let position = file.position(block.position);
            let hits = self.copies.lookup.take(hash_of(key_of(block)), position)?;
            tables.contains_key(&block.table).then_some((*block, hits))
        };
        // Of others there is a newer copy, or their table is gone.
        let (blocks, hits): (Vec<_>, Vec<_>) = blocks.iter().filter_map(take).unzip();
        let leaving = std::iter::zip(&blocks, hits);
        let leaving: Vec<_> =
            leaving.map(|(block, hits)| LeavingBlock { hits, len: block.len }).collect();
        let stay = reinserted(self.copies.plan.eviction, file.bytes, &leaving);
        let goes = |at: &usize| stay.binary_search(at).is_err();
        let gone = (0..blocks.len()).filter(goes).map(|at| key_of(&blocks[at]));
        self.copies.left(gone);
        stay.into_iter().rev().map(|at| blocks[at]).collect()
    }

    /// Writes a batch of the blocks again that stay, and deletes their file after the last.
    pub(super) fn reinsert(&self, work: &mut Work) {
        let Some(Leaving { file, mut blocks }) = work.leaving.take() else { return };
        let plan = &self.copies.plan;
        let mut batch = Batch::new(plan.batch_bytes);
        let mut count = 0;
        while let Some(block) = blocks.pop() {
            // Its checksum is looked at when it is read for its sake.
            let Ok(stored) = file.file.read(block.position, block.len as usize) else { continue };
            if !batch.add(plan.layout, key_of(&block), &stored) {
                blocks.push(block);
                break;
            }
            count += 1;
        }
        let goes_on = !batch.is_empty() && self.copies.may_write(plan.batch_bytes as u64);
        if goes_on && work.filled.is_some() {
            self.copies.counts.reinserted_blocks.add(count);
            self.write(work, batch);
        }
        if goes_on && !blocks.is_empty() && work.filled.is_some() && work.leaving.is_none() {
            work.leaving = Some(Leaving { file, blocks });
        } else {
            self.delete(file.number());
        }
    }
}
