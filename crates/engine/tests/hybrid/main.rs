//! The preset `hybrid` as its users see it: data several times the size of the fast tier, compared
//! with a model.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

#[path = "../guards/closing.rs"]
mod closing;
mod model;
mod rules;
mod scenes;
mod variants;
