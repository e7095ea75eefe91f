//! The engines of this crate: a preset of Thermocline each, and one that does nothing.

mod hybrid;
pub mod null;
pub mod thermocline;

pub use self::thermocline::{HYBRID, LEVELED, Thermocline};
pub use null::{NULL, Null};

use crate::store::EngineKind;

/// Every engine of this crate.
pub static ALL: [&dyn EngineKind; 3] = [&LEVELED, &HYBRID, &NULL];
