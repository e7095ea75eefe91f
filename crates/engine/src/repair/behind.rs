//! Names the keys whose writes are behind the hole of a log, as far as they can still be read, and
//! nowhere else. What each key has now is what the repair leaves in tables, slots and logs.

use super::Subject;
use super::logs::LogsFound;
use super::plan::Lost;
use super::slots::{SlotsFound, newest_left};
use crate::error::Result;
use std::collections::BTreeSet;

/// Keys that are named one by one; those after them are told as a range.
const NAMED_MAX: usize = 1000;

/// Adds the losses to the step that says where the logs end.
pub(super) fn name_lost(subject: &Subject, logs: &mut LogsFound, slots: &SlotsFound) -> Result<()> {
    if logs.behind.is_empty() {
        return Ok(());
    }
    let keys: BTreeSet<_> = logs.behind.keys().cloned().collect();
    let in_slots = slots.newest_of(&keys)?;
    let mut named = Vec::new();
    for (key, &(sequence, is_value)) in &logs.behind {
        let left = newest_left(subject, logs, key, in_slots.get(key).copied())?;
        let older = left.filter(|(_, is_value)| *is_value).map(|(sequence, _)| sequence.0);
        let is_there = left.is_some_and(|(left, _)| left >= sequence);
        // A lost deletion of what is not there changes nothing.
        if !is_there && (is_value || older.is_some()) {
            named.push((key.clone(), sequence.0, older));
        }
    }
    let others = named.split_off(named.len().min(NAMED_MAX));
    let after = named.last().map(|(key, ..)| key.clone());
    let lost = &mut logs.pieces[0].step.lost;
    let record = |(key, sequence, older)| Lost::Record { key, sequence, older };
    lost.extend(named.into_iter().map(record));
    let until = others.into_iter().next_back();
    lost.extend(until.map(|(until, ..)| Lost::Keys { after, until, copied: 0 }));
    Ok(())
}
