//! A small append-only file of metadata records: the file map and the engine's manifest are
//! journals.
//!
//! An append is one *frame*: a header and the caller's payload, cut into 512-byte sectors and
//! padded to 4 KiB pages. See docs/formats/journal.md.
//!
//! ```text
//! sector   0 ........................ 503   504 .. 507          508 .. 511
//!          part of the frame, zero-padded   frame + 1 (low 32)  CRC-32C bound to file and offset
//! frame    magic 4 | version 2 | zero 2 | frame number 8 | payload bytes 4 | CRC-32C 4 | payload
//! ```
//!
//! 1. An append is durable when it returns, and appends are one after the other: only the last
//!    frame can be torn.
//! 2. Nothing is assumed of writes but that a sector is written whole or not at all. So a torn
//!    frame has sectors that are all zero or beyond the end of the file, and its others are valid.
//!    Anything else is damage and an error; but opening turns a single flipped bit of a sector back
//!    in what it read, and leaves it for verification to report.
//! 3. Every sector carries the number of its frame: a gap with a later frame behind it was not
//!    torn, it is damage.
//! 4. A torn frame was never acknowledged. It is erased, durably, before anything is appended in
//!    its place, so that sectors of two attempts never mix. The last whole frame is written once
//!    more, because a sync that failed may have left it in the page cache alone, marked as clean.
//! 5. After an append that failed or panicked nothing is known of the file's end; the journal
//!    refuses further appends.
//! 6. Room is asked of the device before a frame is written, some frames' at a time, so that a
//!    device without room refuses an append before it begins: then nothing has changed, and the
//!    append may be made again. A last part is kept for appends that give room back, and for those
//!    without which nothing can be opened.
//!
//! Threads: a journal belongs to one thread at a time; its owner locks.
//! Long because: appending, opening and erasing are one contract over the frames of one file.

mod scan;

use crate::buffer::{Buffer, PAGE_BYTES};
use crate::context::FileKind;
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use scan::Scan;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::threads::catch_panic;
use thermocline_foundation::{Planted, planted, sync_site};

const MAGIC: u32 = u32::from_le_bytes(*b"TJNL");
const VERSION: u16 = 1;
const SECTOR_BYTES: usize = 512;
const BODY_BYTES: usize = SECTOR_BYTES - 8;
const PAGE_BODY_BYTES: usize = PAGE_BYTES / SECTOR_BYTES * BODY_BYTES;
const HEADER_BYTES: usize = 24;
/// Where the header's checksum lies; it covers the header before it and the payload.
const CHECKSUM_AT: usize = 20;
/// A read while looking for frames.
const CHUNK_BYTES: usize = 256 << 10;

/// Room that is kept for appends that give room back, and for openings, unless more is asked for.
pub const KEPT_BYTES: u64 = 4 * PAGE_BYTES as u64;
/// Room that is asked for at a time: a share of the journal.
const GROWTH_SHARE: u64 = 4;
const GROWTH_BYTES_MIN: u64 = 4 * PAGE_BYTES as u64;
const GROWTH_BYTES_MAX: u64 = 256 << 10;

/// What an append is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// It may be refused.
    #[default]
    Change,
    /// It takes no room where the journal lies, and something may leave that place once it is done.
    Overflow,
    /// It gives room back, or something that is done already is wrong without it.
    Release,
}

/// Bytes of the longest payload.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    file: Arc<File>,
    len_bytes: u64,
    /// Bytes for which the device keeps room.
    kept_bytes: u64,
    /// What is appended is what an opening needs.
    is_opening: bool,
    /// No more than this is kept ahead.
    room_bytes: u64,
    /// Of that, so much for appends that give room back.
    last_bytes: u64,
    /// The device had less room ahead than was asked for.
    is_tight: bool,
    frames: u64,
    failed: Option<Error>,
}

impl Journal {
    /// A journal in a new, empty file.
    pub fn create(file: Arc<File>) -> Result<Self> {
        if !file.is_empty()? {
            let text = format!("cannot begin a journal in {}: it is not empty", file.describe());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(Self::of(file, 0, 0, 0))
    }

    /// A journal of so many frames and bytes, in a file of `kept_bytes`.
    fn of(file: Arc<File>, len_bytes: u64, kept_bytes: u64, frames: u64) -> Self {
        let (is_opening, room_bytes, failed) = (false, u64::MAX, None);
        let last_bytes = KEPT_BYTES;
        Self {
            file,
            len_bytes,
            kept_bytes,
            is_opening,
            room_bytes,
            last_bytes,
            is_tight: false,
            frames,
            failed,
        }
    }

    /// Passes every payload to `visit` in order and makes the journal ready for appending: a torn
    /// last frame is erased. What was read is durable when this returns: frames that a killed
    /// process had written and not synced must not be acted upon (files deleted) and lost later.
    pub fn open(file: Arc<File>, visit: impl FnMut(&[u8]) -> Result<()>) -> Result<Self> {
        let end = Self::read_mended(&file, visit)?;
        // After the process was killed, or ended because a sync failed, the last frame may be in
        // the page cache alone. A frame appended behind it could then reach the device first, and a
        // power cut leave a gap.
        if !planted(Planted::LastFrameNotRewritten) {
            rewrite(&file, end.last_frame, end.len_bytes)?;
        }
        if end.torn && !planted(Planted::TornFrameNotErased) {
            sync_site("erased", || erase(&file, end.len_bytes))?;
        } else {
            sync_site("read", || file.sync())?;
        }
        let kept_bytes = file.len()?;
        Ok(Self { is_opening: true, ..Self::of(file, end.len_bytes, kept_bytes, end.frames) })
    }

    /// As [`Journal::open`], but changes nothing and refuses appends.
    pub fn open_read_only(file: Arc<File>, visit: impl FnMut(&[u8]) -> Result<()>) -> Result<Self> {
        let end = Self::read_mended(&file, visit)?;
        let failed = Some(Error::new(ErrorKind::Invalid, "it was opened for reading only"));
        let kept_bytes = file.len()?;
        Ok(Self { failed, ..Self::of(file, end.len_bytes, kept_bytes, end.frames) })
    }

    /// Passes every payload to `visit` in order and changes nothing.
    pub fn read(file: &File, visit: impl FnMut(&[u8]) -> Result<()>) -> Result<JournalEnd> {
        Scan::new(file)?.run(visit)
    }

    /// As [`Journal::read`], with single flipped bits turned back: nothing else can be read without
    /// a journal. Damage all the same, which [`Journal::reread`] reports.
    pub fn read_mended(file: &File, visit: impl FnMut(&[u8]) -> Result<()>) -> Result<JournalEnd> {
        Scan::mending(file)?.run(visit)
    }

    /// Passes every payload to `visit` again, and says so if frames that were appended are lost.
    pub fn reread(&self, visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let end = Self::read(&self.file, visit)?;
        if end.len_bytes < self.len_bytes {
            let why = format!("it ends here, but frames up to {} were appended", self.len_bytes);
            return Err(Error::corrupt(self.file.describe(), end.len_bytes, why));
        }
        Ok(())
    }

    /// Has the device keep room for a frame with a payload of so many bytes, so that the next
    /// append is not refused.
    ///
    /// Errors: `OutOfSpace` where it has none; nothing has changed.
    pub fn ask_for_room(&mut self, payload_bytes: usize, purpose: Purpose) -> Result<()> {
        self.check_failed()?;
        let end = self.len_bytes + frame_bytes(payload_bytes);
        let kept = match purpose {
            Purpose::Release => 0,
            _ if self.is_opening => 0,
            Purpose::Change => self.last_bytes,
            Purpose::Overflow => self.last_bytes / 2,
        };
        if end + kept <= self.kept_bytes {
            return Ok(());
        }
        let wanted =
            (end + self.last_bytes + growth_bytes(end)).next_multiple_of(PAGE_BYTES as u64);
        let wanted = wanted.min(self.room_bytes).max(end + kept);
        let is_bound = purpose != Purpose::Release && !self.is_opening;
        for bytes in [wanted, end + kept] {
            // A map may have the last page, for it lies nowhere else.
            let leaves_slack = is_bound && (bytes > end + kept || !self.is_map());
            let slack = leaves_slack.then(|| self.file.require_slack(bytes));
            match slack.unwrap_or(Ok(())).and_then(|()| self.file.allocate(bytes)) {
                Ok(()) => {
                    self.kept_bytes = bytes;
                    self.is_tight = bytes < wanted;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::OutOfSpace && bytes > end + kept => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Bytes of a file whose journal was begun with a payload of so many, and which keeps
    /// `last_bytes` for appends that give room back.
    pub fn begun_bytes(payload_bytes: usize, last_bytes: u64) -> u64 {
        let end = frame_bytes(payload_bytes);
        end + last_bytes + growth_bytes(end)
    }

    /// From now on no more than so many bytes are kept ahead: for a small tier.
    pub fn set_room_bytes(&mut self, bytes: u64) {
        self.room_bytes = bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    }

    /// Keeps so many bytes for appends that give room back.
    pub fn set_last_bytes(&mut self, bytes: u64) {
        self.last_bytes = bytes;
    }

    /// The device had less room ahead than was asked for, when it was last asked.
    pub fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// The opening has ended: from now on changes leave the room that is kept.
    pub fn opened(&mut self) {
        self.is_opening = false;
    }

    fn is_map(&self) -> bool {
        self.file.kind() == FileKind::Map
    }

    fn check_failed(&self) -> Result<()> {
        let Some(error) = &self.failed else { return Ok(()) };
        let text = format!("{} takes no more changes: {error}", self.file.describe());
        Err(Error::new(error.kind(), text))
    }

    /// Appends `payload` durably. Refused for want of room, it has changed nothing.
    pub fn append(&mut self, payload: &[u8]) -> Result<()> {
        self.append_for(payload, Purpose::Change)
    }

    /// As [`Journal::append`], for a purpose.
    pub fn append_for(&mut self, payload: &[u8], purpose: Purpose) -> Result<()> {
        self.check_failed()?;
        if payload.len() > PAYLOAD_BYTES_MAX {
            let text = format!(
                "cannot append {} bytes to {}: at most {PAYLOAD_BYTES_MAX} bytes go into one frame",
                payload.len(),
                self.file.describe()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.ask_for_room(payload.len(), purpose)?;
        let buffer = encode(&self.file, self.len_bytes, self.frames, payload);
        let frame_bytes = buffer.len() as u64;
        let unsynced = planted(Planted::JournalNotSynced);
        let appended = catch_panic(|| {
            let (_, written) = self.file.write(self.len_bytes, buffer);
            written.and_then(|()| if unsynced { Ok(()) } else { self.file.sync() })
        });
        let appended = appended.unwrap_or_else(|panic| {
            let text = format!("a change panicked, reopen the database: {panic}");
            self.failed = Some(Error::new(ErrorKind::Io, text));
            panic.resume()
        });
        if let Err(error) = appended {
            if planted(Planted::FailedAppendForgotten) {
                self.len_bytes += frame_bytes;
                self.frames += 1;
                return Err(error);
            }
            // Not as for want of room: it has begun.
            let kind = error.kind().after_writing();
            let text = format!("a change failed, reopen the database: {error}");
            self.failed = Some(Error::new(kind, text));
            return Err(Error::new(kind, error.to_string()));
        }
        self.len_bytes += frame_bytes;
        self.frames += 1;
        Ok(())
    }

    /// Bytes of all frames.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes of the file: frames, and room that the device keeps for more.
    pub fn file_bytes(&self) -> u64 {
        self.kept_bytes.max(self.len_bytes)
    }

    /// How far it goes.
    pub fn extent(&self) -> Extent {
        Extent { number: self.file.number().0, bytes: self.len_bytes }
    }

    /// How many frames there are.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The file underneath.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

/// How far a journal goes. Journals of a kind are numbered upwards and each only grows, so the
/// later of two extents is the larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extent {
    /// The journal's file number.
    pub number: u64,
    /// Bytes of it that hold frames.
    pub bytes: u64,
}

/// What [`Journal::read`] found at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEnd {
    /// Whole frames.
    pub frames: u64,
    /// Their bytes.
    pub len_bytes: u64,
    /// Where the last of them begins.
    pub last_frame: u64,
    /// Sectors of a frame that was never acknowledged follow.
    pub torn: bool,
}

/// What the sectors of a frame carry of its number; one more, so that no sector of the first frame
/// is all zero.
fn mark(frame: u64) -> u32 {
    frame.wrapping_add(1) as u32
}

/// What is asked for at a time of a journal that is so long.
fn growth_bytes(len_bytes: u64) -> u64 {
    let share = len_bytes / GROWTH_SHARE;
    share.clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX).next_multiple_of(PAGE_BYTES as u64)
}

/// Bytes of a frame with a payload of so many.
fn frame_bytes(payload_bytes: usize) -> u64 {
    ((HEADER_BYTES + payload_bytes).div_ceil(PAGE_BODY_BYTES) * PAGE_BYTES) as u64
}

/// The pages of a frame.
fn encode(file: &File, offset: u64, frame: u64, payload: &[u8]) -> Buffer {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..6].copy_from_slice(&VERSION.to_le_bytes());
    header[8..16].copy_from_slice(&frame.to_le_bytes());
    header[16..20].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = checksum_parts(&file.place(offset), &[&header[..CHECKSUM_AT], payload]);
    header[CHECKSUM_AT..].copy_from_slice(&crc.to_le_bytes());

    let mut buffer = Buffer::zeroed(frame_bytes(payload.len()) as usize);
    let (first, rest) = payload.split_at(payload.len().min(BODY_BYTES - HEADER_BYTES));
    buffer[..HEADER_BYTES].copy_from_slice(&header);
    buffer[HEADER_BYTES..HEADER_BYTES + first.len()].copy_from_slice(first);
    for (sector, body) in buffer.chunks_mut(SECTOR_BYTES).skip(1).zip(rest.chunks(BODY_BYTES)) {
        sector[..body.len()].copy_from_slice(body);
    }
    for (index, sector) in buffer.chunks_mut(SECTOR_BYTES).enumerate() {
        sector[BODY_BYTES..BODY_BYTES + 4].copy_from_slice(&mark(frame).to_le_bytes());
        let place = file.place(offset + (index * SECTOR_BYTES) as u64);
        let crc = checksum(&place, &sector[..BODY_BYTES + 4]);
        sector[BODY_BYTES + 4..].copy_from_slice(&crc.to_le_bytes());
    }
    buffer
}

/// Writes the same bytes once more. After a failed sync the system may take pages for clean that
/// never reached the device; the next sync covers them only if they are written again.
fn rewrite(file: &File, from: u64, to: u64) -> Result<()> {
    let mut at = from;
    while at < to {
        let len = (to - at).min(CHUNK_BYTES as u64);
        file.write(at, file.read(at, len as usize)?).1?;
        at += len;
    }
    Ok(())
}

/// Zeroes the file from `offset` to its end, durably.
fn erase(file: &File, offset: u64) -> Result<()> {
    let end = file.len()?.next_multiple_of(PAGE_BYTES as u64);
    let mut at = offset;
    while at < end {
        let len = (end - at).min(CHUNK_BYTES as u64);
        file.write(at, Buffer::zeroed(len as usize)).1?;
        at += len;
    }
    file.sync()
}
