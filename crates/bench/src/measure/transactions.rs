//! Changes of records as transactions (`/transactions`), each with the record that changes with it:
//! of a link the count of its node.

use super::latency::Seen;
use super::runner::Worker;
use crate::Outcome;
use crate::store::Change;
use crate::workloads::{Kind, Operation};

/// Carries out the update, insert or delete that `operation` is: when it ended, and how long it
/// took.
pub(super) fn transact(
    worker: &Worker,
    operation: Operation,
    (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    seen: &mut Seen,
) -> Outcome<(u64, u64)> {
    let (subject, number) = (worker.subject(), operation.number);
    let (is_delete, is_insert) = (operation.kind == Kind::Delete, operation.kind == Kind::Insert);
    let with = subject.plan.changed_with(&operation);
    subject.keys.key(number, key);
    let version = if is_insert { 1 } else { subject.versions.begin(number, is_delete) };
    subject.values.make(number, version, operation.count as u32, value);
    let mut beside = (Vec::new(), Vec::new());
    if let Some(other) = with {
        subject.keys.key(other, &mut beside.0);
        let version = subject.versions.begin(other, false);
        subject.values.make(other, version, 0, &mut beside.1);
    }
    let own = Change { key, value: (!is_delete).then_some(&**value) };
    let both = [own, Change { key: &beside.0, value: Some(&beside.1) }];
    let changes = if with.is_some() { &both[..] } else { &both[..1] };
    let start = worker.now_ns();
    subject.store.transact(changes)?;
    let ended = worker.now_ns();
    if is_insert {
        subject.inserted.acknowledged(worker.thread());
    } else {
        subject.versions.end(number);
    }
    with.iter().for_each(|other| subject.versions.end(*other));
    let bytes = |change: &Change<'_>| change.key.len() + change.value.map_or(0, <[u8]>::len);
    seen.user_written_bytes += changes.iter().map(bytes).sum::<usize>() as u64;
    Ok((ended, ended - start))
}
