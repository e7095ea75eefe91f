//! The drivers. `unsafe` of this crate lives below this module, nowhere else.

pub mod memory;

pub use memory::MemoryDriver;
