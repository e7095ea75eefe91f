//! Simulated devices: several directories in memory that lose power, fail, lie and stall.
//!
//! ```text
//!   sparse.rs   bytes of a file, shared between copies
//!   world.rs    all directories and files at one moment; what of them survives a power cut
//!   driver.rs   the device layer's contract over a world
//!   queue.rs    batches, in an order of their own
//!   faults.rs   what can go wrong with one call
//! ```
//! The persistence model: since a file's last sync every 512-byte sector that was written, and
//! every change of length, survives on its own or does not; so does every creation, deletion and
//! renaming since the directory's last sync, in any combination. That is more than real devices
//! do, so what holds here holds there. Completion of a write means nothing for durability.
//!
//! Everything runs on the caller's thread. The devices tell a [`Watcher`] after each call that
//! changed something, with no lock held: that is where crash images are taken and tried, inside the
//! store's own call.

mod driver;
mod faults;
mod queue;
mod sparse;
mod world;

pub use driver::{Devices, Watcher};
pub use faults::{CallKind, Fault, FaultKind, Made};
pub use world::{Loss, ReadPlace, Unit, World};
