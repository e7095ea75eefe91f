//! A file that its host writes: from its creation, or from [`NamedFile::to_write`] on, until the
//! last of its [`Writer`]s is dropped.
//!
//! ```text
//!   move, copy   [ begin: whole? .... bytes are copied .... end: not written since? ]
//!   host                       [ to_write | writes | drop ]        -> given up, tried again later
//! ```
//! 1. A file that is being written is neither moved nor copied, since bytes that come after the
//!    copying would be lost. The exception is the overflow that its own writer asks for.
//! 2. Each beginning is counted, so that a move or copy sees at its end a file that was written
//!    and is whole again.
//! 3. A copy for reads goes before the first byte of a later writing, and so do extents.
//! 4. A writer begins at the place that counts: a move that is switching over ends first.
//! 5. Before a file outside the fastest tier is written again it has another stamp, durably: its
//!    host may sync the bytes alone, and after a power cut the file would have new bytes under the
//!    stamp that extents know.
//!
//! Threads: any number of writers of one file; each is used as its host likes.

use super::named_file::NamedFile;
use super::{Holds, Host, Names};
use crate::error::{Error, ErrorKind, Result};
use std::ops::Deref;
use std::sync::Arc;
use thermocline_foundation::{Planted, planted};

/// The right to write a file. See the module.
#[derive(Debug)]
pub struct Writer {
    file: Arc<NamedFile>,
}

impl Deref for Writer {
    type Target = NamedFile;

    fn deref(&self) -> &NamedFile {
        &self.file
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let (host, _) = self.file.location();
        host.end_writing(&self.file);
    }
}

impl Writer {
    /// Of a file that counts it already.
    pub(super) fn of(file: Arc<NamedFile>) -> Self {
        Self { file }
    }

    /// The file, also for the time after the writing.
    pub fn file(&self) -> &Arc<NamedFile> {
        &self.file
    }

    /// To be called when the device refused to extend the file beyond its first `len` bytes: the
    /// file goes on elsewhere, with these bytes, and the host repeats there what failed.
    ///
    /// Errors: `OutOfSpace` where every tier refused; the file is as it was.
    pub fn continue_elsewhere(&self, len: u64) -> Result<()> {
        let (host, _) = self.file.location();
        host.continue_elsewhere(&self.file, len)
    }
}

impl NamedFile {
    /// To be called before the host opens the file to write to it again, at its place.
    ///
    /// Errors: `NotFound` where it was deleted or replaced.
    pub fn to_write(self: &Arc<Self>) -> Result<Writer> {
        let (host, _) = self.location();
        host.begin()?;
        // Invariant 4.
        let _changing = host.changing.lock();
        host.require_sound()?;
        host.begin_writing(self)
    }
}

impl Names {
    /// Cuts or extends a file, as its host would at its place.
    pub fn truncate(&self, name: &str, len: u64) -> Result<()> {
        self.host.change(name, |_| {
            self.host.look_at(name)?;
            let file = self.host.listing.lock().open(&self.host, name)?;
            let writer = self.host.begin_writing(&file)?;
            let (_, place) = writer.location();
            self.host.room(&place).tier.driver().open(&place.file)?.truncate(len)
        })
    }
}

impl Host {
    /// One writer more. The caller holds `changing`.
    fn begin_writing(&self, file: &Arc<NamedFile>) -> Result<Writer> {
        let (name, place, is_first) = {
            let mut listing = self.listing.lock();
            let name = listing.name_of(file).ok_or_else(|| gone(file))?;
            let unknown_level = listing.settings.unknown_level;
            let named = listing.get_mut(&name)?;
            named.begin_writing();
            file.will_change();
            let is_first = named.writers() == 1;
            if is_first {
                let context = named.class.context_with(unknown_level);
                file.written_by(self.loads.begin(named.place.room, context));
            }
            (name, named.place.clone(), is_first)
        };
        let writer = Writer::of(Arc::clone(file));
        if is_first {
            self.restamp(&place)?;
        }
        if !planted(Planted::CopyOfWrittenFileServed) {
            self.drop_copy(&name);
        }
        Ok(writer)
    }

    /// One writer less. After the last one the file's length is final as far as it is known: it is
    /// what it takes.
    fn end_writing(&self, file: &NamedFile) {
        let (_, place) = file.location();
        let len = self.len_of(&place);
        let mut listing = self.listing.lock();
        let Some(name) = listing.name_of(file) else { return file.is_written() };
        let Ok(named) = listing.get_mut(&name) else { return };
        if !named.end_writing() {
            return;
        }
        file.is_written();
        let (class, is_late) = (named.class, std::mem::take(&mut named.is_late));
        if let Ok(len) = len {
            named.bytes = len;
            // A log may be written again: its deletion tells how long one becomes.
            if matches!(class.holds, Holds::Table | Holds::Blob) {
                listing.remember(class, Some(len));
            }
        }
        if is_late {
            listing.to_place.push_back(name);
        }
    }
}

pub(super) fn gone(file: &NamedFile) -> Error {
    Error::new(ErrorKind::NotFound, format!("{} was deleted or replaced", file.name()))
}
