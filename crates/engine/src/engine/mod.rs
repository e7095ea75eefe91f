//! The running store.

mod totals;
