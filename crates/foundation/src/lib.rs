//! What every other crate stands on: identities, units, clock, random numbers, threads, checksums,
//! coding and compression.
//!
//! Nothing here touches a file. Three of the four doors to the world are here (`clock`, `random`,
//! `threads`); the fourth, files, is the crate `thermocline-device`. Code elsewhere is kept from
//! going around the doors by
//! `clippy.toml`, because the simulation replaces what is behind them.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod clock;
pub mod coding;
pub mod compression;
pub mod counter;
pub mod ids;
pub mod mend;
pub mod planted;
pub mod random;
pub mod sync;
pub mod sync_site;
pub mod threads;
pub mod units;

pub use checksum::{Place, checksum};
pub use clock::{Clock, SystemClock};
pub use compression::Compression;
pub use counter::Counter;
pub use ids::{DatabaseId, FileNumber, Sequence};
pub use planted::{Planted, planted};
pub use sync_site::sync_site;
pub use units::{ByteSize, Duration};

#[cfg(all(test, loom))]
#[path = "../tests/schedules/mod.rs"]
mod schedules;
