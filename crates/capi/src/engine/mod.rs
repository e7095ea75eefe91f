//! The engine for C: each file has one handle and its calls. The text of a function is its page in
//! the header.

pub mod batch;
pub mod db;
mod failures;
pub mod scan;
pub mod snapshot;
#[cfg(test)]
mod tests;
