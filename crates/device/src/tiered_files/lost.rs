//! What a repair asks of the namespace: to keep what it takes out of use, as copies in the
//! directory
//! `lost` of the file's tier, and to be opened where the manifest is gone.
//!
//! ```text
//!   tier/lost/00000012.table         a whole file
//!   tier/lost/00000007.slab.4096     what the file had from that offset on
//! ```
//! 1. A piece is durable, under its name, before the repair changes anything.
//! 2. A piece that is there already with the same bytes is not kept again; one with other bytes
//!    stays, and the new one gets a number behind its name.
//! 3. Nothing here is ever read again by the store, or counts as used: a user deletes it.
//!
//! Threads: the one that repairs.

use super::devices::Devices;
use super::{RegionRecord, TieredFiles, file_name};
use crate::buffer::{Buffer, PAGE_BYTES};
use crate::context::FileKind;
use crate::driver::{Driver, Handle, Operation};
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use crate::identity::InstanceId;
use crate::placement::Placement;
use crate::small_file;
use crate::tier::{Tier, TierSpec};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::{DatabaseId, FileNumber, sync_site};

/// The directory, below a tier's.
const LOST_DIRECTORY: &str = "lost";

/// Bytes copied at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// What a repair makes of bytes that their device does not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unreadable {
    /// It ends and has changed nothing: the device may give them when it is asked again.
    #[default]
    Refused,
    /// They count as damaged, and are zeros in what is kept of them: the caller knows that the
    /// device never gives them.
    Skipped,
}

impl Unreadable {
    /// Bytes are damaged of which a read ends so.
    pub fn is_damage(self, kind: ErrorKind) -> bool {
        match kind {
            ErrorKind::Corrupt => true,
            ErrorKind::Io => self == Self::Skipped,
            _ => false,
        }
    }
}

impl TieredFiles {
    /// As [`TieredFiles::open_if`], also where a manifest is missing or short: for a repair that
    /// makes it anew.
    pub fn open_without_manifest<E: From<Error>>(
        devices: &dyn Devices,
        home: &Path,
        tiers: Option<&[TierSpec]>,
        placement: Arc<dyn Placement>,
        read_only: bool,
        is_right: impl Fn(DatabaseId, InstanceId, Option<&RegionRecord>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let is_needed = |kind| kind != FileKind::Manifest;
        Self::open_where(devices, home, tiers, (placement, read_only), &is_needed, is_right)
    }

    /// Keeps the file `number`, or the bytes `part` of it, and says where.
    pub fn keep_lost(
        &self,
        devices: &dyn Devices,
        number: FileNumber,
        part: Option<Range<u64>>,
        unreadable: Unreadable,
    ) -> Result<PathBuf> {
        self.keep(devices, &*self.open_file(number)?, part, unreadable)
    }

    /// Keeps the file map as it is, writes it anew and says where the old one is.
    pub fn renew_map(&self, devices: &dyn Devices, unreadable: Unreadable) -> Result<PathBuf> {
        self.require_writable()?;
        let file = Arc::clone(self.map.lock().journal().file());
        let kept = self.keep(devices, &file, None, unreadable)?;
        self.with_map(|map| map.compact())?;
        Ok(kept)
    }

    fn keep(
        &self,
        devices: &dyn Devices,
        file: &File,
        part: Option<Range<u64>>,
        unreadable: Unreadable,
    ) -> Result<PathBuf> {
        self.require_writable()?;
        keep_in(&self.tiers[file.tier().position()], devices, file, part, unreadable)
    }
}

/// Keeps `file`, which is of `tier`, or the bytes `part` of it, and says where.
pub(super) fn keep_in(
    tier: &Tier,
    devices: &dyn Devices,
    file: &File,
    part: Option<Range<u64>>,
    unreadable: Unreadable,
) -> Result<PathBuf> {
    let directory = tier.spec().path.join(LOST_DIRECTORY);
    devices.create_directory(&directory)?;
    // One that was cut off may have made it, and not durably; the same below.
    sync_site("lost/directory", || tier.driver().sync_directory())?;
    let lost = devices.home(&directory)?;
    let name = file_name(file.number(), file.kind());
    let name = part.as_ref().map_or(name.clone(), |part| format!("{name}.{}", part.start));
    let len = file.len()?;
    let range = part.map_or(0..len, |part| part.start.min(len)..part.end.min(len));
    let mut kept_as = name.clone();
    for copy in 1.. {
        if !lost.list()?.iter().any(|entry| entry.name == kept_as) {
            copy_to((file, unreadable), &range, &*lost, &kept_as)?;
            break;
        }
        if has_bytes((file, unreadable), &range, &*lost, &kept_as)? {
            break;
        }
        kept_as = format!("{name}.{copy}");
    }
    sync_site("lost/name", || lost.sync_directory())?;
    Ok(directory.join(kept_as))
}

/// A file, and what is made of bytes of it that its device does not give.
type Source<'a> = (&'a File, Unreadable);

/// Bytes of a file; zeros where the device does not give them and that is known.
fn read((file, unreadable): Source<'_>, offset: u64, len: u64) -> Result<Buffer> {
    let page = PAGE_BYTES as u64;
    let mut whole = Buffer::zeroed((len as usize).next_multiple_of(PAGE_BYTES));
    whole.set_view(0..len as usize);
    match file.read(offset, len as usize) {
        Err(error) if unreadable.is_damage(error.kind()) => {}
        read => {
            whole.copy_from_slice(&read?);
            return Ok(whole);
        }
    }
    for at in (0..len).step_by(PAGE_BYTES) {
        let part = at as usize..(at + page).min(len) as usize;
        match file.read(offset + at, part.len()) {
            Err(error) if unreadable.is_damage(error.kind()) => {}
            read => whole[part].copy_from_slice(&read?),
        }
    }
    Ok(whole)
}

fn copy_to(source: Source<'_>, range: &Range<u64>, lost: &dyn Driver, name: &str) -> Result<()> {
    let new_name = format!("{name}.new");
    match lost.delete(&new_name) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let target = lost.create(&new_name)?;
    let mut at = range.start;
    while at < range.end {
        let bytes = read(source, at, CHUNK_BYTES.min(range.end - at))?;
        small_file::write(lost, &target, at - range.start, &bytes)?;
        at += CHUNK_BYTES;
    }
    target.truncate(range.end - range.start)?;
    sync_site("lost/piece", || small_file::sync(lost, &target))?;
    lost.rename(&new_name, name)
}

/// The file `name` has those bytes.
fn has_bytes(
    source: Source<'_>,
    range: &Range<u64>,
    lost: &dyn Driver,
    name: &str,
) -> Result<bool> {
    let kept = lost.open_to_read(name)?;
    if kept.len()? != range.end - range.start {
        return Ok(false);
    }
    let mut at = range.start;
    while at < range.end {
        let len = CHUNK_BYTES.min(range.end - at);
        if read_kept(lost, &kept, at - range.start, len)?[..] != read(source, at, len)?[..] {
            return Ok(false);
        }
        at += len;
    }
    Ok(true)
}

fn read_kept(lost: &dyn Driver, kept: &Handle, offset: u64, len: u64) -> Result<Buffer> {
    let buffer = Buffer::zeroed((len as usize).next_multiple_of(PAGE_BYTES));
    let completion = lost.execute(kept, Operation::Read { offset, buffer });
    if completion.result? < len as usize {
        let text = format!("a file of {} ends while it is read; try again", lost.describe());
        return Err(Error::new(ErrorKind::Io, text));
    }
    let mut buffer = completion.buffer;
    buffer.set_view(0..len as usize);
    Ok(buffer)
}
