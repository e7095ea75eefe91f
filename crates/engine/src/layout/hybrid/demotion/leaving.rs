//! The records that leave the fast tier in a demotion, as a source of its merge.
//!
//! They are read from their slots many at a time, and unpacked one by one: what a slot has may be a
//! small part of its value.

use crate::error::Result;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::records::lookup::trailer_of;
use crate::layout::hybrid::records::packing::Stored;
use crate::merge::{RecordSource, Target};
use crate::settings::Settings;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_index::Entry;
use thermocline_table::Trailer;

/// Bytes of records that a merge reads from slots at a time: a share of the memory budget, within
/// bounds. Neighbours lie apart, a page for each batch that once wrote some of them; so the more
/// records are read together, the more of them share a page, or a read.
const READ_SHARE: u64 = 64;
const READ_BYTES_MIN: u64 = 512 << 10;
const READ_BYTES_MAX: u64 = 8 << 20;
/// And how many records: tiny ones have hardly more bytes than what is known of each besides.
const READ_RECORDS_MIN: u64 = 8192;
const RECORD_BYTES: u64 = 192;

/// Most bytes of records, and most records, that are read at a time.
fn run_of(settings: &Settings) -> (u64, u64) {
    let bytes = (settings.memory.0 / READ_SHARE).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
    (bytes, (bytes / RECORD_BYTES).max(READ_RECORDS_MIN))
}

/// Memory that a merge takes for `records` that leave slots, of so many bytes.
pub(crate) fn run_bytes(settings: &Settings, records: usize, bytes: u64) -> u64 {
    let (bytes_max, records_max) = run_of(settings);
    bytes.min(bytes_max) + RECORD_BYTES * records_max.min(records as u64)
}

/// Versions that leave, in merge order.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    keys: Vec<u8>,
    /// Where each one's key ends, and what the index said of it.
    records: Vec<(usize, usize, Entry)>,
}

impl Leaving {
    /// Versions of a key, the newest first.
    pub fn push(&mut self, key: &[u8], entries: impl Iterator<Item = Entry>) {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let end = self.keys.len();
        self.records.extend(entries.map(|entry| (start, end, entry)));
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn key(&self, at: usize) -> &[u8] {
        let (start, end, _) = self.records[at];
        &self.keys[start..end]
    }

    pub fn entry(&self, at: usize) -> &Entry {
        &self.records[at].2
    }

    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.records.iter().map(|(_, _, entry)| entry)
    }
}

/// The records that leave, as a source of a merge: those that a table has already are passed over.
#[derive(Debug)]
pub(crate) struct LeavingCursor {
    hybrid: Arc<Hybrid>,
    leaving: Arc<Leaving>,
    /// Most bytes and records of a run.
    run_max: (u64, u64),
    /// The next record to read.
    next: usize,
    /// What was read, as slots have it.
    run: Vec<(usize, Stored)>,
    at: usize,
    /// Of the record at hand.
    value: Bytes,
}

impl LeavingCursor {
    pub(crate) fn new(hybrid: &Arc<Hybrid>, leaving: &Arc<Leaving>) -> Self {
        let run_max = run_of(&hybrid.shared.settings);
        let (hybrid, leaving) = (Arc::clone(hybrid), Arc::clone(leaving));
        Self { hybrid, leaving, run_max, next: 0, run: Vec::new(), at: 0, value: Bytes::new() }
    }

    fn load(&mut self) -> Result<()> {
        self.run.clear();
        self.at = 0;
        let fast = &self.hybrid.fast;
        while self.run.is_empty() && self.next < self.leaving.len() {
            let (mut wanted, mut bytes) = (Vec::new(), 0);
            let (bytes_max, records_max) = self.run_max;
            while bytes < bytes_max
                && (wanted.len() as u64) < records_max
                && self.next < self.leaving.len()
            {
                let entry = *self.leaving.entry(self.next);
                if !entry.clean {
                    bytes += u64::from(entry.record_bytes);
                    wanted.push((self.next, entry));
                }
                self.next += 1;
            }
            let reads: Vec<_> =
                wanted.iter().map(|(at, entry)| (self.leaving.key(*at), *entry)).collect();
            let values = fast.fetch(&reads)?;
            let found =
                wanted.iter().zip(values).filter_map(|((at, _), value)| Some((*at, value?)));
            self.run.extend(found);
        }
        self.unpack()
    }

    /// Unpacks the value of the record at hand.
    fn unpack(&mut self) -> Result<()> {
        let fast = &self.hybrid.fast;
        self.value = match self.run.get(self.at) {
            Some((at, stored)) => {
                let broken = |why| fast.broken(self.leaving.entry(*at), why);
                stored.value().map_err(broken)?
            }
            None => Bytes::new(),
        };
        Ok(())
    }
}

impl RecordSource for LeavingCursor {
    fn current(&self) -> Option<(&[u8], Trailer)> {
        let (at, _) = self.run.get(self.at)?;
        Some((self.leaving.key(*at), trailer_of(self.leaving.entry(*at))))
    }

    fn value(&self) -> Bytes {
        Bytes::copy_from_slice(&self.value)
    }

    fn value_slice(&self) -> &[u8] {
        &self.value
    }

    /// A demotion reads its records once, from the first to the last.
    fn position(&mut self, to: Target<'_>) -> Result<()> {
        debug_assert!(matches!(to, Target::First), "a demotion starts at its first record");
        self.next = 0;
        self.load()
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        debug_assert!(forward, "a demotion goes forwards");
        self.at += 1;
        if self.at < self.run.len() { self.unpack() } else { self.load() }
    }

    fn is_stale(&self) -> bool {
        false
    }
}
