//! What earlier openings left: files of copies that may still be right.
//!
//! A file counts if this copy of the database sealed it, in an opening that the present one came
//! from. A checkpoint keeps the identity of the database, and goes on with its numbers: both then
//! give one number to different tables, whose blocks verify. So a file is bound to the instance.
//! After a restore of older files numbers and generations repeat, too. So each opening has a life,
//! drawn at random, and a list of lives says which came before (`device/src/file_cache/lives.rs`).
//! A backup may lack list and files, which are no part of what a database says, and a restore
//! leaves those that are there. So `DATABASE` names the newest life, up to which the list counts.
//!
//! Invariants:
//! 1. Adopted blocks are of tables that were live at this opening, on slower tiers, and lie inside
//!    them.
//! 2. A file that does not count is deleted, and so is one of which less than a quarter is live.
//! 3. The oldest file comes first, so that of two copies of a block the newer one is found. Where
//!    there is less room than there was, the oldest go unread (`eviction.rs`).

use super::FastCache;
use super::copies::hash_of;
use super::work::Work;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::Result as DeviceResult;
use thermocline_device::file_cache::lives::FILE_NAME as LIVES_NAME;
use thermocline_device::file_cache::{CacheLife, CacheLives, CachedBlock, Seal, Sealed};
use thermocline_device::identity::InstanceId;
use thermocline_device::{ErrorKind, File, FileInfo, FileKind, TieredFiles};
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_table::BlockKey;

/// A file is deleted of which less than this part is live.
const LIVE_SHARE: u64 = 4;

/// What seals are held against.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    instance: InstanceId,
    /// What tells this opening from another of the same generation.
    pub life: u64,
    lives: CacheLives,
}

impl Opening {
    /// Begins a life of the cache, durably: only then may it seal files.
    pub fn begin(files: &TieredFiles, life: u64) -> DeviceResult<Self> {
        let database = files.database();
        let text = files.home_text(LIVES_NAME).unwrap_or_else(|error| {
            tracing::warn!(%error, "the block cache starts cold: its lives cannot be read");
            None
        });
        let mut lives = CacheLives::parse(&text.unwrap_or_default(), database);
        if !planted(Planted::CacheOfOtherInstanceAdopted) {
            lives.end_with(files.cache_life());
        }
        lives.begin(CacheLife {
            generation: files.generation(),
            life,
            numbers_below: files.numbers_below_at_opening(),
        });
        files.write_home_file(LIVES_NAME, &lives.text(database))?;
        files.set_cache_life(life)?;
        Ok(Self { instance: files.instance(), life, lives })
    }

    /// Earlier openings had a cache, too, and may have left files of it.
    pub fn follows_others(&self) -> bool {
        self.lives.lives().len() > 1
    }

    /// Why a file with this seal does not count.
    fn refusal(&self, seal: &Seal) -> Option<&'static str> {
        let is_ours = seal.instance == self.instance;
        if !is_ours && !planted(Planted::CacheOfOtherInstanceAdopted) {
            return Some("another copy of the database filled it");
        }
        (!self.lives.count(seal)).then_some("it is not of what the database came from")
    }
}

/// Forgets all lives: what earlier openings left does not count any more.
pub(super) fn forget_lives(files: &TieredFiles) -> DeviceResult<()> {
    match files.home_text(LIVES_NAME)? {
        Some(text) if !CacheLives::parse(&text, files.database()).lives().is_empty() => {
            let none = CacheLives::default().text(files.database());
            files.write_home_file(LIVES_NAME, &none)
        }
        _ => Ok(()),
    }
}

/// The files that earlier openings left, the newest first.
pub(super) fn found(files: &TieredFiles) -> Vec<FileInfo> {
    let files = files.files().into_iter().filter(|file| file.kind == FileKind::BlockCache);
    files.rev().collect()
}

/// Deletes the files that earlier openings left, which nothing would count.
pub(super) fn delete_found(files: &TieredFiles) {
    let numbers: Vec<_> = found(files).iter().map(|file| file.number).collect();
    if let Err(error) = files.delete_files(&numbers) {
        tracing::warn!(%error, "files of a block cache stay until reopening");
    }
}

impl FastCache {
    /// Adopts or deletes the next file of an earlier opening; false where there is none left, or no
    /// descriptor for it now.
    pub(super) fn adopt_next(&self, work: &mut Work) -> bool {
        if work.found.is_empty() {
            work.slow_tables = None;
            self.copies.fill();
            return false;
        }
        let tables = work.slow_tables.get_or_insert_with(|| self.slow_tables());
        let Some(found) = work.found.pop() else { return false };
        let number = found.number;
        let began_ns = self.shared.clock.now_ns();
        let opened = self.shared.files.open_file(number);
        let adopted = opened.and_then(|file| self.adopt(file, tables));
        let why = match adopted {
            Ok(None) => None,
            Ok(Some(why)) => Some(why.to_owned()),
            // It waits for the next look at the cache.
            Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => {
                work.found.push(found);
                return false;
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            tracing::info!(%number, %why, "a file of the block cache does not count any more");
            self.copies.counts.refused_files.add(1);
            self.delete(number);
        }
        let took_ns = self.shared.clock.now_ns().saturating_sub(began_ns);
        self.copies.counts.adopting_ns.add(took_ns);
        true
    }

    /// Takes `file` in, or says why it does not count. `tables` are those on slower tiers.
    fn adopt(
        &self,
        file: Arc<File>,
        tables: &BTreeMap<FileNumber, u64>,
    ) -> DeviceResult<Option<&'static str>> {
        let sealed = Sealed::read(&file)?;
        if let Some(why) = self.opening.refusal(&sealed.seal) {
            return Ok(Some(why));
        }
        let mut live = sealed.blocks(&file)?;
        live.retain(|CachedBlock { table, offset, len, .. }| {
            let end = offset.saturating_add((*len).into());
            *table < sealed.seal.numbers_below
                && tables.get(table).is_some_and(|bytes| end <= *bytes)
        });
        let live_bytes: u64 = live.iter().map(|block| u64::from(block.len)).sum();
        if live_bytes < sealed.directory / LIVE_SHARE {
            return Ok(Some("most of its blocks are of tables that are gone"));
        }
        let bytes = file.len()?;
        let copies = &self.copies;
        let (files, file) = copies.files.load().with(file, bytes, copies.now());
        file.sealed.get_or_init(|| sealed);
        for block in &live {
            let key = BlockKey { table: block.table, offset: block.offset, len: block.len };
            let position = file.position(block.position);
            copies.lookup.insert(hash_of(key), position, |low| files.is_live(low));
        }
        // Only now can readers find them.
        copies.files.store(Arc::new(files));
        copies.counts.adopted_files.add(1);
        copies.counts.adopted_blocks.add(live.len() as u64);
        Ok(None)
    }
}
