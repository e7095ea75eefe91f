//! Copies of whole files on the next faster tier, for reads (Keigo, section 4.3).
//!
//! 1. A copy is of a file that nothing more is written to (`writer.rs`). It goes when the file is
//!    deleted, replaced, moved, or written again.
//! 2. No link names a copy: the next opening for writing removes what this one had.
//! 3. Files come first: a copy goes where a file needs its room.
//! 4. A copy that is being made takes its room from the start: as many threads as there are fill a
//!    tier no further than one does.
//! 5. The source of a copy is read ahead, and then leaves the page cache to files that are read.
//! 6. Each copy that is made halves what all files count as reads, so that what was hot once does
//!    not stay so.
//!
//! Threads: any number of copies are made at once, of a file one.

use super::listing::Listing;
use super::moves::spare_threads;
use super::{Holds, Host, Names, Place};
use crate::context::Origin;
use crate::error::Result;
use crate::file_cache::trigger::{CacheRoom, NextCopy, ReadFile, next_copy};
use crate::tier::TierIndex;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::sync_site;

/// Reads by room: all that were told of, and those of the last window.
#[derive(Debug, Default)]
pub(super) struct Copying(Mutex<Window>);

#[derive(Clone, Debug, Default)]
struct Window {
    totals: Vec<u64>,
    reads: Vec<u64>,
}

impl Names {
    /// A window of time ends: [`Names::copy_next`] goes by the reads in it until the next one ends.
    pub fn end_window(&self) {
        let totals: Vec<u64> = self.host.served.iter().map(|served| served.get()).collect();
        let mut window = self.host.copying.0.lock();
        let before = window.totals.iter().copied().chain(std::iter::repeat(0));
        window.reads = totals.iter().zip(before).map(|(now, before)| now - before).collect();
        window.totals = totals;
    }

    /// Makes the copy that the reads of the last window ask for, where the hit ratio of a tier was
    /// below so many percent; false if they ask for none.
    ///
    /// Errors: there is no copy, and nothing has changed.
    pub fn copy_next(&self, hit_percent: u8) -> Result<bool> {
        let Some(next) = self.host.next_copy(hit_percent) else { return Ok(false) };
        next.instead_of.iter().for_each(|name| self.host.drop_copy(name));
        self.keep_copy(&next.name, next.to)?;
        self.host.listing.lock().age_reads();
        Ok(true)
    }

    /// Threads that may call [`Names::copy_next`] at once now: what the writers leave of the tier
    /// that gets the copy; 0 where none is asked for.
    pub fn copy_threads(&self, hit_percent: u8) -> u16 {
        let Some(next) = self.host.next_copy(hit_percent) else { return 0 };
        let tier = &self.host.tier_states()[next.to.position()];
        spare_threads(tier, false)
    }

    /// Makes a copy of a file on a tier that is none of the host's own; false where it has one, or
    /// is not whole, or changed meanwhile.
    ///
    /// Errors: there is no copy, and nothing has changed.
    pub fn keep_copy(&self, name: &str, to: TierIndex) -> Result<bool> {
        let host = &self.host;
        host.begin()?;
        host.require_sound()?;
        // A plain file is found by its name: while none changes (`moves.rs`, invariant 6).
        let changing = host.changing.lock();
        let (file, from, writings) = {
            let mut listing = host.listing.lock();
            let file = listing.open(host, name)?;
            let named = listing.get_mut(name)?;
            let is_ready = named.is_whole() && !named.moving && named.copy.is_none();
            if !is_ready || named.place.room <= to || to == host.home {
                return Ok(false);
            }
            named.moving = true;
            named.copying_to = Some(to);
            (file, named.place.clone(), named.writings())
        };
        let changing = (from.room == host.home).then_some(changing);
        let source = host.room(&from).tier.driver().open_to_read(&from.file);
        drop(changing);
        let has_begun = source.is_ok();
        let target = host.target(&from, to);
        let place = Place { room: to, file: target.file.clone() };
        let copied = source.and_then(|source| {
            let (origin, handle) = (Origin::CacheFill, Arc::clone(&source));
            sync_site("names/copy", || host.copy_bytes(&from, handle, &target, origin))?;
            Ok(source)
        });
        let (is_kept, is_same) = {
            let mut listing = host.listing.lock();
            let now = listing.name_of(&file);
            let named = now.and_then(|name| listing.get_mut(&name).ok());
            named.map_or((false, false), |named| {
                named.moving = false;
                named.copying_to = None;
                let is_same = named.place == from && named.writings() == writings;
                let is_kept = copied.is_ok() && is_same;
                named.copy = Some(place.clone()).filter(|_| is_kept);
                file.copied(named.copy.clone());
                (is_kept, is_same)
            })
        };
        if !is_kept && has_begun {
            host.remove(&place);
        }
        if is_same {
            // Reads are served by the copy from here on.
            copied?.forget_cached();
        }
        host.counts.copied.add(u64::from(is_kept));
        Ok(is_kept)
    }
}

impl Host {
    fn next_copy(&self, hit_percent: u8) -> Option<NextCopy<String>> {
        let states = self.tier_states();
        let reads = self.copying.0.lock().reads.clone();
        let listing = self.listing.lock();
        let room = |(at, state): (usize, &crate::TierState)| {
            let reads = reads.get(at).copied().unwrap_or(0);
            let percent = listing.settings.thresholds.upper_percent;
            let limit = left_free(state.capacity_bytes, percent);
            let used = state.used_bytes.saturating_add(listing.copied_bytes(at));
            let free_bytes = (at != self.home.position()).then(|| limit.saturating_sub(used));
            CacheRoom { reads, free_bytes }
        };
        let rooms: Vec<_> = states.iter().enumerate().map(room).collect();
        let (files, copies) = listing.read_files(rooms.len());
        next_copy(&rooms, &files, &copies, hit_percent)
    }

    /// The copies that there are.
    pub(super) fn copies(&self) -> Vec<ReadFile<String>> {
        self.listing.lock().read_files(self.identities.len()).1
    }

    /// Lets copies on a room go until a file of so many bytes fits, the least read ones first.
    pub(super) fn make_room(&self, room: TierIndex, bytes: u64) {
        self.extents_give_way(room, bytes);
        if self.listing.lock().copied_bytes(room.position()) == 0 {
            return;
        }
        let mut copies = self.copies();
        let states = self.tier_states();
        let Some(state) = states.get(room.position()) else { return };
        let lower_percent = self.settings().thresholds.lower_percent;
        let limit = left_free(state.capacity_bytes, lower_percent);
        copies.retain(|copy| copy.tier == room);
        copies.sort_by_key(|copy| (copy.reads, copy.name.clone()));
        let mut used: u64 = copies.iter().map(|copy| copy.bytes).sum();
        used = used.saturating_add(state.used_bytes).saturating_add(bytes);
        for copy in copies {
            if used <= limit {
                return;
            }
            used -= copy.bytes;
            self.drop_copy(&copy.name);
        }
    }

    /// Lets all copies and extents on a room go, because its device is full; false if there was
    /// none.
    pub(super) fn drop_copies(&self, room: TierIndex) -> bool {
        let had_extents = self.drop_extents(room);
        let mut copies = self.copies();
        copies.retain(|copy| copy.tier == room);
        copies.iter().for_each(|copy| self.drop_copy(&copy.name));
        had_extents || !copies.is_empty()
    }

    /// Lets the copy of a file go, if it has one. Those that read it finish there.
    pub(super) fn drop_copy(&self, name: &str) {
        let copy = {
            let mut listing = self.listing.lock();
            let Ok(named) = listing.get_mut(name) else { return };
            let Some(copy) = named.copy.take() else { return };
            if let Some(file) = named.open_file() {
                file.copied(None);
            }
            copy
        };
        self.counts.dropped_copies.add(1);
        self.remove(&copy);
    }
}

/// Bytes of a tier that leave `percent` of its capacity free.
pub(super) fn left_free(capacity_bytes: u64, percent: u8) -> u64 {
    (u128::from(capacity_bytes) * u128::from(100 - percent) / 100) as u64
}

impl Listing {
    /// Bytes of copies on a room, and of those that are being made there.
    fn copied_bytes(&self, room: usize) -> u64 {
        let here = self.iter().filter(|(_, named)| {
            let made = named.copy.as_ref().map(|copy| copy.room);
            made.or(named.copying_to).is_some_and(|at| at.position() == room)
        });
        here.map(|(_, named)| named.bytes).sum()
    }

    /// The files that may be copied, and the copies, of so many tiers.
    fn read_files(&self, tiers: usize) -> (Vec<ReadFile<String>>, Vec<ReadFile<String>>) {
        let (mut files, mut copies) = (Vec::new(), Vec::new());
        for (name, named) in self.iter() {
            let (bytes, reads) = (named.bytes, named.reading.reads.load(Relaxed));
            let read = |tier| ReadFile { name: name.clone(), tier, bytes, reads };
            let is_table = matches!(named.class.holds, Holds::Table | Holds::Blob);
            match &named.copy {
                Some(copy) => copies.push(read(copy.room)),
                None if is_table && named.is_whole() && !named.moving => {
                    files
                        .extend(Some(read(named.place.room)).filter(|f| f.tier.position() < tiers));
                }
                None => {}
            }
        }
        (files, copies)
    }

    fn age_reads(&self) {
        for (_, named) in self.iter() {
            let reads = &named.reading.reads;
            // A read that comes between counts for this once only.
            reads.store(reads.load(Relaxed) / 2, Relaxed);
        }
    }
}
