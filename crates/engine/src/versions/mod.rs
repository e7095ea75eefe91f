//! What readers see, and how it changes.

pub(crate) mod snapshots;
