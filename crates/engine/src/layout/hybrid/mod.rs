//! The fast tier of the preset `hybrid`: records in slots, the index that finds them, and what is
//! known of how hot they are (PrismDB, section 4).
//!
//! ```text
//!   memtable ──records/flush.rs──> slots ──demotion/job.rs──> tables
//!                                   ^ │                         │
//!                   copies/spill.rs │ v space/sweep.rs          │
//!                                  memory <──copies/promotion.rs┘  clean copies
//!
//!   rules/      when room is made, what stays, how memory is divided: plain arithmetic
//!   feedback/   what reads and merges tell the rules, and their last answers
//!   records/    records in slots: written, made live, found, walked
//!   copies/     clean copies of what tables have: promotion, spill
//!   space/      room on this tier, and what the slow tier may be written
//!   demotion/   which ranges leave, and the job that merges them
//!   memory.rs   how much memory records get
//!   opening.rs  all of it put together from what slots have
//!   plan.rs     what of this is done next; single_step.rs jobs of one step
//!   report.rs   what statistics say of the rules and of demotions
//! ```
//! A folder imports only those before it (`cargo xtask tidy` checks this): `rules`, `records`,
//! `space`, `feedback`, `copies`, `demotion`. The files beside them know all.
//!
//! Memory holds records too (`cache`). A copy that is there needs no slot: it has an entry in the
//! index that names none, so that memory and slots together hold more than either.
//!
//! A write is in log and memtable first, as in every preset, so that many updates of a hot record
//! cost one write of a slot.
//!
//! Invariants:
//! 1. Of two versions of a key, one in a slot and one in a table, the slot has the newer, or both
//!    are the same record (then the slot is a *clean* copy). The exception are bulk loads: a table
//!    with an `ingested_at` may be newer than a slot, which look-ups compare and demotions end.
//! 2. The manifest says which slots are live, in the same edit that adds and removes tables; bytes
//!    of other slots are never looked at. So a record is in exactly one place that counts.
//! 3. The index changes only under `Versions::tables`, after the edit is durable: records
//!    that are added enter before the memtable goes, records that are demoted leave after readers
//!    can see the tables. Entries without a slot are of clean copies only; where memory has given
//!    such a record up, tables are asked for it as if there were no entry.
//! 4. A slot is given to another record only after the edit that freed it is durable. Readers hold
//!    no pins: a read of a slot that was given away meanwhile sees that key or sequence do not fit,
//!    holds frees and asks the index again.

mod at_rest;
mod copies;
pub(crate) mod demotion;
mod feedback;
mod held;
mod memory;
pub(crate) mod opening;
mod plan;
pub(crate) mod records;
pub(crate) mod report;
mod rules;
mod single_step;
mod space;
#[cfg(test)]
mod tiny_records;

use crate::error::Result;
use crate::generations::Frozen;
use crate::jobs::Job;
use crate::layout::hybrid::copies::promotion::Promotions;
use crate::layout::hybrid::copies::spill::Spill;
use crate::layout::hybrid::feedback::Feedback;
use crate::layout::hybrid::memory::Memory;
use crate::layout::hybrid::records::damage::Damage;
use crate::layout::hybrid::records::flush::FlushGate;
use crate::layout::hybrid::records::flush::SlotFlush;
use crate::layout::hybrid::records::live::LiveRecords;
use crate::layout::hybrid::records::packing::Packing;
use crate::layout::hybrid::rules::rule_set::RuleSet;
use crate::layout::hybrid::single_step::Work;
use crate::layout::hybrid::space::backoff::SlowTierBackoff;
use crate::layout::hybrid::space::room::Room;
use crate::locator::Locator;
use crate::locator::copies::IndexCopies;
use crate::locator::copies::Tended;
use crate::shared::Shared;
use crate::shared::totals::Tally;
use crate::table_set::claims::Claims;
use crate::table_set::manifest::Edit;
use crate::versions::Change;
use crate::versions::Current;
use crate::versions::Follower;
use crate::versions::Switch;
use crate::versions::Versions;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_index::{FastIndex, RecordCache};
use thermocline_popularity::ClockTracker;
use thermocline_slab::{Slabs, SlotAddress};

/// Makes a copy of a table's index that is missing, or ends those that must go.
const INDEX_COPY: Work = Work {
    name: "copy of a table's index",
    claim: |fast| &fast.copying.is_running,
    run: Hybrid::tend_index_copies,
};

/// What the jobs of this layout hold.
#[derive(Debug)]
pub(crate) struct Hybrid {
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    pub locator: Locator,
    pub fast: Arc<FastTier>,
}

impl Hybrid {
    /// The job that writes a frozen memtable into slots.
    pub fn flush_job(self: &Arc<Self>, frozen: Arc<Frozen>) -> Box<dyn Job> {
        Box::new(SlotFlush::new(self, frozen))
    }

    /// Makes a copy of a table's index that is missing, or ends those that must go.
    fn tend_index_copies(&self) -> Result<()> {
        let Tended { ended, made } = self.locator.tend(&self.versions.current_full().levels);
        if ended || made {
            // There may be more to do, and the slots may have to leave more room or less.
            let _tables = self.versions.tables();
            self.fast.divide_memory_anew(self.versions.cell());
        }
        if ended {
            self.fast.room_was_made();
        }
        Ok(())
    }

    /// The most useful job that can begin now, claimed by this call.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        plan::plan_fast_tier(self)
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct FastTier {
    pub shared: Arc<Shared>,
    pub rules: RuleSet,
    /// The slots that hold records, as the manifest says.
    pub live: Mutex<LiveRecords>,
    pub slabs: Arc<Slabs>,
    pub index: Arc<FastIndex>,
    /// What was damaged when the store was opened.
    pub damage: Damage,
    /// Records in memory: of slots, and copies of what tables have.
    pub cache: RecordCache,
    pub packing: Packing,
    pub spill: Spill,
    pub popularity: ClockTracker,
    pub promotions: Promotions,
    pub feedback: Feedback,
    pub flushes: FlushGate,
    pub room: Room,
    pub slow_tier_backoff: SlowTierBackoff,
    pub memory: Memory,
    pub copying: Arc<IndexCopies>,
    /// Slots that demotions gave away before their edits: a planted bug.
    pub freed_early: Mutex<BTreeSet<SlotAddress>>,
}

impl Follower for FastTier {
    fn prepare(&self, change: &mut Change) -> Result<()> {
        change.edit.slabs = self.changes(&self.live.lock().slots, &change.slots);
        Ok(())
    }

    fn take(&self, change: &mut Change) -> Result<()> {
        self.live.lock().follow(&mut change.edit)
    }

    fn before_switch(&self, switch: &Switch<'_>) -> Result<()> {
        self.arrive(&switch.change.slots);
        Ok(())
    }

    fn after_switch(&self, switch: &Switch<'_>) {
        self.depart(&switch.change.slots);
    }

    fn whole(&self, edit: &mut Edit) {
        self.live.lock().whole(edit);
    }

    fn count(&self, tally: &mut Tally) {
        self.tally(tally);
    }

    fn levels_changed(&self, current: &Current, _claims: &Claims) {
        self.divide_memory_anew(current);
    }

    fn memtable_grows(&self, current: &Current, active_bytes: u64) {
        if self.memory.is_short_for_active(active_bytes) {
            self.lend_memory_beside(current, active_bytes);
        }
    }

    fn memtable_was_frozen(&self) {
        self.memory.active_was_frozen();
    }
}

#[cfg(test)]
#[path = "../../../tests/inside/late_questions.rs"]
mod late_questions;
#[cfg(test)]
#[path = "../../../tests/inside/policies.rs"]
mod policies;
