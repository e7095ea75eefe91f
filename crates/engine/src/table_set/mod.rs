//! The table set: how sorted tables are arranged, and how a key is found among them. One
//! arrangement so far:
//! `levels`, where level 0 may overlap and every deeper level is disjoint.
//!
//! Whether tables of a level may overlap is a declared property ([`levels::may_overlap`]); readers
//! ask, they do not assume.

pub(crate) mod claims;
pub(crate) mod key_range;
pub(crate) mod levels;
pub(crate) mod manifest;
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
