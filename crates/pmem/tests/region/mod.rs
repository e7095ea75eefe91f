//! Regions in a shadow: what is left of them at every crash (`shadow.rs`).
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod arena;
mod opening;
mod room;
mod support;
mod tree;
