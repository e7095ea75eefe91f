//! Runs: changes of many lines that happen all together or not at all.
//!
//! ```text
//! journal   crc 4 | lines 4 | run number 8 | zero 48 | for each line: place 8, bytes 64
//! ```
//! 1. What a run adds (objects, nodes) is durable first. Then the journal gets the new bytes of all
//!    lines that the run changes, and a fence. That is the moment of the run.
//! 2. Then the lines are changed in their places; a fence; then the word with the number of the
//!    last applied run.
//! 3. Opening applies the run in the journal if it is whole and its number is higher than that
//!    word. What the run freed is reused only after the word is durable.
//! 4. A journal that is not whole belongs to a run that never happened, or to one that was applied.
//!
//! Threads: the only writer of the tree, and the opening.

use crate::layout::{APPLIED_AT, Geometry, JOURNAL_AT, LINE_BYTES, Owner, damaged};
use crate::persist::Medium;
use std::collections::BTreeMap;
use thermocline_device::Result;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::coding::{DecodeError, Decoder};

const LINE: usize = LINE_BYTES as usize;
const RECORD_BYTES: usize = 8 + LINE;

/// The bytes of a line.
pub type Line = [u8; LINE];

/// The lines that a run changes, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Higher than that of every run before.
    pub number: u64,
    /// Their new bytes.
    pub lines: BTreeMap<u64, Line>,
}

/// Lines that a journal of `bytes` has room for.
pub fn lines_max(bytes: u64) -> usize {
    (bytes as usize).saturating_sub(LINE) / RECORD_BYTES
}

/// Bytes of a journal of so many lines.
pub fn encoded_bytes(lines: usize) -> usize {
    LINE + lines * RECORD_BYTES
}

impl Run {
    /// The journal's bytes.
    pub fn encode(&self, owner: &Owner) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(encoded_bytes(self.lines.len()));
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(self.lines.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.resize(LINE, 0);
        for (at, line) in &self.lines {
            bytes.extend_from_slice(&at.to_le_bytes());
            bytes.extend_from_slice(line);
        }
        let sum = checksum(&owner.at(JOURNAL_AT), &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The run at the start of `bytes`; none where none is whole.
    pub fn decode(bytes: &[u8], owner: &Owner) -> Option<Self> {
        let (count, number) = header(bytes).ok()?;
        let end = LINE.checked_add(count.checked_mul(RECORD_BYTES)?)?;
        let stored = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        let covered = bytes.get(4..end)?;
        if stored != checksum(&owner.at(JOURNAL_AT), covered) || number == 0 {
            return None;
        }
        let mut lines = BTreeMap::new();
        for record in bytes[LINE..end].chunks_exact(RECORD_BYTES) {
            let (at, line) = record.split_first_chunk()?;
            lines.insert(u64::from_le_bytes(*at), line.try_into().ok()?);
        }
        (lines.len() == count).then_some(Self { number, lines })
    }

    /// Makes the run durable. What its lines name is durable already.
    pub fn record(&self, medium: &Medium, owner: &Owner) {
        medium.write(JOURNAL_AT, &self.encode(owner));
        medium.fence();
    }

    /// Says that all lines of the run are durable in their places. The caller fences.
    pub fn count(&self, medium: &Medium) {
        medium.store(APPLIED_AT, self.number);
        medium.flush(APPLIED_AT, 8);
    }
}

fn header(bytes: &[u8]) -> Result<(usize, u64), DecodeError> {
    let mut decoder = Decoder::new(bytes);
    decoder.u32()?;
    Ok((decoder.u32()? as usize, decoder.u64()?))
}

/// The run in the journal; none where none is whole.
pub fn recorded(medium: &Medium, owner: &Owner, geometry: &Geometry) -> Option<Run> {
    let mut first = [0; LINE];
    medium.read(JOURNAL_AT, &mut first);
    let (count, _) = header(&first).ok()?;
    if count > lines_max(geometry.journal_bytes) {
        return None;
    }
    Run::decode(&medium.bytes_at(JOURNAL_AT, encoded_bytes(count)), owner)
}

/// Applies the run in the journal, if it may not have been.
pub fn recover(medium: &Medium, owner: &Owner, geometry: &Geometry) -> Result<()> {
    let Some(run) = recorded(medium, owner, geometry) else {
        return Ok(());
    };
    if run.number <= medium.load(APPLIED_AT) {
        return Ok(());
    }
    for (at, line) in &run.lines {
        if !at.is_multiple_of(LINE_BYTES) || !medium.holds(*at, LINE_BYTES) {
            return Err(damaged(JOURNAL_AT, "a run changes a line outside of the region"));
        }
        medium.write(*at, line);
    }
    medium.fence();
    run.count(medium);
    medium.fence();
    Ok(())
}

/// The number of the next run: higher than all that a journal or the applied run's word may know.
pub fn next_number(medium: &Medium, owner: &Owner, geometry: &Geometry) -> u64 {
    let recorded = recorded(medium, owner, geometry).map_or(0, |run| run.number);
    recorded.max(medium.load(APPLIED_AT)).saturating_add(1)
}
