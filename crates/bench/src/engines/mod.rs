//! The engines of this crate. One more preset of Thermocline is one more line.

pub mod null;
pub mod thermocline;

pub use self::thermocline::{LEVELED, Thermocline};
pub use null::{NULL, Null};

use crate::store::EngineKind;

/// Every engine of this crate.
pub static ALL: [&dyn EngineKind; 2] = [&LEVELED, &NULL];
