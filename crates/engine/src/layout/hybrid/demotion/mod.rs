//! Demotions: which records leave the fast tier, and how they are merged into tables.

pub(crate) mod choice;
pub(crate) mod job;
pub(crate) mod leaving;
pub(crate) mod ranges;
