//! Asynchronous requests: what tickets say, in which order, and that each of them is answered
//! whatever happens meanwhile.
#![cfg(not(any(shuttle, loom)))]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod commits;
mod endings;
mod executors;
#[allow(dead_code, reason = "shared with the tests of reliability")]
#[path = "../reliability/hooked.rs"]
mod hooked;
mod reads;
mod support;
mod writes;
