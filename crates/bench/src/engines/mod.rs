//! The engines of this crate: a preset of Thermocline each, two ways to commit from its parts, the
//! drivers alone, and one that does nothing.

pub mod commit;
pub mod device;
pub(crate) mod fast_cache;
mod hybrid;
mod indexed;
pub mod null;
pub mod thermocline;

pub use self::thermocline::{HYBRID, INDEXED, LEVELED, Thermocline};
pub use commit::{COMMIT_LOG, COMMIT_SLOTS, Commit};
pub use device::{DEVICE, Device};
pub use null::{NULL, Null};

use crate::store::EngineKind;

/// Every engine of this crate.
pub static ALL: [&dyn EngineKind; 7] =
    [&LEVELED, &HYBRID, &INDEXED, &COMMIT_SLOTS, &COMMIT_LOG, &DEVICE, &NULL];
