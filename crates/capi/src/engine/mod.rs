//! The engine for C: each file has one handle and its calls. The text of a function is its page in
//! the header.

pub mod batch;
pub mod db;
mod failures;
#[cfg(test)]
mod panics;
pub mod scan;
pub mod snapshot;
