//! What a chooser of merges looks at: plain data.

use crate::settings::Settings;
use crate::table_set::claims::Claims;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use thermocline_foundation::Sequence;

/// What writers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Memory has records.
    GoesOn,
    /// Nothing has been written since the store was opened, bulk loads aside.
    NotBegun,
    /// All that was written is in tables, or nothing was written for some time.
    Over,
}

/// See the module's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub levels: &'a Levels,
    pub claims: &'a Claims,
    pub settings: &'a Settings,
    pub writing: Writing,
    /// The oldest sequence that a reader may ask for: of the oldest snapshot, or now.
    pub oldest_read: Sequence,
}

impl View<'_> {
    /// No running merge has the table.
    pub fn is_free(&self, table: &Table) -> bool {
        !self.claims.has_table(table.meta.number)
    }
}
