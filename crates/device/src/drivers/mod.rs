//! The drivers: one contract (`driver.rs`), several ways to keep it.
//!
//! ```text
//!   spec.rs        a driver by name, as configurations write it
//!   posix.rs       files through the page cache          \  disk.rs  directory and transfers
//!   direct.rs      O_DIRECT                              /  pool.rs  batches on threads
//!   ring.rs        batches through io_uring                 (unsafe)
//!   memory.rs      a directory in memory
//!   emulated.rs    any of these, slowed down to a device model (model.rs, write_curve.rs,
//!                  profiles.rs)
//!   waiting.rs     how a caller waits for direct I/O and for an emulated device; asking.rs does it
//!   host_files.rs  files that are not the store's own: what a loader reads, what a tool writes
//!   block_device.rs what the kernel counts of a device
//!   directories.rs making, removing and looking at directories
//!   directory_lock.rs holding a directory, alone or beside other readers
//!   owner_process.rs which process something belongs to, after a fork (unsafe)
//!   forking.rs     a forked child, for tests (feature `forking`; unsafe)
//!   mapped.rs      a file as memory: the region of persistent memory (unsafe)
//!   persistence.rs what the kernel says of the memory behind it
//!   power_switch.rs cutting a file system off, for tests (feature `power-switch`; unsafe)
//! ```
//!
//! `unsafe` of this crate lives below this module, nowhere else; today in `ring.rs`,
//! `owner_process.rs`, `forking.rs`, `mapped.rs` and `power_switch.rs`.

mod asking;
mod block_device;
pub mod direct;
pub mod directories;
mod directory_lock;
mod disk;
pub mod emulated;
#[cfg(feature = "forking")]
pub mod forking;
pub mod host_files;
pub mod mapped;
pub mod memory;
pub mod model;
pub mod owner_process;
pub mod persistence;
mod pool;
pub mod posix;
#[cfg(feature = "power-switch")]
pub mod power_switch;
pub mod profiles;
mod ring;
pub mod spec;
mod waiting;
mod write_curve;

pub use direct::{Batches, DirectDriver};
pub use directories::{create_directory, directory_is_mount_point, remove_empty_directory};
pub use emulated::EmulatedDriver;
pub use mapped::Mapping;
pub use memory::MemoryDriver;
pub use model::DeviceModel;
pub use owner_process::OwnerProcess;
pub use posix::PosixDriver;
pub use profiles::Profile;
pub use spec::DriverSpec;
pub use waiting::Waiting;
pub use write_curve::WriteCurve;
