//! How a file comes to be: which tier it is begun on, and on which it is begun again where a device
//! has no room for it.
//!
//! 1. A tier whose device refuses a file is passed over, as one is that is full by its capacity.
//!    The file that was begun there goes, and another, of another number, is begun on the next
//!    tier.
//! 2. "No tier has room" is said of tiers that are full by their capacities, and of those whose
//!    devices have refused this very file.
//! 3. Copies on tier 0 that nothing needs leave for a file that finds no room on any tier
//!    ([`GivesWay`]).
//! 4. A tier whose device has refused anything is asked for the whole of a file before the file is
//!    written to, and so is each tier for what cannot be written twice. For what a table comes to
//!    beyond that it is asked again (`promises.rs`).
//!
//! Threads: shared freely.

use super::{Entry, TieredFiles, file_name, is_table, may_be_closed};
use crate::context::{FileContext, FileKind, Keeping, Origin};
use crate::error::{Error, ErrorKind, Result};
use crate::file::{File, Location};
use crate::file_map::FileMap;
use crate::placement::{TierState, WATERMARK_PERCENT};
use crate::tier::TierIndex;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use thermocline_foundation::sync::atomic::AtomicU64;
use thermocline_foundation::{ByteSize, FileNumber};

/// Keeps copies on tier 0, in files of [`Keeping::Cache`].
pub trait GivesWay: Debug + Send + Sync {
    /// Deletes files of so many bytes at least, as far as there are any; false where nothing has
    /// left. Called with no lock of the namespace held.
    fn leave(&self, bytes: u64) -> bool;
}

impl TieredFiles {
    /// From now on a file that finds no room on any tier gets that of `copies`. Only the first call
    /// counts.
    pub fn set_giving_way(&self, copies: Weak<dyn GivesWay>) {
        self.gives_way.get_or_init(|| copies);
    }

    /// Makes a new file on the tier that placement names. It is not published: a crash removes it.
    /// Its `expected_bytes` count as used until it is.
    ///
    /// Errors: `OutOfSpace` where every tier is full.
    pub fn create_file(&self, context: FileContext, expected_bytes: u64) -> Result<Arc<File>> {
        self.create_begun(context, expected_bytes, |_| Ok(())).map(|(file, ())| file)
    }

    /// As [`TieredFiles::create_file`], begun by `begin`. Where that fails the file is gone, and
    /// where it fails for want of room, begins another on the next tier.
    pub fn create_begun<T>(
        &self,
        context: FileContext,
        expected_bytes: u64,
        mut begin: impl FnMut(&Arc<File>) -> Result<T>,
    ) -> Result<(Arc<File>, T)> {
        self.require_writable()?;
        if context.kind == FileKind::Map {
            return Err(Error::new(ErrorKind::Invalid, "only the namespace makes file maps"));
        }
        let mut asked = Vec::new();
        loop {
            let number = self.with_map(FileMap::allocate_number)?;
            let reserve = || self.reserve(number, context, expected_bytes, &asked);
            let (tier, extent) = loop {
                match reserve() {
                    Err(error)
                        if error.kind() == ErrorKind::OutOfSpace
                            && self.copies_leave(context, expected_bytes, &asked) => {}
                    reserved => break reserved?,
                }
            };
            let begun = self.create_on(tier, number, context, extent).and_then(|file| {
                self.ask_for_room(&file, expected_bytes, context.origin == Origin::Ingest)?;
                let begun = begin(&file)?;
                Ok((file, begun))
            });
            match begun {
                Err(error) => self.drop_begun(number, &error)?,
                begun => return begun,
            }
            asked.push(tier);
        }
    }

    /// The tiers whose devices have refused something for want of room, and may still.
    pub(super) fn refused_tiers(&self) -> Vec<bool> {
        self.tiers.iter().map(|tier| tier.is_refused()).collect()
    }

    fn create_on(
        &self,
        tier: TierIndex,
        number: FileNumber,
        context: FileContext,
        extent: Arc<AtomicU64>,
    ) -> Result<Arc<File>> {
        let tier = &self.tiers[tier.position()];
        let name = file_name(number, context.kind);
        let created = self.open_files.with_room(|| tier.driver().create(&name));
        let handle = created.map_err(|error| {
            tier.note_refusal(&error, 1);
            let text = format!("cannot create a {} on {}: {error}", context.kind, tier.describe());
            Error::new(error.kind(), text)
        })?;
        let location = Location::open(Arc::clone(tier), handle);
        let (database, kind) = (self.database, context.kind);
        let file = File::at(database, number, kind, location, extent, &self.open_files);
        if may_be_closed(kind) {
            self.open_files.enroll(&file);
        }
        self.hold_unpublished(&file);
        Ok(file)
    }

    /// Has the device keep the room of a table for it, where it is likely to have none, or where
    /// the table `is_single`: it could not be begun again. Slabs ask for all of theirs anyway.
    pub(super) fn ask_for_room(&self, file: &File, bytes: u64, is_single: bool) -> Result<()> {
        let (tier, kind) = (&self.tiers[file.tier().position()], file.kind());
        tier.require_slack(kind, bytes.saturating_sub(file.extent_bytes()))?;
        let asks = tier.refusals().is_in_doubt() || is_single;
        if is_table(kind) && asks { file.allocate(bytes) } else { Ok(()) }
    }

    /// Removes what was begun; gives `error` back unless another tier is to be asked.
    fn drop_begun(&self, number: FileNumber, error: &Error) -> Result<()> {
        let begun = self.with_state(|state| self.forget(state, number));
        match begun {
            Some((_, Entry { kind, tier, unpublished: Some(file), .. })) => {
                drop(file);
                // Nothing of it was promised to others, so nothing is given back either.
                self.unlink(number, kind, tier, 0);
            }
            // It was not even made.
            Some((_, Entry { tier, .. })) => self.leaving.end(number, tier),
            None => {}
        }
        if error.kind() == ErrorKind::OutOfSpace { Ok(()) } else { Err(error.clone()) }
    }

    /// Has copies on tier 0 leave for a file that finds no room. True where the file may be tried
    /// again: copies left, or others have made room since. False where it would find none without
    /// any copies.
    fn copies_leave(&self, context: FileContext, expected_bytes: u64, asked: &[TierIndex]) -> bool {
        if context.kind.keeping() == Keeping::Cache {
            return false;
        }
        let is_copy = |kind: FileKind| kind.keeping() == Keeping::Cache;
        // The copies last: what is gone meanwhile is in the tiers' sums alone.
        let look = || {
            self.with_state(|state| {
                let mut tiers = self.tier_states(state);
                asked.iter().for_each(|tier| tiers[tier.position()].is_refused = true);
                let copies = state.values().filter(|entry| is_copy(entry.kind));
                let mut bytes: u64 = copies.map(Entry::bytes).sum();
                // Another thread has some leave.
                self.leaving.count(|tier, kind, of| {
                    bytes += if is_copy(kind) && tier == TierIndex(0) { of } else { 0 };
                });
                (tiers, bytes)
            })
        };
        let place = |tiers: &[TierState]| self.place(context, expected_bytes, tiers);
        let (mut tiers, copies_bytes) = look();
        if place(&tiers).is_some() {
            return true;
        }
        let wanted_bytes = tiers[0].used_bytes.saturating_add(expected_bytes);
        tiers[0].remove(FileKind::BlockCache, copies_bytes);
        let leave = || {
            let Some(copies) = self.gives_way.get().and_then(Weak::upgrade) else {
                return self.delete_left_copies();
            };
            let capacity_bytes = u128::from(tiers[0].capacity_bytes);
            let usable_bytes = capacity_bytes * u128::from(WATERMARK_PERCENT) / 100;
            copies.leave(wanted_bytes.saturating_sub(usable_bytes as u64))
        };
        (place(&tiers) == Some(TierIndex(0)) && leave()) || place(&look().0).is_some()
    }

    /// The tier for a new file; none where the policy has none, or names one that is not there.
    fn place(
        &self,
        context: FileContext,
        expected_bytes: u64,
        tiers: &[TierState],
    ) -> Option<TierIndex> {
        let placed = self.placement.place(context, expected_bytes, tiers);
        placed.filter(|tier| tier.position() < tiers.len())
    }

    /// Copies that an earlier opening left and that no cache has taken over, with their bytes: all
    /// there are where none runs, as in a repair or a change of the tiers.
    fn left_copies(&self) -> Vec<(FileNumber, u64)> {
        let is_left = |entry: &Entry| {
            entry.kind.keeping() == Keeping::Cache && entry.open.strong_count() == 0
        };
        self.with_state(|state| {
            let left = state.iter().filter(|(_, entry)| is_left(entry));
            left.map(|(number, entry)| (*number, entry.bytes())).collect()
        })
    }

    /// Bytes of these copies, which lie on tier 0.
    pub(super) fn left_copies_bytes(&self) -> u64 {
        self.left_copies().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Deletes them. False where there are none.
    pub(super) fn delete_left_copies(&self) -> bool {
        let left: Vec<_> = self.left_copies().into_iter().map(|(number, _)| number).collect();
        let deleted = self.delete_files(&left);
        if let Err(error) = &deleted {
            tracing::warn!(%error, "copies of a cache stay until reopening");
        }
        !left.is_empty() && deleted.is_ok()
    }

    /// Picks a tier for a new file and accounts for it there. Of those that were `asked` for it
    /// none is picked.
    fn reserve(
        &self,
        number: FileNumber,
        context: FileContext,
        expected_bytes: u64,
        asked: &[TierIndex],
    ) -> Result<(TierIndex, Arc<AtomicU64>)> {
        let refused = self.refused_tiers();
        let mut state = self.state.lock();
        let mut tiers = self.tier_states(&state);
        asked.iter().for_each(|tier| tiers[tier.position()].is_refused = true);
        let place = |tiers: &[TierState]| self.place(context, expected_bytes, tiers);
        // A log that an opening begins with nothing is placed beyond the capacities, too: else a
        // database that is full could not be opened, not even to be read.
        let is_first_log = context.kind == FileKind::Log
            && context.origin == Origin::Recovery
            && expected_bytes == 0;
        let first_with_device = || {
            let position = tiers.iter().position(|tier| !tier.is_refused && is_first_log);
            position.map(|position| TierIndex(position as u8))
        };
        let wanted = place(&tiers).or_else(first_with_device);
        let wanted =
            wanted.ok_or_else(|| self.out_of_space(context, expected_bytes, &tiers, asked))?;
        let mut tier = wanted;
        if refused[wanted.position()] {
            let mut others = tiers.clone();
            for (other, is_refused) in others.iter_mut().zip(refused) {
                other.is_refused |= is_refused;
            }
            if let Some(other) = place(&others) {
                self.tiers[wanted.position()].refusals().passed_over();
                tier = other;
            }
        }
        let entry = Entry {
            kind: context.kind,
            tier,
            expected_bytes,
            extent: Arc::default(),
            open: Weak::new(),
            unpublished: None,
            published: false,
            moving_to: None,
            _writing: self.loads.begin(tier, context),
        };
        let extent = Arc::clone(&entry.extent);
        state.insert(number, entry);
        Ok((tier, extent))
    }

    pub(super) fn hold_unpublished(&self, file: &Arc<File>) {
        if let Some(entry) = self.state.lock().get_mut(&file.number()) {
            entry.open = Arc::downgrade(file);
            entry.unpublished = Some(Arc::clone(file));
        }
    }

    fn out_of_space(
        &self,
        context: FileContext,
        bytes: u64,
        tiers: &[TierState],
        asked: &[TierIndex],
    ) -> Error {
        let uses = self.tiers.iter().zip(tiers).map(|(tier, state)| {
            let (used, capacity) = (ByteSize(state.used_bytes), ByteSize(state.capacity_bytes));
            let refused = match asked.contains(&tier.index()) {
                true => ", and its device has no more room",
                false => "",
            };
            format!("{} uses {used} of {capacity}{refused}", tier.describe())
        });
        let uses: Vec<_> = uses.collect();
        let which = match context.kind {
            FileKind::Slab | FileKind::TableIndex => "its tier has no",
            _ => "no tier has",
        };
        let text = format!(
            "{which} room for a {} of {}: {}; free space on a device, raise a capacity, add a tier \
             or delete data",
            context.kind,
            ByteSize(bytes),
            uses.join("; ")
        );
        Error::new(ErrorKind::OutOfSpace, text)
    }
}
