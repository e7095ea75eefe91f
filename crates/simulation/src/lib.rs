//! The whole engine on simulated machines.
#![forbid(unsafe_code)]

pub mod clock;
pub mod crash;
pub mod devices;
pub mod history;
pub mod life;
pub mod machine;
pub mod oracle;
