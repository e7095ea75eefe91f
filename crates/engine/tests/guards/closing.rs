//! The end of a store to which nothing was done: whatever was at work has kept nothing of what it
//! took ([`Db::left_over`]).

use thermocline::Db;

/// Closes the store of the test that `what` names.
pub fn close(db: Db, what: &str) {
    // The other handle tells what the closing has left.
    let closed = db.clone().close().and_then(|()| db.left_over());
    let mut left = closed.unwrap_or_else(|error| panic!("{what}: {error}"));
    // A thread in the middle of a job finds that no edit is taken any more, and leaves the slots of
    // its records to the next opening.
    left.retain(|line| !line.starts_with("slots that are reserved"));
    assert!(left.is_empty(), "{what}, after closing: {left:?}");
    db.close().unwrap_or_else(|error| panic!("{what}: {error}"));
}
