//! The table set: the live tables in levels, claims on them, and the manifest. Tables of level 0
//! may overlap, deeper levels are disjoint: readers ask [`levels::may_overlap`], they do not
//! assume.

pub(crate) mod claims;
pub(crate) mod handed;
pub(crate) mod key_range;
pub(crate) mod levels;
pub(crate) mod manifest;
pub(crate) mod new_table;
pub(crate) mod restored;
pub(crate) mod slot_edit;
pub(crate) mod table;

use claims::Claims;
use manifest::Manifest;
use thermocline_foundation::{FileNumber, Sequence};

/// The tables' side of a store: held while an edit is made durable.
#[derive(Debug)]
pub(crate) struct TableSet {
    pub manifest: Manifest,
    /// What running merges have taken.
    pub claims: Claims,
    pub log_floor: FileNumber,
    pub last_sequence: Sequence,
    /// What the manifest says was durable at the last closing.
    pub durable_sequence: Sequence,
}
