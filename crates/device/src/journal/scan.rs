//! Walks the frames of a journal; see `journal.rs`.

use super::{
    BODY_BYTES, CHECKSUM_AT, CHUNK_BYTES, HEADER_BYTES, JournalEnd, MAGIC, PAGE_BODY_BYTES,
    PAYLOAD_BYTES_MAX, SECTOR_BYTES, VERSION, mark,
};
use crate::buffer::{Buffer, PAGE_BYTES};
use crate::error::{Error, ErrorKind, Result};
use crate::file::File;
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::coding::{DecodeError, Decoder, is_zero};
use thermocline_foundation::mend::mend;

/// A sector, as a reader finds it.
enum Sector<'a> {
    /// Its checksum is right.
    Valid { body: &'a [u8], mark: u32 },
    /// All zero or beyond the end of the file.
    NotWritten,
    /// Anything else.
    Damaged,
}

/// Makes a sector whole of which one bit was flipped; leaves any other as it is.
fn mend_sector(file: &File, offset: u64, sector: &mut [u8]) {
    if is_zero(sector) {
        return;
    }
    if sector.iter().map(|byte| byte.count_ones()).sum::<u32>() == 1 {
        // No sector that was written has so few.
        tracing::error!(file = %file.describe(), offset, "a bit of an unwritten sector flipped");
        sector.fill(0);
        return;
    }
    let place = file.place(offset);
    let (covered, crc) = sector.split_at_mut(BODY_BYTES + 4);
    let stored = u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]);
    if checksum(&place, covered) != stored && mend(&place, covered, stored) {
        tracing::error!(file = %file.describe(), offset, "a bit of a journal's sector flipped");
        crc.copy_from_slice(&checksum(&place, covered).to_le_bytes());
    }
}

/// Walks a journal from its start, a chunk of pages at a time.
pub(super) struct Scan<'a> {
    file: &'a File,
    file_len: u64,
    chunk: Buffer,
    chunk_at: u64,
    /// Single flipped bits are turned back in what was read.
    mends: bool,
}

/// A frame, or why there is none.
enum Found {
    Frame { pages: u64 },
    Gap,
}

impl<'a> Scan<'a> {
    pub fn new(file: &'a File) -> Result<Self> {
        let file_len = file.len()?;
        Ok(Self { file, file_len, chunk: Buffer::default(), chunk_at: 0, mends: false })
    }

    /// As [`Scan::new`], with single flipped bits turned back in what is read.
    pub fn mending(file: &'a File) -> Result<Self> {
        Ok(Self { mends: true, ..Self::new(file)? })
    }

    pub fn run(mut self, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<JournalEnd> {
        let mut end = JournalEnd { frames: 0, len_bytes: 0, last_frame: 0, torn: false };
        let mut payload = Vec::new();
        while end.len_bytes < self.file_len {
            match self.frame(end.len_bytes, end.frames, &mut payload)? {
                Found::Frame { pages } => {
                    visit(&payload)?;
                    end.frames += 1;
                    end.last_frame = end.len_bytes;
                    end.len_bytes += pages * PAGE_BYTES as u64;
                }
                Found::Gap => {
                    end.torn = self.is_torn(end.len_bytes, end.frames)?;
                    break;
                }
            }
        }
        Ok(end)
    }

    /// Reads the frame `number` at `offset` into `payload`.
    fn frame(&mut self, offset: u64, number: u64, payload: &mut Vec<u8>) -> Result<Found> {
        payload.clear();
        let mut header = [0; HEADER_BYTES];
        match self.sector(offset)? {
            Sector::Valid { body, .. } => {
                header.copy_from_slice(&body[..HEADER_BYTES]);
                payload.extend_from_slice(&body[HEADER_BYTES..]);
            }
            Sector::NotWritten => return Ok(Found::Gap),
            Sector::Damaged => return Err(self.damage(offset, "a sector's checksum is wrong")),
        }
        let (len, expected_crc) = self.parse(offset, number, &header)?;
        let pages = (HEADER_BYTES + len).div_ceil(PAGE_BODY_BYTES) as u64;
        let sectors = pages * (PAGE_BYTES / SECTOR_BYTES) as u64;
        let mut gap = false;
        for index in 1..sectors {
            let at = offset + index * SECTOR_BYTES as u64;
            match self.sector(at)? {
                Sector::Valid { body, mark: found } if found == mark(number) => {
                    payload.extend_from_slice(body);
                }
                Sector::NotWritten => {
                    gap = true;
                    if at >= self.file_len {
                        break;
                    }
                }
                Sector::Valid { .. } => return Err(self.damage(at, "a sector of another frame")),
                Sector::Damaged => return Err(self.damage(at, "a sector's checksum is wrong")),
            }
        }
        if gap {
            return Ok(Found::Gap);
        }
        payload.truncate(len);
        let place = self.file.place(offset);
        if checksum_parts(&place, &[&header[..CHECKSUM_AT], payload]) != expected_crc {
            return Err(self.damage(offset, "a frame's checksum is wrong"));
        }
        Ok(Found::Frame { pages })
    }

    /// Payload length and checksum of a frame's header.
    fn parse(&self, offset: u64, number: u64, header: &[u8]) -> Result<(usize, u32)> {
        let fields = |header| -> Result<_, DecodeError> {
            let mut decoder = Decoder::new(header);
            let (magic, version, _zero) = (decoder.u32()?, decoder.u16()?, decoder.u16()?);
            Ok((magic, version, decoder.u64()?, decoder.u32()?, decoder.u32()?))
        };
        let (magic, version, frame, len, crc) =
            fields(header).map_err(|error| self.damage(offset, error))?;
        if magic != MAGIC {
            return Err(self.damage(offset, "no frame begins here"));
        }
        if version > VERSION {
            let file = self.file.describe();
            let text = format!(
                "{file} has journal version {version}, this software knows {VERSION}: upgrade"
            );
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        if frame != number || len as usize > PAYLOAD_BYTES_MAX {
            let why = format!("frame {frame} of {len} bytes where frame {number} belongs");
            return Err(self.damage(offset, why));
        }
        Ok((len as usize, crc))
    }

    /// Looks behind a gap in frame `number` at `offset`: torn if only sectors of that frame follow,
    /// damage if a later frame does. False where nothing at all follows.
    fn is_torn(&mut self, offset: u64, number: u64) -> Result<bool> {
        let mut torn = false;
        // Most of a journal is reserved and was never written.
        let mut at = self.after_zeros(offset)?;
        while at < self.file_len {
            match self.sector(at)? {
                Sector::NotWritten => {}
                Sector::Valid { mark: found, .. } if found == mark(number) => torn = true,
                Sector::Valid { .. } => {
                    let why = format!("frame {number} has a gap, yet another follows at {at}");
                    return Err(self.damage(offset, why));
                }
                Sector::Damaged => return Err(self.damage(at, "a sector's checksum is wrong")),
            }
            at += SECTOR_BYTES as u64;
            if at >= self.chunk_at + self.chunk.len() as u64 {
                at = self.after_zeros(at)?;
            }
        }
        Ok(torn)
    }

    /// The first offset, from `offset` on, of which the rest of a chunk is not all zero.
    fn after_zeros(&mut self, mut offset: u64) -> Result<u64> {
        while offset < self.file_len {
            self.read_chunk(offset)?;
            let rest = &self.chunk[(offset - self.chunk_at) as usize..];
            if rest.is_empty() || !is_zero(rest) {
                break;
            }
            offset += rest.len() as u64;
        }
        Ok(offset)
    }

    /// Reads the chunk at `offset`, unless it is part of the last one.
    fn read_chunk(&mut self, offset: u64) -> Result<()> {
        let chunk_end = self.chunk_at + self.chunk.len() as u64;
        if offset < self.chunk_at || offset >= chunk_end {
            self.chunk = self.file.read_up_to(offset, CHUNK_BYTES)?;
            self.chunk_at = offset;
        }
        Ok(())
    }

    /// The sector at `offset`, a multiple of the sector size.
    fn sector(&mut self, offset: u64) -> Result<Sector<'_>> {
        if offset >= self.file_len {
            return Ok(Sector::NotWritten);
        }
        self.read_chunk(offset)?;
        let start = ((offset - self.chunk_at) as usize).min(self.chunk.len());
        let end = (start + SECTOR_BYTES).min(self.chunk.len());
        if self.mends && end - start == SECTOR_BYTES {
            mend_sector(self.file, offset, &mut self.chunk[start..end]);
        }
        let bytes = &self.chunk[start..end];
        if is_zero(bytes) {
            return Ok(Sector::NotWritten);
        }
        if bytes.len() < SECTOR_BYTES {
            return Ok(Sector::Damaged);
        }
        let (covered, crc) = bytes.split_at(BODY_BYTES + 4);
        if checksum(&self.file.place(offset), covered).to_le_bytes() != crc {
            return Ok(Sector::Damaged);
        }
        let (body, rest) = covered.split_at(BODY_BYTES);
        let mark = Decoder::new(rest).u32().map_err(|error| self.damage(offset, error))?;
        Ok(Sector::Valid { body, mark })
    }

    fn damage(&self, offset: u64, why: impl std::fmt::Display) -> Error {
        let why = format!("{why}; restore from a checkpoint");
        Error::corrupt(self.file.describe(), offset, why)
    }
}
