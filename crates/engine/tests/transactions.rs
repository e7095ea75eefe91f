//! Transactions: the anomalies of each isolation level as scripts, and what users may build on.
//!
//! A script (`scripts/transactions`) begins with a comment and records, then has steps with what
//! comes of each: in one cell where that is always the same, or in a cell for each level and
//! locking, in the order of the head. A step is `NAME begin`, `NAME get KEY`, `NAME put KEY VALUE`
//! and so on for a transaction, or `get KEY` without one. After an error a transaction is dropped,
//! and its later steps are `-`. `locked` is a wait, which would go on until the holder ends.
//!
//! All scripts run in both presets, with records in memory and with everything flushed after each
//! step, and the outcome is the same. `THERMOCLINE_BLESS=1` writes the cells anew.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "scripts are the tests' own files")]

#[path = "guards/patience.rs"]
mod patience;
#[path = "transactions/runner.rs"]
mod runner;

use runner::{PRESETS, Place, check, stepped};

#[test]
fn a_dirty_write_is_at_no_level() {
    check("dirty_write");
}

#[test]
fn a_dirty_read_is_at_no_level() {
    check("dirty_read");
}

#[test]
fn a_fuzzy_read_is_at_read_committed_alone() {
    check("fuzzy_read");
}

#[test]
fn a_phantom_is_at_read_committed_alone_and_no_serializable_write_builds_on_one() {
    check("phantom");
}

#[test]
fn an_update_is_lost_at_read_committed_alone_and_not_where_it_was_read_for_that() {
    check("lost_update");
    check("lost_update_read_for_update");
}

#[test]
fn writes_skew_unless_serializable_or_read_for_update() {
    check("write_skew");
    check("write_skew_read_for_update");
}

#[test]
fn a_read_only_transaction_sees_an_order_that_is_none_unless_serializable() {
    check("read_only_anomaly");
}
