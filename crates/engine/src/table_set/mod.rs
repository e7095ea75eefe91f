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
pub(crate) mod table;
