//! Files of copies that are kept over a restart and are never an authority.
//!
//! ```text
//!   sealed.rs   the format: blocks first, then a directory and a footer, after which the file
//!               never changes
//!   lookup.rs   which blocks there are, eight bytes each     tape.rs      the files, in order
//!   filling.rs  blocks on their way into a file              back_off.rs  pauses after errors
//!   lives.rs    tells files of a database from those of a future that was abandoned
//!   extents/    parts of files of a host, in such files
//!   trigger.rs  which whole files of a host are copied; those copies are not kept
//! ```

pub mod back_off;
pub mod extents;
pub mod filling;
pub mod lives;
pub mod lookup;
pub mod sealed;
pub mod tape;
pub mod trigger;

pub use back_off::BackOff;
pub use extents::{ExtentCounts, Extents};
pub use filling::{Batch, Filling, Offered};
pub use lives::{CacheLife, CacheLives};
pub use lookup::Lookup;
pub use sealed::{CachedBlock, Layout, Seal, Sealed};
pub use tape::{CacheFile, Files};
