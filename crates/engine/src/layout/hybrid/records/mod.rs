//! Records in slots: how they are written, made live, found and walked.

pub(crate) mod cursor;
pub(crate) mod damage;
pub(crate) mod flush;
pub(crate) mod live;
pub(crate) mod lookup;
pub(crate) mod packing;
pub(crate) mod pieces;
pub(crate) mod placing;
mod reads;
