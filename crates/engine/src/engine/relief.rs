//! Relief for tier 0 where its device has no room left and a job was refused for it.
//!
//! Logs and journals lie there, and nothing is written without them; the file map lies nowhere
//! else. So the cache of blocks goes, and then what can lie elsewhere, one thing a refusal: logs
//! that wait to be used again, then the manifest, then a table. The map keeps some pages for saying
//! so.
//!
//! Threads: workers whose job was refused, and callers whose call was.

use crate::engine::Engine;
use crate::error::{ErrorKind, Result};
use std::cmp::Reverse;
use thermocline_device::{FileInfo, FileKind, TierIndex, TierUsage};

/// The tier of logs and journals.
const FAST: TierIndex = TierIndex(0);

/// Things that leave tier 0 for one call of a caller.
const TRIES_MAX: u32 = 64;

impl Engine {
    /// Runs what a caller asks for, and again where tier 0 had no room and something could leave
    /// it.
    pub fn relieving<T>(&self, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        let mut tries = TRIES_MAX;
        loop {
            match run() {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && tries > 0 => {
                    if !self.relieve() {
                        return Err(error);
                    }
                    tries -= 1;
                }
                ran => return ran,
            }
        }
    }

    /// Makes room on tier 0 if its device has refused something, and the cache of blocks has some
    /// or another tier; false where nothing has left it.
    pub fn relieve(&self) -> bool {
        let files = &self.shared.files;
        let has_room = |tier: &TierUsage| {
            let is_refused = files.tiers()[tier.tier.position()].is_refused();
            tier.tier != FAST && !is_refused && tier.used_bytes < tier.capacity_bytes
        };
        if !files.tiers()[FAST.position()].is_refused() {
            return false;
        }
        if self.fast_cache.as_ref().is_some_and(|cache| cache.make_room()) {
            self.shared.room_freed();
            return true;
        }
        let Some(to) = files.usage().into_iter().find(has_room) else { return false };
        let relieved = self.relieve_one(to.tier).unwrap_or_else(|error| {
            tracing::warn!(%error, "tier 0 stays full");
            false
        });
        if relieved {
            self.shared.room_freed();
        }
        relieved
    }

    /// False where nothing can go to the tier `to`.
    fn relieve_one(&self, to: TierIndex) -> Result<bool> {
        if self.front.give_up_logs()? {
            return Ok(true);
        }
        let mut tables = self.versions.tables();
        if tables.manifest.tier() == FAST {
            self.versions.move_manifest(&mut tables)?;
            return Ok(true);
        }
        drop(tables);
        let files = &self.shared.files;
        let is_there = |file: &FileInfo| {
            file.published && file.tier == FAST && matches!(file.kind, FileKind::Table { .. })
        };
        let there = files.files().into_iter().filter(is_there);
        // The deepest level is asked for the least, and has larger tables.
        let Some(table) = there.max_by_key(|file| (file.kind, Reverse(file.number))) else {
            return Ok(false);
        };
        files.migrate(table.number, to, &mut |_| {})?;
        Ok(true)
    }
}
