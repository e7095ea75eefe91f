//! Demotions: which records leave the fast tier, and how they are merged into tables.

pub(crate) mod choice;
mod compact_range;
pub(crate) mod job;
mod judgement;
pub(crate) mod leaving;
pub(crate) mod ranges;
pub(crate) mod space;
mod statistics;
