//! The parts of a store that hear of each edit of its tables: the layout's, and the pool of logs.
//!
//! An edit is durable first and visible afterwards ([`Versions::commit`](super::Versions::commit)).
//! Followers are called in the order in which the store was wired: the layout, then the front. A
//! follower holds no [`Versions`](super::Versions), so that no circle of references keeps a store
//! alive.

use super::current::Current;
use crate::error::Result;
use crate::generations::Frozen;
use crate::shared::totals::Tally;
use crate::table_set::claims::Claims;
use crate::table_set::handed::Handed;
use crate::table_set::levels::Levels;
use crate::table_set::manifest::Edit;
use crate::table_set::slot_edit::SlotEdit;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use thermocline_device::Purpose;
use thermocline_foundation::FileNumber;

/// What becomes durable and visible at once.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub edit: Edit,
    /// What changes in slots.
    pub slots: SlotEdit,
    /// The memtable that it makes superfluous.
    pub flushed: Option<Arc<Frozen>>,
    /// Where records of tables that it adds lie, for an index.
    pub handed: BTreeMap<FileNumber, Handed>,
    /// What it may have of the room that the manifest keeps.
    pub purpose: Purpose,
}

impl From<Edit> for Change {
    fn from(edit: Edit) -> Self {
        Self { edit, ..Self::default() }
    }
}

/// A change on its way to readers.
#[derive(Debug)]
pub(crate) struct Switch<'a> {
    pub change: &'a Change,
    pub before: &'a Levels,
    pub after: &'a Arc<Levels>,
}

/// See the module's header. All but the last two are called under the lock of the tables.
pub(crate) trait Follower: Send + Sync + Debug {
    /// Adds to an edit what the follower keeps in the manifest. The edit may still be refused.
    fn prepare(&self, _change: &mut Change) -> Result<()> {
        Ok(())
    }

    /// Takes its part of an edit that is about to be durable.
    fn take(&self, _change: &mut Change) -> Result<()> {
        Ok(())
    }

    /// The change is durable, and readers do not see its tables yet.
    fn before_switch(&self, _switch: &Switch<'_>) -> Result<()> {
        Ok(())
    }

    /// Readers see the change's tables.
    fn after_switch(&self, _switch: &Switch<'_>) {}

    /// Adds what the follower keeps to an edit that makes a whole state.
    fn whole(&self, _edit: &mut Edit) {}

    /// Adds what the follower counts.
    fn count(&self, _tally: &mut Tally) {}

    /// The tables are those of the current version.
    fn levels_changed(&self, _current: &Current, _claims: &Claims) {}

    /// The active memtable is about to hold `active_bytes`. Called for each group of writes.
    fn memtable_grows(&self, _current: &Current, _active_bytes: u64) {}

    /// The active memtable was frozen, and an empty one is in its place.
    fn memtable_was_frozen(&self) {}
}
