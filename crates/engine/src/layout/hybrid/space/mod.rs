//! Room on the fast tier: when it runs out, what makes room, and what the slow tier takes.

pub(crate) mod backoff;
pub(crate) mod budget;
pub(crate) mod room;
pub(crate) mod slot_sizes;
pub(crate) mod sweep;
