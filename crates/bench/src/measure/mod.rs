//! Measuring one workload on one open store.
//!
//! ```text
//!   runner     threads, operations, checks          latency    histograms and timeline of a thread
//!   scan_check what a scan hands over
//!   traffic    bytes by tier, and their source      process    processor time, memory, kernel
//!   ticks      the clock of operations               read_back  all records at the end
//!   flights    writes that a thread has under way    transactions  changes that are ones
//!   occupancy  the most that files of a tier have taken
//! ```

mod flights;
pub mod latency;
mod occupancy;
pub mod process;
mod read_back;
pub mod runner;
mod scan_check;
pub mod ticks;
pub mod traffic;
mod transactions;

pub use latency::Seen;
pub use occupancy::Occupancy;
pub use runner::{Length, Runner, Subject};
pub use traffic::Meter;
