//! Walking the fast tier in key order, as one source of a merge.
//!
//! A cursor copies a run of keys out of the index and reads their slots in one batch; runs grow, as
//! read-ahead does. It holds nothing of the index between runs, so two things can have happened
//! when it comes for the next one:
//! 1. Records have been replaced. What the cursor's snapshot sees of them is still there, for it is
//!    registered; only slots changed.
//! 2. Records have been demoted. They are in tables that the merge does not have: the source is
//!    *stale*, says so, and whoever drives the merge begins again with the tables of now.

use super::FastTier;
use super::lookup::trailer_of;
use crate::error::Result;
use crate::merge::Target;
use crate::state::Engine;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::{Planted, planted};
use thermocline_index::{Entry, IndexBatch};
use thermocline_table::Trailer;

/// Keys of the first run, where nothing says how many are wanted, and of any.
const RUN_MIN: usize = 16;
const RUN_MAX: usize = 512;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct SlotCursor {
    engine: Arc<Engine>,
    snapshot: Sequence,
    /// Departures from the index before the tables of the merge were chosen.
    departures: u64,
    stale: bool,
    batch: IndexBatch,
    /// The visible version of each key of the batch that has one, in the order of the walk.
    run: Vec<(usize, Entry, Bytes)>,
    at: usize,
    next_keys: usize,
    forward: bool,
}

impl SlotCursor {
    /// A cursor over what `snapshot` sees; `departures` is from before the tables were chosen.
    pub fn new(engine: &Arc<Engine>, snapshot: Sequence, departures: u64, keys: usize) -> Self {
        Self {
            engine: Arc::clone(engine),
            snapshot,
            departures,
            stale: false,
            batch: IndexBatch::new(),
            run: Vec::new(),
            at: 0,
            next_keys: keys.clamp(RUN_MIN, RUN_MAX),
            forward: true,
        }
    }

    /// Records left the index for tables that this cursor's merge does not have.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    pub fn current(&self) -> Option<(&[u8], Trailer)> {
        let (at, entry, _) = self.run.get(self.at)?;
        Some((self.batch.key(*at), trailer_of(entry)))
    }

    pub fn value(&self) -> Bytes {
        self.run.get(self.at).map(|(_, _, value)| value.clone()).unwrap_or_default()
    }

    pub fn value_slice(&self) -> &[u8] {
        self.run.get(self.at).map_or(&[], |(_, _, value)| value)
    }

    pub fn position(&mut self, to: Target<'_>) -> Result<()> {
        let (Target::First | Target::From(_)) = to else {
            self.forward = false;
            let bound = match to {
                Target::UpTo(key) => Bound::Included(key),
                Target::Before(key) => Bound::Excluded(key),
                _ => Bound::Unbounded,
            };
            return self.load(bound);
        };
        self.forward = true;
        let bound = match to {
            Target::From(key) => Bound::Included(key),
            _ => Bound::Unbounded,
        };
        self.load(bound)
    }

    pub fn step(&mut self, forward: bool) -> Result<()> {
        debug_assert_eq!(forward, self.forward, "a merge turns by positioning");
        self.at += 1;
        if self.at < self.run.len() {
            return Ok(());
        }
        self.load_next()
    }

    /// The run after the batch at hand, which may have had nothing visible.
    fn load_next(&mut self) -> Result<()> {
        if self.batch.is_end() || self.stale {
            self.run.clear();
            return Ok(());
        }
        let last = self.batch.last_key().unwrap_or_default().to_vec();
        self.load(Bound::Excluded(&last))
    }

    fn load(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let mut after = None;
        self.run.clear();
        self.at = 0;
        while self.run.is_empty() {
            let from = after.as_deref().map_or(from, Bound::Excluded);
            self.load_batch(from)?;
            if self.stale || self.batch.is_end() {
                return Ok(());
            }
            if self.run.is_empty() {
                after = self.batch.last_key().map(<[u8]>::to_vec);
            }
        }
        Ok(())
    }

    fn load_batch(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        let Some(fast) = &engine.fast else { return Ok(()) };
        let keys = self.next_keys;
        self.next_keys = (2 * keys).min(RUN_MAX);
        self.batch.clear();
        if self.forward {
            fast.index.ascend(from, Bound::Unbounded, keys, &mut self.batch);
        } else {
            fast.index.descend(Bound::Unbounded, from, keys, &mut self.batch);
        }
        // Asked after the run was copied: what left earlier is missing from it.
        self.stale =
            fast.index.departures() != self.departures && !planted(Planted::CursorMissesDepartures);
        if self.stale {
            self.run.clear();
            return Ok(());
        }
        let visible = |versions: &[Entry]| {
            versions.iter().find(|entry| entry.sequence <= self.snapshot).copied()
        };
        let seen: Vec<_> = (0..self.batch.len())
            .filter_map(|at| Some((at, visible(self.batch.versions(at))?)))
            .collect();
        let wanted: Vec<_> = seen.iter().map(|(at, entry)| (self.batch.key(*at), *entry)).collect();
        let values = fast.values(&wanted);
        for ((at, entry), value) in seen.into_iter().zip(values) {
            match value {
                Some(value) => self.run.push((at, entry, value)),
                // The record moved while the slots were read: look again, one by one. Where it was
                // demoted meanwhile, the run is stale.
                None => match fast.get(self.batch.key(at), Some(self.snapshot))? {
                    Some((trailer, value)) => {
                        let moved = Entry { sequence: trailer.sequence(), ..entry };
                        self.run.push((at, moved, value));
                    }
                    None => {
                        self.stale = true;
                        self.run.clear();
                        return Ok(());
                    }
                },
            }
        }
        Ok(())
    }
}

impl FastTier {
    /// To be asked before the tables of a merge are chosen; see [`SlotCursor::new`].
    pub fn departures(&self) -> u64 {
        self.index.departures()
    }
}
