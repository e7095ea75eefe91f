//! The whole engine on simulated machines.
#![forbid(unsafe_code)]

pub mod campaign;
pub mod clock;
pub mod crash;
pub mod devices;
pub mod drills;
pub mod errors;
pub mod history;
pub mod lies;
pub mod life;
pub mod machine;
pub mod oracle;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod rot;
pub mod trace;
