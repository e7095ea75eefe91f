//! One open slab: its file, how it is divided, and the lock of its writers.
//!
//! 1. Header page and length are written when the slab is made, and never again. A slab is made
//!    for records, and the sync that makes the first of them durable makes the header so, before
//!    the slab can be published; an opened slab has the shape that the manifest says.
//! 2. `writing` is held from the reading of a page that slots share to the end of its writing, so
//!    that two writers of one page do not lose each other's bytes. It is held during I/O; readers
//!    do not take it.
//!
//! Threads: shared freely.

use crate::address::SlabId;
use crate::format::{
    self, BadHeader, Broken, HEADER_BYTES, SLOT_HEADER_BYTES, Slot, VERSION, claimed_bytes,
    decode_header, encode_header,
};
use crate::live::SlabShape;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{
    Error, ErrorKind, File, FileContext, FileKind, Origin, Result, TieredFiles,
};
use thermocline_foundation::sync::Mutex;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab {
    pub id: SlabId,
    pub file: Arc<File>,
    pub shape: SlabShape,
    /// Held while shared pages are changed; see the module.
    pub writing: Mutex<()>,
}

/// What a record's bytes turned out to be.
pub(crate) enum Decoded {
    Whole(Slot),
    /// The record is longer than what was read, and fits its slot.
    Longer,
}

impl Slab {
    pub fn new(id: SlabId, file: Arc<File>, shape: SlabShape) -> Self {
        Self { id, file, shape, writing: Mutex::new(()) }
    }

    /// Makes the file of a slab: space reserved, header page written, not synced and not published.
    /// What fails halfway is deleted.
    pub fn create_file(files: &TieredFiles, shape: SlabShape, origin: Origin) -> Result<Arc<File>> {
        let context = FileContext { kind: FileKind::Slab, origin };
        let (file, ()) = files.create_begun(context, shape.file_bytes(), |file| {
            file.allocate(shape.file_bytes())?;
            file.write(0, encode_header(&file.place(0), shape)).1
        })?;
        Ok(file)
    }

    /// The header page that was read from `file` says `shape`, and the file is long enough.
    ///
    /// # Errors
    /// `Corrupt` where the page is damaged, another file's or says otherwise, or the file is short;
    /// `NewerFormat` for a later version.
    pub fn check_header(file: &File, page: &[u8], shape: SlabShape) -> Result<()> {
        let found = decode_header(&file.place(0), page);
        let found = found.map_err(|bad| Self::bad_header(file, bad))?;
        if found != shape {
            let why = format!(
                "it has {} slots of {} bytes, the manifest says {} of {}",
                found.slots, found.slot_bytes, shape.slots, shape.slot_bytes
            );
            return Err(Error::corrupt(file.describe(), 0, why));
        }
        let (len, end) = (file.len()?, shape.file_bytes());
        if len < end {
            let why = format!("it ends there, and should have {end} bytes; restore it");
            return Err(Error::corrupt(file.describe(), len, why));
        }
        Ok(())
    }

    /// The error for the header page of `file`.
    pub fn bad_header(file: &File, bad: BadHeader) -> Error {
        match bad {
            BadHeader::Broken(why) => {
                let why = format!("{why}; restore from a checkpoint");
                Error::corrupt(file.describe(), 0, why)
            }
            BadHeader::Newer(version) => {
                let text = format!(
                    "{} has slab format {version}, this software reads up to {VERSION}; upgrade it",
                    file.describe()
                );
                Error::new(ErrorKind::NewerFormat, text)
            }
        }
    }

    /// The record of `slot`, of which `bytes` are the first. `memory_bytes` is what the memory
    /// behind them takes.
    pub fn decode(&self, slot: u32, bytes: &Bytes, memory_bytes: usize) -> Result<Decoded> {
        let corrupt = |why| self.corrupt(slot, why);
        let claimed = claimed_bytes(bytes).map_err(corrupt)?;
        let slot_bytes = u64::from(self.shape.slot_bytes);
        if claimed > bytes.len() as u64 && claimed <= slot_bytes {
            return Ok(Decoded::Longer);
        }
        let place = self.file.place(self.shape.offset(slot));
        let decoded = format::decode(&place, bytes, memory_bytes);
        decoded.map(Decoded::Whole).map_err(corrupt)
    }

    /// The error for a slot that is not what a writer wrote.
    #[cold]
    pub fn corrupt(&self, slot: u32, why: Broken) -> Error {
        let why = format!("slot {slot}: {why}; restore from a checkpoint");
        Error::corrupt(self.file.describe(), self.shape.offset(slot), why)
    }

    /// The error for live slots whose sum differs.
    #[cold]
    pub fn corrupt_sum(&self) -> Error {
        let why = "the sum of its live slots differs: a slot holds an older record than it should \
                   (a write was lost or went elsewhere); restore from a checkpoint";
        Error::corrupt(self.file.describe(), 0, why)
    }

    /// How many bytes of a slot to read for a record of about `hint` bytes; 0: not known.
    pub fn read_bytes(&self, hint: u32) -> usize {
        let whole = self.shape.slot_bytes;
        let wanted = if hint == 0 { whole } else { hint.max(SLOT_HEADER_BYTES as u32) };
        wanted.min(whole) as usize
    }
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(512), "no slot shares a sector with the header");
