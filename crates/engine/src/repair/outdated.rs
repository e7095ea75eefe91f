//! Which keys of logs that are cut have a newer record in another file.
//!
//! A memtable hides what slots and tables have of its keys. So what is left of a log must not be
//! older than what these have, as it may be where slots have what is behind the hole: such records
//! are left out of the new log, and those beside them keep their sequences.

use super::Subject;
use super::logs::{LogsFound, State};
use super::slots::{SlotsFound, newest_left};
use crate::error::Result;

/// Notes them in `logs`.
pub(super) fn find(subject: &Subject, logs: &mut LogsFound, slots: &SlotsFound) -> Result<()> {
    if logs.state != State::Cut {
        return Ok(());
    }
    let keys = logs.keys();
    let in_slots = slots.newest_of(&keys)?;
    for key in keys {
        let of_slots = in_slots.get(&key).copied();
        if newest_left(subject, logs, &key, of_slots)? > logs.newest(&key) {
            logs.outdated.insert(key);
        }
    }
    Ok(())
}
