//! Way (a): each put goes into its slot at once (PrismDB, sections 4.2 and 6).
//!
//! ```text
//!   line up -> leader: slots for the group -> write -> sync (durability `sync`) -> index
//!                   -> free the slots of what was replaced
//! ```
//! What it is given beyond the paper, so that it is not beaten for want of it: threads that wait
//! together share one sync and one submission of writes; of several puts of a key in one group the
//! newest alone is written; slots of a group are neighbours where that is possible.
//!
//! A version goes to a new slot, as the paper says for devices that do not write a page whole or
//! not at all. The slot of the one before is given out again once the new one is durable: with
//! durability `buffered` after a sync in the background, which begins with so many bytes as the
//! engine allows unsynced. Otherwise a loss of power could take both versions.
//!
//! What is live is not written down while it runs: the paper's recovery reads all slots, and the
//! newest version of a key wins. This store writes it down when it is closed.
//!
//! Invariants:
//! 1. When a write is acknowledged, a slot holds its record, written; with durability `sync` the
//!    record is also durable.
//! 2. A slot is freed after the version that replaced its record is durable.

use super::background::Background;
use super::fast_tier::{Arrival, FastTier, Replaced, Written};
use super::line::{Line, Put};
use super::{BACKGROUND_SYNC_BYTES, no_deletes, no_scans};
use crate::Outcome;
use crate::store::{Durability, OpenOptions, Store, TierTraffic, Visitor};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_device::Origin;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::Mutex;
use thermocline_slab::SlabId;

/// What was written and is not durable.
#[derive(Debug, Default)]
struct Pending {
    slabs: BTreeSet<SlabId>,
    replaced: Vec<Replaced>,
    bytes: u64,
}

#[derive(Debug)]
struct Shared {
    tier: FastTier,
    pending: Mutex<Pending>,
    /// Held from the taking of what is pending to the freeing of its slots.
    syncing: Mutex<()>,
    /// What a sync in the background failed of.
    failed: Mutex<Option<String>>,
}

impl Shared {
    /// Makes what is pending durable and frees what it replaced.
    fn sync(&self) -> Outcome<()> {
        let _one = self.syncing.lock();
        let pending = std::mem::take(&mut *self.pending.lock());
        let slabs: Vec<_> = pending.slabs.into_iter().collect();
        self.tier.slabs.sync(&slabs)?;
        self.tier.free(&pending.replaced);
        Ok(())
    }
}

/// The open store.
#[derive(Debug)]
pub(super) struct Slots {
    shared: Arc<Shared>,
    durability: Durability,
    line: Line,
    last_sequence: Mutex<Sequence>,
    syncer: Background,
}

impl Slots {
    pub fn open(options: &OpenOptions) -> Outcome<Self> {
        let (tier, _) = FastTier::open(options)?;
        let last_sequence = Mutex::new(tier.last_sequence);
        let shared = Arc::new(Shared {
            tier,
            pending: Mutex::default(),
            syncing: Mutex::new(()),
            failed: Mutex::new(None),
        });
        let own = Arc::clone(&shared);
        let syncer = Background::start("slot-sync", move || {
            if let Err(failure) = own.sync() {
                own.failed.lock().get_or_insert(failure.to_string());
            }
        })?;
        let (durability, line) = (options.durability, Line::default());
        Ok(Self { shared, durability, line, last_sequence, syncer })
    }

    /// Does what a group asks for.
    fn lead(&self, group: &[&Put]) -> Outcome<()> {
        if let Some(failure) = self.shared.failed.lock().as_ref() {
            return Err(failure.clone().into());
        }
        let mut last = self.last_sequence.lock();
        let numbered = group.iter().zip(last.0 + 1..);
        let mut records: Vec<Arrival<'_>> = numbered
            .map(|(put, sequence)| Arrival {
                key: put.key(),
                value: put.value(),
                sequence: Sequence(sequence),
            })
            .collect();
        records.sort_unstable_by_key(|record| (record.key, Reverse(record.sequence)));
        records.dedup_by_key(|record| record.key);
        let written = self.write(&records)?;
        let syncs = self.durability == Durability::Sync;
        let new_slabs = written.reservation.new_slabs();
        // A file is durable before it is published.
        if syncs || !new_slabs.is_empty() {
            self.shared.tier.slabs.sync(&written.touched)?;
        }
        if !new_slabs.is_empty() {
            let numbers: Vec<_> = new_slabs.iter().map(|(number, _)| *number).collect();
            self.shared.tier.files().publish(&numbers)?;
        }
        written.reservation.commit();
        let replaced = self.shared.tier.replaced_by(&records);
        self.shared.tier.arrive(&records, &written.slots, &replaced);
        last.0 += group.len() as u64;
        if syncs {
            self.shared.tier.free(&replaced);
            return Ok(());
        }
        let bytes = {
            let mut pending = self.shared.pending.lock();
            pending.slabs.extend(written.touched);
            pending.replaced.extend(replaced);
            pending.bytes += group.iter().map(|put| put.len() as u64).sum::<u64>();
            pending.bytes
        };
        match bytes {
            // The background did not keep up, and the bound is a promise.
            _ if bytes >= 2 * BACKGROUND_SYNC_BYTES => self.shared.sync()?,
            _ if bytes >= BACKGROUND_SYNC_BYTES => self.syncer.wake(),
            _ => {}
        }
        Ok(())
    }

    fn write(&self, records: &[Arrival<'_>]) -> Outcome<Written> {
        let tier = &self.shared.tier;
        if let Some(written) = tier.write(records, Origin::Foreground)? {
            return Ok(written);
        }
        // What is free after a sync may be all that there is.
        self.shared.sync()?;
        let written = tier.write(records, Origin::Foreground)?;
        written.ok_or_else(|| "there is no room for new slots".into())
    }
}

impl Store for Slots {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
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
        self.shared.sync()
    }

    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        Some(self.shared.tier.traffic())
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.shared.tier.index.memory_bytes())
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        let Self { shared, syncer, .. } = *self;
        drop(syncer);
        shared.sync()?;
        if let Some(failure) = shared.failed.lock().take() {
            return Err(failure.into());
        }
        shared.tier.close_with_index()
    }
}
