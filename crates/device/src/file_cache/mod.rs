//! Files of copies that are kept over a restart and are never an authority.
//!
//! `sealed.rs` is the format: blocks first, then a directory and a footer, after which the file
//! never changes. `lives.rs` tells files of this database from those of a future that was
//! abandoned. `trigger.rs` says which whole files of a host are copied to a faster tier; those
//! copies are not kept over a restart.

pub mod lives;
pub mod sealed;
pub mod trigger;

pub use lives::{CacheLife, CacheLives};
pub use sealed::{CachedBlock, Layout, Seal, Sealed};
