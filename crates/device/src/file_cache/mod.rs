//! Files of copies that are kept over a restart and are never an authority.
//!
//! `sealed.rs` is the format: blocks first, then a directory and a footer, after which the file
//! never changes.

pub mod sealed;

pub use sealed::{CachedBlock, Layout, Seal, Sealed};
