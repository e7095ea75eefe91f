//! Moving a file to another tier: copy, verify, switch, delete.
//!
//! 1. The copy is read back and compared, synced, and its name made durable before the map says
//!    that it counts.
//! 2. The map append is the switch. A crash before leaves a stray copy on the new tier, one after
//!    it a stray copy on the old tier; the next opening removes either.
//! 3. Readers never wait and never notice: a read uses the copy that counted when it began.
//! 4. If it cannot be known whether the switch happened, both copies stay.
//! 5. A file deleted meanwhile stays deleted.
//!
//! Threads: any number of files move at once, a file once at a time.

use crate::buffer::{Buffer, PAGE_BYTES};
use crate::context::{FileContext, FileKind, Origin};
use crate::driver::Handle;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{File, Location};
use crate::file_map::MapChange;
use crate::tier::{Tier, TierIndex};
use crate::tiered_files::{TieredFiles, file_name, unknown};
use std::sync::Arc;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::{FileNumber, Planted, planted, sync_site};

/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Writes of a copy that overlap.
const WRITES_MAX: usize = 4;

/// What changes the bytes of a copy on their way: gets those from an offset on.
pub(crate) type Change<'a> = &'a dyn Fn(u64, &mut [u8]);

/// What hears of a copy's progress: bytes copied so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

impl TieredFiles {
    /// Moves a published table to `to`, telling `progress` how far the copy is. A file that is
    /// there already, or is being moved there by another thread, is left as it is.
    ///
    /// Errors: `NotFound` where the file is, or meanwhile was, deleted; `OutOfSpace` where `to` has
    /// no room.
    pub fn migrate(&self, number: FileNumber, to: TierIndex, progress: Progress<'_>) -> Result<()> {
        self.move_file(number, to, false, progress)
    }

    /// As [`TieredFiles::migrate`], of a published file of any kind: for a namespace of which
    /// nothing else has a file open.
    pub(crate) fn relocate(
        &self,
        number: FileNumber,
        to: TierIndex,
        progress: Progress<'_>,
    ) -> Result<()> {
        self.move_file(number, to, true, progress)
    }

    fn move_file(
        &self,
        number: FileNumber,
        to: TierIndex,
        may_be_any: bool,
        progress: Progress<'_>,
    ) -> Result<()> {
        self.require_writable()?;
        let Some((kind, from)) = self.begin_move(number, to, may_be_any)? else {
            return Ok(());
        };
        let target = &self.tiers()[to.position()];
        let writing = self.loads().begin(to, FileContext { kind, origin: Origin::Migration });
        let copied = self.open_file(number).and_then(|file| {
            let name = file_name(number, kind);
            let handle = sync_site("move", || copy(&file, target, &name, progress))?;
            sync_site("move/name", || target.sync_directory())?;
            Ok((handle, file.len()?))
        });
        drop(writing);
        let (handle, bytes) = match copied {
            Ok(copied) => copied,
            Err(error) => {
                self.abandon_move(number, kind, to);
                let text = format!("cannot move file {number} from {from} to {to}: {error}");
                return Err(Error::new(error.kind(), text));
            }
        };
        if planted(Planted::MigrationDeletesFirst) {
            self.unlink(number, kind, from, bytes);
        }
        if self.switch(number, to, &handle)? {
            self.unlink(number, kind, from, bytes);
            return Ok(());
        }
        self.unlink(number, kind, to, bytes);
        Err(unknown(number))
    }

    /// Notes that the file is on its way; none if there is nothing to do.
    fn begin_move(
        &self,
        number: FileNumber,
        to: TierIndex,
        may_be_any: bool,
    ) -> Result<Option<(FileKind, TierIndex)>> {
        self.with_state(|state| {
            let tiers = self.tier_states(state);
            let entry = state.get_mut(&number).ok_or_else(|| unknown(number))?;
            let room = tiers.get(to.position()).ok_or_else(|| {
                let text = format!("there is no {to}, only {} tiers", tiers.len());
                Error::new(ErrorKind::Invalid, text)
            })?;
            let may_move = may_be_any || matches!(entry.kind, FileKind::Table { .. });
            if !entry.published || !may_move {
                let text = format!("cannot move file {number}: only published tables move");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            if entry.tier == to || entry.moving_to == Some(to) {
                return Ok(None);
            }
            if entry.moving_to.is_some() {
                let text = format!("cannot move file {number}: it is being moved; try later");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            if room.used_bytes.saturating_add(entry.bytes()) > room.capacity_bytes {
                let text = format!("cannot move file {number} to {to}: it has no room");
                return Err(Error::new(ErrorKind::OutOfSpace, text));
            }
            entry.moving_to = Some(to);
            Ok(Some((entry.kind, entry.tier)))
        })
    }

    /// After a failed copy: removes what there is of it.
    fn abandon_move(&self, number: FileNumber, kind: FileKind, to: TierIndex) {
        let deleted = self.tiers()[to.position()].driver().delete(&file_name(number, kind));
        let stays = deleted.err().filter(|error| error.kind() != ErrorKind::NotFound);
        if let Some(error) = &stays {
            tracing::warn!(%error, "a half-made copy stays until reopening");
        }
        self.with_state(|state| {
            let moving = state.get_mut(&number);
            let bytes = moving.map(|entry| {
                entry.moving_to = None;
                entry.bytes()
            });
            match (stays, bytes) {
                (None, _) => self.leaving().end(number, to),
                (Some(_), Some(bytes)) => self.leaving().add((number, kind, to, bytes)),
                // It was deleted meanwhile, and counts there already.
                (Some(_), None) => {}
            }
        });
    }

    /// Makes the copy count; false if the file was deleted meanwhile. On an error the file stays
    /// marked as moving, so that nothing touches either copy before the next opening has read the
    /// map.
    fn switch(&self, number: FileNumber, to: TierIndex, handle: &Handle) -> Result<bool> {
        self.with_map(|map| {
            if !self.with_state(|state| state.contains_key(&number)) {
                return Ok(false);
            }
            sync_site("move/map", || map.commit(&[MapChange::Move(number, to)]))?;
            self.with_state(|state| {
                if let Some(entry) = state.get_mut(&number) {
                    self.leaving().add((number, entry.kind, entry.tier, entry.bytes()));
                    // An old copy that could not be deleted there was replaced.
                    self.leaving().end(number, to);
                    entry.tier = to;
                    entry.moving_to = None;
                    if let Some(file) = entry.open.upgrade() {
                        let tier = Arc::clone(&self.tiers()[to.position()]);
                        let location = Location::open(tier, Arc::clone(handle));
                        self.open_files().relocated(&file, location);
                    }
                }
            });
            Ok(true)
        })
    }
}

/// Copies `source` to the new file `name` of `tier`, verified and synced; the caller syncs the
/// directory. A stray file of that name is replaced.
pub(crate) fn copy(
    source: &File,
    tier: &Arc<Tier>,
    name: &str,
    progress: Progress<'_>,
) -> Result<Handle> {
    copy_changed(source, tier, name, &|_, _| {}, progress)
}

/// As [`copy`], with what `change` makes of the bytes.
pub(crate) fn copy_changed(
    source: &File,
    tier: &Arc<Tier>,
    name: &str,
    change: Change<'_>,
    progress: Progress<'_>,
) -> Result<Handle> {
    match tier.driver().delete(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let handle = source.open_files().with_room(|| tier.driver().create(name))?;
    let location = Location::open(Arc::clone(tier), Arc::clone(&handle));
    let place = source.place(0);
    let (number, kind) = (source.number(), source.kind());
    let target = Arc::new(File::detached(place.database, number, kind, location));
    let sums = transfer(source, &target, change, progress)?;
    if planted(Planted::MigrationSwitchesUnsynced) {
        return Ok(handle);
    }
    sync_site("copy", || target.sync())?;
    verify(&target, source.len()?, &sums)?;
    Ok(handle)
}

/// Copies all bytes; returns the checksum of each chunk.
fn transfer(
    source: &File,
    target: &Arc<File>,
    change: Change<'_>,
    progress: Progress<'_>,
) -> Result<Vec<u32>> {
    let len = source.len()?;
    target.location().tier.require_slack(source.kind(), len)?;
    target.allocate(len)?;
    let mut writes = target.start_writes(WRITES_MAX)?;
    let mut sums = Vec::new();
    let mut offset = 0;
    while offset < len {
        let wanted = (len - offset).min(CHUNK_BYTES as u64) as usize;
        let mut chunk = source.read(offset, wanted)?;
        if chunk.len() != wanted {
            let (what, got) = (source.describe(), chunk.len());
            let text = format!("cannot read {wanted} bytes at {offset} of {what}: it gives {got}");
            return Err(Error::new(ErrorKind::Io, text));
        }
        change(offset, &mut chunk);
        sums.push(checksum(&source.place(offset), &chunk));
        if !wanted.is_multiple_of(PAGE_BYTES) {
            let mut padded = Buffer::zeroed(wanted.next_multiple_of(PAGE_BYTES));
            padded[..wanted].copy_from_slice(&chunk);
            chunk = padded;
        }
        writes.write(offset, chunk)?;
        offset += wanted as u64;
        progress(offset);
    }
    writes.finish()?;
    target.truncate(len)?;
    Ok(sums)
}

/// Reads the copy back and compares.
fn verify(target: &File, len: u64, sums: &[u32]) -> Result<()> {
    if target.len()? != len {
        return Err(Error::corrupt(target.describe(), len, "the copy has another length"));
    }
    for (index, sum) in sums.iter().enumerate() {
        let offset = (index * CHUNK_BYTES) as u64;
        let chunk = target.read(offset, (len - offset).min(CHUNK_BYTES as u64) as usize)?;
        if checksum(&target.place(offset), &chunk) != *sum {
            let why = "the device did not keep what was copied to it; see the system's log";
            return Err(Error::corrupt(target.describe(), offset, why));
        }
    }
    Ok(())
}
