//! The manifest: which tables are live, at which level, and from which log on records are only in
//! memory.
//!
//! A journal of [`Edit`]s; its first frame is an edit that makes the whole state. Appending a frame
//! is durable and atomic, so a flush or compaction takes effect as a whole. When the journal has
//! outgrown its state many times it is written afresh to a new file: the new file is published,
//! then the old one deleted, and at open the newest published manifest is the one. After a clean
//! close it is held to how far it went then. See `docs/formats/manifest.md`.
//!
//! ```text
//!   frame payload = version u8 = 1 | item*      item: tag u8 | length varint | body
//! ```
//! Tags from 128 up may be skipped by a reader that does not know them; an unknown tag below needs
//! a newer version.

use crate::error::{Error, ErrorKind, Result};
use crate::shared::delete_or_leave;
use crate::shared::totals::Totals;
use crate::table_set::table::TableMeta;
use std::sync::Arc;
use thermocline_device::journal::KEPT_BYTES;
use thermocline_device::{
    Error as DeviceError, ErrorKind as DeviceErrorKind, Extent, File, FileContext, FileKind,
    Journal, Origin, Purpose, TierIndex, TieredFiles,
};
use thermocline_foundation::coding::{DecodeError, Decoder, put_bytes, put_varint};
use thermocline_foundation::{FileNumber, Sequence, sync_site};
use thermocline_slab::{LiveError, LiveSlots, SlabChange};

const VERSION: u8 = 1;
const TAG_ADD: u8 = 1;
const TAG_REMOVE: u8 = 2;
const TAG_LOG_FLOOR: u8 = 3;
const TAG_LAST_SEQUENCE: u8 = 4;
const TAG_SLAB: u8 = 5;
const TAG_LIVE_SLOTS: u8 = 6;
const TAG_TOTALS: u8 = 128;
const TAG_DURABLE_SEQUENCE: u8 = 129;
const TAG_OLDER_VERSIONS: u8 = 130;

/// Journal bytes below which no fresh manifest is worth writing.
const REWRITE_BYTES_MIN: u64 = 4 << 20;

/// How many times its state the journal may be long, and where it is kept short.
const REWRITE_FACTOR: u64 = 8;
const REWRITE_FACTOR_SHORT: u64 = 2;

/// What a manifest has beyond the length at which it is written afresh: the edit that makes it so
/// long, and the room that it keeps.
const AHEAD_BYTES: u64 = 2 * KEPT_BYTES;

/// What an edit has at most of counts and sequences, which it gets once it is not refused any more.
const LATE_BYTES: usize = 2048;

/// A change of the table set, atomic as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub added: Vec<(u8, TableMeta)>,
    pub removed: Vec<(u8, FileNumber)>,
    /// Logs with smaller numbers hold nothing that is not in tables.
    pub log_floor: Option<FileNumber>,
    /// No record in tables has a larger sequence.
    pub last_sequence: Option<Sequence>,
    /// Slots that are live from now on, or no longer.
    pub slabs: Vec<SlabChange>,
    /// All live slots, where the edit makes a whole state, or none are left at once.
    pub live_slots: Option<LiveSlots>,
    /// What was counted so far.
    pub totals: Option<Totals>,
    /// All records up to this sequence were durable, in tables or logs: if fewer are found, a log
    /// has lost its end.
    pub durable_sequence: Option<Sequence>,
    /// At most so many live slots hold a version that is not the newest of its key in slots. Every
    /// edit that changes slots says it; one that does not leaves it unknown.
    pub older_versions: Option<u64>,
}

impl Edit {
    /// The edit that makes a whole state out of nothing: one with these `tables`, by level.
    pub fn of_state(
        tables: Vec<(u8, TableMeta)>,
        live: &LiveSlots,
        log_floor: FileNumber,
        last_sequence: Sequence,
    ) -> Self {
        Self {
            added: tables,
            live_slots: (!live.is_empty()).then(|| live.clone()),
            log_floor: Some(log_floor),
            last_sequence: Some(last_sequence),
            ..Self::default()
        }
    }

    /// Tables that the edit takes out: those that it does not add again, to another level.
    pub fn gone(&self) -> impl Iterator<Item = (u8, FileNumber)> + '_ {
        let kept = |number| self.added.iter().any(|(_, meta)| meta.number == number);
        self.removed.iter().copied().filter(move |(_, number)| !kept(*number))
    }

    /// The payload of a frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        let mut body = Vec::new();
        let mut item = |tag: u8, fill: &mut dyn FnMut(&mut Vec<u8>)| {
            body.clear();
            fill(&mut body);
            out.push(tag);
            put_bytes(&mut out, &body);
        };
        for (level, number) in &self.removed {
            item(TAG_REMOVE, &mut |body| {
                body.push(*level);
                put_varint(body, number.0);
            });
        }
        for (level, meta) in &self.added {
            item(TAG_ADD, &mut |body| {
                body.push(*level);
                encode_meta(body, meta);
            });
        }
        if let Some(number) = self.log_floor {
            item(TAG_LOG_FLOOR, &mut |body| put_varint(body, number.0));
        }
        if let Some(sequence) = self.last_sequence {
            item(TAG_LAST_SEQUENCE, &mut |body| put_varint(body, sequence.0));
        }
        for change in &self.slabs {
            item(TAG_SLAB, &mut |body| change.encode(body));
        }
        if let Some(live) = &self.live_slots {
            item(TAG_LIVE_SLOTS, &mut |body| live.encode(body));
        }
        if let Some(totals) = &self.totals {
            item(TAG_TOTALS, &mut |body| totals.encode(body));
        }
        if let Some(sequence) = self.durable_sequence {
            item(TAG_DURABLE_SEQUENCE, &mut |body| put_varint(body, sequence.0));
        }
        if let Some(count) = self.older_versions {
            item(TAG_OLDER_VERSIONS, &mut |body| put_varint(body, count));
        }
        out
    }

    /// Reads a frame's payload.
    pub fn decode(payload: &[u8]) -> Result<Self> {
        let mut decoder = Decoder::new(payload);
        match decoder.u8() {
            Ok(VERSION) => {}
            Ok(version) if version > VERSION => return Err(newer(&format!("version {version}"))),
            _ => return Err(Error::corrupt("a manifest edit has no version")),
        }
        let mut edit = Self::default();
        while !decoder.is_empty() {
            let (tag, body) = (|| Ok((decoder.u8()?, decoder.bytes()?)))().map_err(damaged)?;
            edit.take(tag, Decoder::new(body))?;
        }
        Ok(edit)
    }

    fn take(&mut self, tag: u8, mut body: Decoder<'_>) -> Result<()> {
        match tag {
            TAG_ADD => {
                let level = body.u8().map_err(damaged)?;
                self.added.push((level, decode_meta(&mut body).map_err(damaged)?));
            }
            TAG_REMOVE => {
                let level = body.u8().map_err(damaged)?;
                self.removed.push((level, FileNumber(body.varint().map_err(damaged)?)));
            }
            TAG_LOG_FLOOR => {
                self.log_floor = Some(FileNumber(body.varint().map_err(damaged)?));
            }
            TAG_LAST_SEQUENCE => {
                self.last_sequence = Some(Sequence(body.varint().map_err(damaged)?));
            }
            TAG_SLAB => self.slabs.push(SlabChange::decode(&mut body).map_err(broken_slots)?),
            TAG_LIVE_SLOTS => {
                self.live_slots = Some(LiveSlots::decode(&mut body).map_err(broken_slots)?);
            }
            TAG_TOTALS => self.totals = Some(Totals::decode(body).map_err(damaged)?),
            TAG_DURABLE_SEQUENCE => {
                self.durable_sequence = Some(Sequence(body.varint().map_err(damaged)?));
            }
            TAG_OLDER_VERSIONS => {
                self.older_versions = Some(body.varint().map_err(damaged)?);
            }
            _ if tag > TAG_OLDER_VERSIONS => {}
            _ => return Err(newer(&format!("item {tag}"))),
        }
        Ok(())
    }
}

fn encode_meta(out: &mut Vec<u8>, meta: &TableMeta) {
    let (smallest, largest) = (meta.smallest_sequence.0, meta.largest_sequence.0);
    for number in [meta.number.0, meta.bytes, meta.entries, meta.deletes, smallest, largest] {
        put_varint(out, number);
    }
    put_varint(out, meta.ingested_at.map_or(0, |sequence| sequence.0));
    put_bytes(out, &meta.smallest_key);
    put_bytes(out, &meta.largest_key);
    // Left out where there are none: then the item is as it was before there was the count.
    if meta.older_versions > 0 {
        put_varint(out, meta.older_versions);
    }
}

fn decode_meta(body: &mut Decoder<'_>) -> Result<TableMeta, DecodeError> {
    Ok(TableMeta {
        number: FileNumber(body.varint()?),
        bytes: body.varint()?,
        entries: body.varint()?,
        deletes: body.varint()?,
        smallest_sequence: Sequence(body.varint()?),
        largest_sequence: Sequence(body.varint()?),
        ingested_at: Some(Sequence(body.varint()?)).filter(|sequence| *sequence != Sequence::ZERO),
        smallest_key: body.bytes()?.to_vec(),
        largest_key: body.bytes()?.to_vec(),
        older_versions: if body.is_empty() { 0 } else { body.varint()? },
    })
}

fn newer(what: &str) -> Error {
    Error::new(
        ErrorKind::NewerFormat,
        format!(
            "the manifest has {what}, which a newer release wrote; upgrade to open this database"
        ),
    )
}

/// The error for slots that no slab can have.
pub(crate) fn broken_slots(error: LiveError) -> Error {
    Error::corrupt(format!("the live slots of the manifest are malformed: {error}"))
}

fn damaged(error: DecodeError) -> Error {
    Error::corrupt(format!("a manifest edit is malformed: {error}"))
}

/// The open manifest. The holder of the tables' lock owns it.
#[derive(Debug)]
pub(crate) struct Manifest {
    files: Arc<TieredFiles>,
    journal: Journal,
    number: FileNumber,
    rewrite_bytes: u64,
    rewrite_bytes_min: u64,
    rewrite_factor: u64,
    room_bytes: u64,
    /// What it may come to counts on its tier.
    is_short: bool,
    /// The one before, where the file map had no room to forget it.
    old: Option<FileNumber>,
}

impl Manifest {
    /// Writes a new manifest whose first frame is `state`, and makes it the one.
    pub fn create(files: &Arc<TieredFiles>, state: &Edit, origin: Origin) -> Result<Self> {
        Self::create_within(files, state, origin, u64::MAX)
    }

    /// As [`Manifest::create`], on a tier that has room for all that it may come to, where that is
    /// more than `room_bytes`.
    fn create_within(
        files: &Arc<TieredFiles>,
        state: &Edit,
        origin: Origin,
        room_bytes: u64,
    ) -> Result<Self> {
        let payload = state.encode();
        let context = FileContext { kind: FileKind::Manifest, origin };
        let begin = |file: &Arc<File>| Self::journal_in(file, &payload);
        let begun_bytes = Journal::begun_bytes(payload.len(), KEPT_BYTES);
        let all_bytes = REWRITE_FACTOR_SHORT * payload.len() as u64 + AHEAD_BYTES;
        let bytes = if all_bytes > room_bytes { all_bytes.max(begun_bytes) } else { begun_bytes };
        let (_, journal) = files.create_begun(context, bytes, begin)?;
        let manifest = Self::of(files, journal);
        let published = files.publish(&[manifest.number]);
        published.inspect_err(|_| delete_or_leave(files, &[manifest.number]))?;
        Ok(manifest)
    }

    /// As [`Manifest::create`], in memory: for files that are only read.
    pub fn in_memory(files: &Arc<TieredFiles>, state: &Edit) -> Result<Self> {
        let file = files.scratch_file(FileKind::Manifest)?;
        Ok(Self::of(files, Self::journal_in(&file, &state.encode())?))
    }

    /// A journal whose first frame has `payload`.
    fn journal_in(file: &Arc<File>, payload: &[u8]) -> Result<Journal, DeviceError> {
        let mut journal = Journal::create(Arc::clone(file))?;
        sync_site("manifest/new", || journal.append(payload))?;
        Ok(journal)
    }

    /// A journal that was begun.
    fn of(files: &Arc<TieredFiles>, journal: Journal) -> Self {
        let (files, number) = (Arc::clone(files), journal.file().number());
        let (rewrite_bytes_min, rewrite_factor) = (REWRITE_BYTES_MIN, REWRITE_FACTOR);
        let rewrite_bytes = rewrite_bytes_min.max(rewrite_factor * journal.len_bytes());
        let (room_bytes, is_short, old) = (u64::MAX, false, None);
        Self {
            files,
            journal,
            number,
            rewrite_bytes,
            rewrite_bytes_min,
            rewrite_factor,
            room_bytes,
            is_short,
            old,
        }
    }

    /// Reads the manifest `number`, giving each edit to `apply`.
    pub fn open(
        files: &Arc<TieredFiles>,
        number: FileNumber,
        mut apply: impl FnMut(Edit) -> Result<()>,
    ) -> Result<Self> {
        let file = files.open_file(number)?;
        let what = file.describe();
        let mut failure = None;
        let mut frames = 0;
        let visit = |payload: &[u8]| {
            frames += 1;
            let applied = Edit::decode(payload).and_then(&mut apply);
            applied.map_err(|error| {
                let text = format!("{what}, frame {frames}: {error}");
                failure = Some(Error::new(error.kind(), text.clone()));
                DeviceError::new(DeviceErrorKind::Corrupt, text)
            })
        };
        let opened = match files.is_read_only() {
            true => Journal::open_read_only(file, visit),
            false => sync_site("manifest", || Journal::open(file, visit)),
        };
        // The device layer knows fewer kinds of error than we do; the one we kept says more.
        let journal = opened.map_err(|error| failure.unwrap_or_else(|| error.into()))?;
        if frames == 0 {
            return Err(Error::corrupt(format!(
                "{what} is empty; it was published with a first frame"
            )));
        }
        files.check_extent(FileKind::Manifest, &journal)?;
        Ok(Self { rewrite_bytes: REWRITE_BYTES_MIN, ..Self::of(files, journal) })
    }

    /// A fresh manifest is written once the journal has half of so many bytes, and twice its state.
    /// The other half is for the edit that makes it so long.
    pub fn keep_short(&mut self, bytes: u64) {
        self.journal.set_room_bytes(bytes);
        self.room_bytes = bytes;
        self.is_short = true;
        self.rewrite_bytes_min = (bytes / 2).min(REWRITE_BYTES_MIN);
        self.rewrite_bytes = self.rewrite_bytes_min;
        self.rewrite_factor = REWRITE_FACTOR_SHORT;
        self.announce();
    }

    /// Has what it may come to count on its tier.
    fn announce(&self) {
        if self.is_short {
            let bytes = self.room_bytes.max(self.rewrite_bytes + AHEAD_BYTES);
            self.files.announce_bytes(self.number, bytes);
        }
    }

    /// See [`Journal::opened`].
    pub fn opened(&mut self) {
        self.journal.opened();
    }

    /// How far it goes.
    pub fn extent(&self) -> Extent {
        self.journal.extent()
    }

    /// Its file.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Reads everything again and reports what is wrong with it.
    pub fn verify(&self) -> Result<()> {
        Ok(self.journal.reread(|payload| {
            Edit::decode(payload).map(drop).map_err(|error| {
                let text = format!("{}: {error}", self.journal.file().describe());
                DeviceError::new(DeviceErrorKind::Corrupt, text)
            })
        })?)
    }

    /// Has the device keep room for `edit` and what it gets later.
    ///
    /// Errors: `OutOfSpace` where there is none; nothing has changed.
    pub fn ask_for_room(&mut self, edit: &Edit, purpose: Purpose) -> Result<()> {
        Ok(self.journal.ask_for_room(edit.encode().len() + LATE_BYTES, purpose)?)
    }

    /// Makes `edit` durable, for which room was asked. `state` is asked for the whole state after
    /// it when a fresh manifest is due.
    pub fn commit(&mut self, edit: &Edit, state: impl FnOnce() -> Edit) -> Result<()> {
        let payload = edit.encode();
        sync_site("manifest/edit", || self.journal.append_for(&payload, Purpose::Release))?;
        if self.journal.len_bytes() <= self.rewrite_bytes {
            return Ok(());
        }
        match self.write_afresh(&state()) {
            // The edit is durable in the old one, which grows until there is room for another.
            Err(error) if error.is_refusal() => {
                tracing::warn!(%error, "the manifest is not written afresh for now");
                let len_bytes = self.journal.len_bytes();
                self.rewrite_bytes = len_bytes + len_bytes / REWRITE_FACTOR;
                Ok(())
            }
            written => written,
        }
    }

    /// Makes a new manifest that begins with `state` the one. A refusal has changed nothing.
    pub fn write_afresh(&mut self, state: &Edit) -> Result<()> {
        self.forget_old()?;
        let room_bytes = self.room_bytes;
        let mut fresh = Self::create_within(&self.files, state, Origin::Foreground, room_bytes)?;
        fresh.rewrite_bytes_min = self.rewrite_bytes_min;
        fresh.rewrite_factor = self.rewrite_factor;
        fresh.room_bytes = self.room_bytes;
        fresh.is_short = self.is_short;
        fresh.journal.set_room_bytes(self.room_bytes);
        let state_bytes = fresh.journal.len_bytes();
        fresh.rewrite_bytes = fresh.rewrite_bytes_min.max(fresh.rewrite_factor * state_bytes);
        let old = std::mem::replace(self, fresh).number;
        self.old = Some(old);
        // Before the old one gives its room back, which others would take.
        self.announce();
        self.forget_old()
    }

    /// Where it lies.
    pub fn tier(&self) -> TierIndex {
        self.journal.file().tier()
    }

    /// Deletes the manifest before. Where the map has no room to forget it, it does no harm: the
    /// newest is the one.
    fn forget_old(&mut self) -> Result<()> {
        let Some(old) = self.old.take() else { return Ok(()) };
        match self.files.delete_files(&[old]) {
            Err(error) if error.kind() == DeviceErrorKind::OutOfSpace => {
                tracing::warn!(%error, "an old manifest stays for now");
                self.old = Some(old);
                Ok(())
            }
            deleted => Ok(deleted?),
        }
    }
}

#[cfg(test)]
mod tests;
