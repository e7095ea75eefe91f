//! Which room a new file comes into: what files take of the tiers, and placement's answer.
//!
//! A file that is being written counts with what files of its class come to. That is a guess: where
//! it leaves no room anywhere, such files count with what they have.
//!
//! Threads: any. Lengths are asked for only where the guess leaves no room.

use super::listing::Place;
use super::{FileClass, Holds, Host};
use crate::error::{Error, ErrorKind, Result};
use crate::placement::{TierState, overflow_order};
use crate::tier::{Tier, TierIndex};
use std::sync::Arc;

/// Tables that level 0 of a host has before they are compacted: RocksDB's and LevelDB's default.
const LEVEL0_TABLES: u64 = 4;

/// What a file is expected to come to before one of its class was seen: RocksDB's memtable.
const FIRST_BYTES: u64 = 64 << 20;

/// On a small tier a host makes its memtables smaller: a first file is expected to come to one part
/// in so many of the fastest tier at most, and to a page at least.
const FIRST_PART: u64 = 8;
const FIRST_BYTES_MIN: u64 = 4 << 10;

impl Host {
    pub(super) fn full(&self) -> Error {
        let text = format!("every tier of {} is full; free space", self.path.display());
        Error::new(ErrorKind::OutOfSpace, text)
    }

    /// What a new file of a class may come to.
    pub(super) fn expected_bytes(&self, class: FileClass) -> u64 {
        let known = self.listing.lock().expected_bytes(class);
        let fastest_bytes = self.identities.first().map_or(0, |tier| tier.spec().capacity.0);
        known.unwrap_or((fastest_bytes / FIRST_PART).clamp(FIRST_BYTES_MIN, FIRST_BYTES))
    }

    /// The rooms that a new file may come into, the best one first.
    pub(super) fn rooms_for(
        &self,
        class: FileClass,
        expected_bytes: u64,
    ) -> Result<Vec<TierIndex>> {
        if class.holds == Holds::Other {
            return Ok(vec![self.home]);
        }
        let states = self.tier_states();
        if class.holds == Holds::Table {
            self.counts.table_created(class.level);
            self.tell_levels(&states);
        }
        let context = self.context(class);
        let place = |bytes, states: &[_]| self.placement.place(context, bytes, states);
        // What files are expected to come to is a guess, and no reason to refuse one.
        let first = place(expected_bytes, &states).or_else(|| place(1, &self.states_as_written()));
        let Some(first) = first else { return Err(self.full()) };
        let order = overflow_order(first.position(), states.len());
        Ok(order.map(|at| TierIndex(at as u8)).collect())
    }

    /// Tells placement what the levels are meant to have: what they have now, and level 0 some
    /// tables at least. Hosts keep their targets to themselves.
    pub(super) fn tell_levels(&self, states: &[TierState]) {
        let levels = states.iter().map(|state| state.level_bytes.len()).max().unwrap_or(0);
        let mut targets = vec![0_u64; levels.max(1)];
        for (level, bytes) in states.iter().flat_map(|state| state.level_bytes.iter().enumerate()) {
            targets[level] = targets[level].saturating_add(*bytes);
        }
        let flushed = FileClass { holds: Holds::Table, level: Some(0), ..FileClass::of_name("") };
        let table_bytes = self.expected_bytes(flushed);
        targets[0] = targets[0].max(table_bytes.saturating_mul(LEVEL0_TABLES));
        self.placement.set_level_targets(&targets);
    }

    /// The tiers, and what managed files take of them, or are expected to.
    pub(super) fn tier_states(&self) -> Vec<TierState> {
        let state = |tier: &Arc<Tier>| {
            let capacity_bytes = tier.spec().capacity.0;
            let mut state = TierState { capacity_bytes, ..TierState::default() };
            self.loads.tell(tier.index(), 0, &mut state);
            state
        };
        let mut states: Vec<_> = self.identities.iter().map(state).collect();
        self.listing.lock().count(&mut states);
        states
    }

    /// The same; files that are being written count with what they have. Asks for their lengths.
    fn states_as_written(&self) -> Vec<TierState> {
        let mut states = self.tier_states();
        let unfinished = self.listing.lock().unfinished();
        for (place, expected_bytes) in unfinished {
            if let (Some(state), Ok(len)) =
                (states.get_mut(place.room.position()), self.len_of(&place))
            {
                state.used_bytes = state.used_bytes.saturating_sub(expected_bytes) + len;
            }
        }
        states
    }

    /// How long the file at a place is.
    pub(super) fn len_of(&self, place: &Place) -> Result<u64> {
        self.room(place).tier.driver().open_to_read(&place.file)?.len()
    }
}
