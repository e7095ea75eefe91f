//! Way (b): each put goes into a log and a memtable; the newest of each key goes into a slot when
//! the memtable is full. What the engine does, from its parts.
//!
//! ```text
//!   line up -> leader: room -> log append -> log commit -> memtable -> acknowledged
//!   full:   freeze, next log -> thread beside: seal the log -> pieces in key order into slots
//!           -> sync -> edit of the journal -> index -> free what was replaced -> log used again
//! ```
//! Sizes are the engine's for the preset `hybrid`: three memtables take an eighth of the memory,
//! logs are as long as their memtables, a piece has up to 4 MiB, and with durability `buffered` the
//! log goes through the page cache and is synced in the background every 8 MiB.
//!
//! What the engine does besides, and this does not: batches and snapshots, room on the tier,
//! popularity, a record cache, statistics.
//!
//! Invariants:
//! 1. When a write is acknowledged, the log holds its record, written; with durability `sync` the
//!    record is also durable.
//! 2. A log is used again after what its memtable had is in slots, durable and listed as live.
//! 3. A record leaves the memtables after the index has it.

use super::background::Background;
use super::fast_tier::{Arrival, FastTier, LiveJournal};
use super::line::{Line, Put};
use super::memtable::{Memtable, Version};
use super::{BACKGROUND_SYNC_BYTES, no_deletes, no_scans};
use crate::Outcome;
use crate::store::{Durability, OpenOptions, Store, TierTraffic, Visitor};
use crossbeam_skiplist::set::Entry;
use std::collections::VecDeque;
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{
    Durability as LogDurability, LogHeader, LogPosition, LogSettings, LogWriter,
};

/// Memory for memtables is one part in so many, as in the engine.
const MEMTABLES_SHARE: u64 = 8;
/// Memtables: one that is written and those that are frozen.
const MEMTABLES: u64 = 3;
/// Bytes of keys and values of a piece.
const PIECE_BYTES_MAX: usize = 4 << 20;

/// Bytes of a memtable.
pub(super) fn memtable_bytes(options: &OpenOptions) -> u64 {
    options.memory.0 / MEMTABLES_SHARE / MEMTABLES
}

fn log_settings(memtable_bytes: u64) -> LogSettings {
    let segment_bytes = (memtable_bytes + memtable_bytes / 16).next_multiple_of(1 << 20);
    LogSettings {
        segment_bytes,
        growth_bytes: (segment_bytes / 4).clamp(64 << 10, 16 << 20),
        buffer_bytes: (memtable_bytes / 16).clamp(64 << 10, 512 << 10) as usize,
    }
}

/// A memtable with the log that has what is in it.
#[derive(Debug)]
struct Generation {
    memtable: Memtable,
    log: LogWriter,
}

impl Generation {
    fn new(log: LogWriter) -> Arc<Self> {
        Arc::new(Self { memtable: Memtable::default(), log })
    }
}

/// Memtables that are frozen, the oldest first, and the one that is written.
#[derive(Debug)]
struct Memtables {
    frozen: VecDeque<Arc<Generation>>,
    active: Arc<Generation>,
}

/// What has to be synced to make everything durable that was written so far.
#[derive(Clone, Debug)]
struct Tail {
    /// Logs before the newest that may not be durable to their end.
    unsealed: Vec<Arc<Generation>>,
    newest: Arc<Generation>,
    position: Option<LogPosition>,
}

#[derive(Debug)]
struct Shared {
    tier: FastTier,
    durability: Durability,
    memtable_bytes: u64,
    memtables: Mutex<Memtables>,
    /// A memtable was flushed, or none will be any more.
    flushed: Condvar,
    tail: Mutex<Tail>,
    unsynced_bytes: AtomicU64,
    sync_wanted: AtomicBool,
    /// The next log, made beforehand.
    ready: Mutex<Option<LogWriter>>,
    live: Mutex<LiveJournal>,
    failed: Mutex<Option<String>>,
}

/// The open store.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<Shared>,
    line: Line,
    last_sequence: Mutex<Sequence>,
    flusher: Background,
    syncer: Background,
}

/// A log, from one that is not needed any more where there is one.
fn make_log(
    tier: &FastTier,
    durability: Durability,
    memtable_bytes: u64,
    retired: Option<FileNumber>,
) -> Outcome<LogWriter> {
    let context = FileContext { kind: FileKind::Log, origin: Origin::Flush };
    let settings = log_settings(memtable_bytes);
    let file = match retired {
        Some(number) => tier.files().recycle(number, context)?,
        None => tier.files().create_file(context, settings.segment_bytes)?,
    };
    if durability == Durability::Buffered {
        file.use_page_cache()?;
    }
    let number = file.number();
    let header = LogHeader { stream: 0, previous: retired, first_sequence: Sequence::ZERO.next() };
    let writer = LogWriter::create(file, header, settings)?;
    tier.files().publish(&[number])?;
    Ok(writer)
}

impl Shared {
    fn check(&self) -> Outcome<()> {
        self.failed.lock().as_ref().map_or(Ok(()), |failure| Err(failure.clone().into()))
    }

    /// Keeps a failure of a background thread and wakes the waiting writers, so that they see it.
    fn note(&self, outcome: Outcome<()>) {
        if let Err(failure) = outcome {
            self.failed.lock().get_or_insert(failure.to_string());
            let _waiting = self.memtables.lock();
            self.flushed.notify_all();
        }
    }

    /// Makes everything that was appended so far durable, older logs first.
    fn sync(&self) -> Outcome<()> {
        self.sync_wanted.store(false, Relaxed);
        // Counted before the tail is looked at, so what is taken off below was synced.
        let covered = self.unsynced_bytes.load(Relaxed);
        let tail = self.tail.lock().clone();
        for older in &tail.unsealed {
            older.log.seal()?;
        }
        if let Some(position) = tail.position {
            tail.newest.log.commit(position, LogDurability::Sync)?;
        }
        let is_sealed = |log: &Arc<Generation>| tail.unsealed.iter().any(|o| Arc::ptr_eq(o, log));
        self.tail.lock().unsealed.retain(|log| !is_sealed(log));
        let less = |unsynced: u64| Some(unsynced.saturating_sub(covered));
        // Two syncs may have covered the same bytes.
        let _ = self.unsynced_bytes.fetch_update(Relaxed, Relaxed, less);
        Ok(())
    }

    /// Brings frozen memtables into slots, the oldest first.
    fn flush_all(&self) -> Outcome<()> {
        loop {
            let oldest = self.memtables.lock().frozen.front().cloned();
            let Some(oldest) = oldest else { return Ok(()) };
            self.flush(&oldest)?;
            self.memtables.lock().frozen.pop_front();
            self.flushed.notify_all();
            let number = oldest.log.file().number();
            // A thread that syncs the tail may still hold this log; the log is sealed, so no thread
            // writes to it.
            self.tail.lock().unsealed.retain(|log| !Arc::ptr_eq(log, &oldest));
            drop(oldest);
            if self.ready.lock().is_some() {
                self.tier.files().delete_files(&[number])?;
            } else {
                let next = self.make_log(Some(number))?;
                *self.ready.lock() = Some(next);
            }
        }
    }

    fn make_log(&self, retired: Option<FileNumber>) -> Outcome<LogWriter> {
        make_log(&self.tier, self.durability, self.memtable_bytes, retired)
    }

    fn flush(&self, generation: &Generation) -> Outcome<()> {
        // Slots make records durable that come after others in the log, so the log comes first.
        generation.log.seal()?;
        let mut piece = Vec::new();
        let mut bytes = 0;
        for version in generation.memtable.newest() {
            bytes += version.value().key().len() + version.value().value().len();
            piece.push(version);
            if bytes >= PIECE_BYTES_MAX {
                self.settle_piece(&std::mem::take(&mut piece))?;
                bytes = 0;
            }
        }
        if !piece.is_empty() {
            self.settle_piece(&piece)?;
        }
        // The edit by which the engine gives the log up.
        self.live.lock().edit(&self.tier.slabs, &[], std::iter::empty(), &[])
    }

    /// Puts records into slots, durably, and lets them be found there.
    fn settle_piece(&self, piece: &[Entry<'_, Version>]) -> Outcome<()> {
        let versions = piece.iter().map(Entry::value);
        let records: Vec<_> = versions
            .map(|version| Arrival {
                key: version.key(),
                value: version.value(),
                sequence: version.sequence,
            })
            .collect();
        let tier = &self.tier;
        let written = tier.write(&records, Origin::Flush)?;
        let written = written.ok_or("there is no room for new slots")?;
        tier.slabs.sync(&written.touched)?;
        let new_slabs = written.reservation.new_slabs();
        let numbers: Vec<_> = new_slabs.iter().map(|(number, _)| *number).collect();
        tier.files().publish(&numbers)?;
        let replaced = tier.replaced_by(&records);
        let born = written.slots.iter().copied().zip(records.iter().map(|new| new.sequence));
        self.live.lock().edit(&tier.slabs, &new_slabs, born, &replaced)?;
        written.reservation.commit();
        tier.arrive(&records, &written.slots, &replaced);
        tier.free(&replaced);
        Ok(())
    }
}

impl Log {
    pub fn open(options: &OpenOptions) -> Outcome<Self> {
        let (tier, live) = FastTier::open(options)?;
        let live = Mutex::new(tier.begin_journal(live)?);
        let (durability, memtable_bytes) = (options.durability, memtable_bytes(options));
        let active = Generation::new(make_log(&tier, durability, memtable_bytes, None)?);
        let last_sequence = Mutex::new(tier.last_sequence);
        let newest = Arc::clone(&active);
        let shared = Arc::new(Shared {
            tier,
            durability,
            memtable_bytes,
            memtables: Mutex::new(Memtables { frozen: VecDeque::new(), active }),
            flushed: Condvar::new(),
            tail: Mutex::new(Tail { unsealed: Vec::new(), newest, position: None }),
            unsynced_bytes: AtomicU64::new(0),
            sync_wanted: AtomicBool::new(false),
            ready: Mutex::new(None),
            live,
            failed: Mutex::new(None),
        });
        let (flushes, syncs) = (Arc::clone(&shared), Arc::clone(&shared));
        let flusher = Background::start("flush", move || flushes.note(flushes.flush_all()))?;
        let syncer = Background::start("log-sync", move || syncs.note(syncs.sync()))?;
        Ok(Self { shared, line: Line::default(), last_sequence, flusher, syncer })
    }

    /// Does what a group asks for.
    fn lead(&self, group: &[&Put]) -> Outcome<()> {
        let shared = &*self.shared;
        shared.check()?;
        let mut last = self.last_sequence.lock();
        let bytes = group.iter().map(|put| put.len() as u64).sum::<u64>();
        let active = self.with_room(bytes)?;
        let mut position = None;
        for (put, sequence) in group.iter().zip(last.0 + 1..) {
            let key_len = (put.key().len() as u32).to_le_bytes();
            let parts = [&key_len[..], put.key(), put.value()];
            position = Some(active.log.append_parts(Sequence(sequence), 1, &parts)?);
        }
        let Some(position) = position else { return Ok(()) };
        shared.tail.lock().position = Some(position);
        let unsynced = shared.unsynced_bytes.fetch_add(bytes, Relaxed) + bytes;
        // Past twice the bound the background did not keep up, and the bound is a promise.
        if shared.durability == Durability::Sync || unsynced >= 2 * BACKGROUND_SYNC_BYTES {
            shared.sync()?;
        } else {
            active.log.commit(position, LogDurability::Buffered)?;
            let is_due = unsynced >= BACKGROUND_SYNC_BYTES;
            if is_due && !shared.sync_wanted.swap(true, Relaxed) {
                self.syncer.wake();
            }
        }
        for (put, sequence) in group.iter().zip(last.0 + 1..) {
            active.memtable.insert(Sequence(sequence), put);
        }
        last.0 += group.len() as u64;
        Ok(())
    }

    /// The memtable to write to, with room for so many bytes.
    fn with_room(&self, bytes: u64) -> Outcome<Arc<Generation>> {
        let active = Arc::clone(&self.shared.memtables.lock().active);
        let full = active.memtable.bytes() + bytes > self.shared.memtable_bytes;
        if !full || active.memtable.is_empty() {
            return Ok(active);
        }
        self.freeze()
    }

    /// Freezes the memtable, once there is room for another, and goes on with the next log.
    fn freeze(&self) -> Outcome<Arc<Generation>> {
        let shared = &*self.shared;
        {
            let mut memtables = shared.memtables.lock();
            while memtables.frozen.len() as u64 >= MEMTABLES - 1 {
                shared.check()?;
                shared.flushed.wait(&mut memtables);
            }
        }
        let ready = shared.ready.lock().take();
        let log = ready.map_or_else(|| shared.make_log(None), Ok)?;
        let next = Generation::new(log);
        {
            let mut tail = shared.tail.lock();
            let newest = std::mem::replace(&mut tail.newest, Arc::clone(&next));
            tail.unsealed.push(newest);
            tail.position = None;
        }
        let mut memtables = shared.memtables.lock();
        let full = std::mem::replace(&mut memtables.active, Arc::clone(&next));
        memtables.frozen.push_back(full);
        self.flusher.wake();
        Ok(next)
    }

    /// Brings everything into slots and waits for it.
    fn flush(&self) -> Outcome<()> {
        let _no_leader = self.last_sequence.lock();
        if !self.shared.memtables.lock().active.memtable.is_empty() {
            self.freeze()?;
        }
        let mut memtables = self.shared.memtables.lock();
        while !memtables.frozen.is_empty() {
            self.shared.check()?;
            self.shared.flushed.wait(&mut memtables);
        }
        Ok(())
    }
}

impl Store for Log {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        let newest_first: Vec<_> = {
            let memtables = self.shared.memtables.lock();
            let frozen = memtables.frozen.iter().rev();
            std::iter::once(&memtables.active).chain(frozen).cloned().collect()
        };
        if newest_first.iter().any(|generation| generation.memtable.get(key, value)) {
            return Ok(true);
        }
        self.shared.tier.get(key, value)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.line.put(Put::new(key, value), |group| self.lead(group))
    }

    fn delete(&self, _: &[u8]) -> Outcome<()> {
        no_deletes()
    }

    fn scan(&self, _: &[u8], _: u64, _: &mut Visitor<'_>) -> Outcome<u64> {
        no_scans()
    }

    fn sync(&self) -> Outcome<()> {
        self.shared.sync()
    }

    fn settle(&self) -> Outcome<()> {
        self.flush()
    }

    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        Some(self.shared.tier.traffic())
    }

    fn memory_bytes(&self) -> Option<u64> {
        let memtables = self.shared.memtables.lock();
        let all = memtables.frozen.iter().chain([&memtables.active]);
        let memtable_bytes: u64 = all.map(|generation| generation.memtable.bytes()).sum();
        Some(self.shared.tier.index.memory_bytes() + memtable_bytes)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.flush()?;
        let Self { shared, flusher, syncer, .. } = *self;
        drop((flusher, syncer));
        shared.check()?;
        // All that logs had is in slots.
        let files = shared.tier.files();
        let logs = files.files().into_iter().filter(|file| file.kind == FileKind::Log);
        let numbers: Vec<_> = logs.map(|file| file.number).collect();
        files.delete_files(&numbers)?;
        shared.tier.close()
    }
}
