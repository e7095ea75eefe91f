//! The checks of a group, before anything of it is logged, and what became of each batch.

use super::flying::Flying;
use super::queue::Submission;
use crate::batch::BatchReader;
use crate::error::Result;
use crate::shared::Shared;
use crate::transaction::{Check, Recent, Refused};
use crate::versions::Versions;
use std::borrow::Cow;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::RecordKind;

/// What became of a group: the batches that were not refused have sequences, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Led {
    pub first: Sequence,
    /// Places of batches in the group, ascending, and why they were refused.
    pub refused: Vec<(usize, Refused)>,
}

/// Batches of `group` whose checks do not hold, by their places. The caller has the turnstile.
pub(super) fn refuse(
    shared: &Shared,
    versions: &Versions,
    need_locks: bool,
    flying: &Flying,
    group: &[Submission],
) -> Result<Vec<(usize, Refused)>> {
    let mut refused = refuse_by_checks(versions, need_locks, flying, group)?;
    refuse_without_index(shared, group, &mut refused);
    Ok(refused)
}

fn refuse_by_checks(
    versions: &Versions,
    need_locks: bool,
    flying: &Flying,
    group: &[Submission],
) -> Result<Vec<(usize, Refused)>> {
    let mut refused = Vec::new();
    let is_asked = |submission: &Submission| need_locks || submission.check.is_some();
    let Some(last) = group.iter().rposition(is_asked) else { return Ok(refused) };
    let mut recent = Recent::new(versions);
    let builds = |submission: &Submission| submission.check.as_deref().is_some_and(Check::builds);
    if group.iter().any(builds) && !planted(Planted::ChecksMissFlyingGroups) {
        for (first, batch) in flying.batches() {
            recent.add_flying(*first, batch)?;
        }
    }
    let last_builds = group.iter().rposition(builds);
    for (at, submission) in group[..=last].iter().enumerate() {
        let allowed = match submission.check.as_deref() {
            Some(check) if check.has_locks || !need_locks => recent.allows(check),
            None if !need_locks => Ok(()),
            _ => Err(Refused::WithoutLocks(submission.encoded.clone())),
        };
        match allowed {
            Ok(()) if Some(at) < last_builds => recent.add(&submission.encoded)?,
            Ok(()) => {}
            Err(why) => refused.push((at, why)),
        }
    }
    Ok(refused)
}

/// Adds to `refused` the batches with new records, where the index may not take them.
fn refuse_without_index(
    shared: &Shared,
    group: &[Submission],
    refused: &mut Vec<(usize, Refused)>,
) {
    let records = group.iter().map(|submission| u64::from(submission.count)).sum();
    let Err(error) = shared.index_room.require(records) else { return };
    let puts = |submission: &Submission| {
        let records = BatchReader::new(&submission.encoded).into_iter().flatten();
        records.flatten().any(|record| record.kind == RecordKind::Put)
    };
    for (at, submission) in group.iter().enumerate() {
        if puts(submission) && refused.iter().all(|(place, _)| *place != at) {
            refused.push((at, Refused::Failed(error.clone())));
        }
    }
    refused.sort_by_key(|(place, _)| *place);
}

/// The group without the batches that were refused.
pub(super) fn without<'a>(
    group: &'a [Submission],
    refused: &[(usize, Refused)],
) -> Cow<'a, [Submission]> {
    if refused.is_empty() {
        return Cow::Borrowed(group);
    }
    let is_left = |at: &usize| refused.binary_search_by_key(at, |(place, _)| *place).is_err();
    (0..group.len()).filter(is_left).map(|at| group[at].clone()).collect()
}

/// For each batch of the group the sequence of its last record, or why it has none.
pub(super) fn outcomes(
    group: &[Submission],
    led: Result<Led>,
) -> impl Iterator<Item = Result<Sequence, Refused>> {
    let (mut led, failed) = match led {
        Ok(led) => (led, None),
        Err(error) => (Led::default(), Some(error)),
    };
    let mut refused = std::mem::take(&mut led.refused).into_iter().peekable();
    let mut next = led.first.0;
    group.iter().enumerate().map(move |(at, submission)| {
        if let Some(error) = &failed {
            return Err(error.clone().into());
        }
        if let Some((_, why)) = refused.next_if(|(place, _)| *place == at) {
            return Err(why);
        }
        next += u64::from(submission.count);
        Ok(Sequence(next - 1))
    })
}

/// What became of the leader's own batch, the first of its group.
pub(super) fn own_outcome(group: &[Submission], led: Result<Led>) -> Result<Sequence, Refused> {
    outcomes(group, led).next().expect("a leader has a batch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Durability;
    use crate::support::{hybrid, one_tier, stepped};
    use crate::transaction::{Check, Footprint};
    use crate::{Db, ErrorKind, WriteBatch};
    use std::sync::Arc;

    /// A put of `key`, on the condition that `built_on` has not changed since `looked`.
    fn put(key: &str, built_on: Option<(&str, Sequence)>) -> Submission {
        let mut batch = WriteBatch::new();
        batch.put(key, "value");
        let (encoded, count) = batch.freeze().unwrap();
        let check = built_on.map(|(key, looked)| {
            let footprint = Arc::new(Footprint::of_key(key.as_bytes(), looked));
            let (entries_max, has_locks) = (u64::MAX, false);
            Arc::new(Check { footprint, looked, entries_max, has_locks })
        });
        Submission { encoded, count, durability: Durability::Buffered, check }
    }

    /// These batches are on their way, after all that is visible.
    fn flying(db: &Db, batches: &[Submission]) -> Flying {
        let mut flying = Flying::default();
        let mut next = db.engine().versions().visible();
        for submission in batches {
            next = next.next();
            flying.add(next, vec![(next, submission.encoded.clone())]);
        }
        flying
    }

    /// What became of a group: for each batch its number behind `visible`, or why it has none.
    fn lead(db: &Db, group: &[Submission]) -> Vec<String> {
        lead_behind(db, &[], group)
    }

    /// The same, while others are on their way.
    fn lead_behind(db: &Db, before: &[Submission], group: &[Submission]) -> Vec<String> {
        let engine = db.engine();
        let flying = flying(db, before);
        let need_locks = engine.locks().are_needed();
        let refused = refuse_by_checks(engine.versions(), need_locks, &flying, group).unwrap();
        let led = Led { first: Sequence(1), refused };
        let told = outcomes(group, Ok(led)).map(|outcome| match outcome {
            Ok(sequence) => sequence.to_string(),
            Err(Refused::LookAgain) => "look again".to_owned(),
            Err(Refused::WithoutLocks(_)) => "without locks".to_owned(),
            Err(Refused::Failed(error)) if error.kind() == ErrorKind::Conflict => {
                "conflict".to_owned()
            }
            Err(Refused::Failed(error)) => error.to_string(),
        });
        told.collect()
    }

    #[test]
    fn a_batch_that_is_refused_leaves_its_group_and_takes_no_sequence() {
        let db = stepped(&one_tier());
        db.put("old", "value").unwrap();
        let now = db.snapshot().sequence();
        let group = [
            put("a", None),
            put("b", Some(("a", now))),
            put("c", Some(("b", now))),
            put("d", Some(("c", now))),
            put("e", Some(("old", Sequence(0)))),
            put("f", Some(("old", now))),
        ];
        let told = lead(&db, &group);
        // What was refused is no earlier batch: `c` builds on a `b` that is not written.
        assert_eq!(told, ["1", "conflict", "2", "conflict", "conflict", "3"]);
        let none = flying(&db, &[]);
        let refused = refuse_by_checks(db.engine().versions(), false, &none, &group).unwrap();
        assert_eq!(without(&group, &refused).len(), 3);
    }

    #[test]
    fn the_front_gives_no_sequence_to_what_it_refuses() {
        let db = stepped(&one_tier());
        db.put("a", "value").unwrap();
        let front = db.engine().front();
        let refused = front.write(put("b", Some(("a", Sequence(0)))));
        assert!(matches!(refused, Err(Refused::Failed(_))), "{refused:?}");
        assert_eq!((db.snapshot().sequence(), db.get("b").unwrap()), (Sequence(1), None));
        let written = front.write(put("b", Some(("a", Sequence(1)))));
        assert!(matches!(written, Ok(Sequence(2))), "{written:?}");
    }

    #[test]
    fn batches_without_locks_are_sent_back_while_a_pessimistic_transaction_is_open() {
        let db = stepped(&one_tier());
        let now = db.snapshot().sequence();
        let mut with_locks = put("c", Some(("c", now)));
        let check = with_locks.check.as_deref().unwrap().clone();
        with_locks.check = Some(Arc::new(Check { has_locks: true, ..check }));
        let group = [put("a", None), put("b", Some(("b", now))), with_locks];
        assert_eq!(lead(&db, &group), ["1", "2", "3"]);
        let opened = db.engine().locks().open();
        assert_eq!(lead(&db, &group), ["without locks", "without locks", "1"]);
        db.put("a", "takes its locks by itself").unwrap();
        drop(opened);
        assert_eq!(lead(&db, &group), ["1", "2", "3"]);
    }

    #[test]
    fn what_left_memory_since_the_look_is_to_be_looked_at_again() {
        for settings in [one_tier(), hybrid()] {
            let db = stepped(&settings);
            let before = db.snapshot().sequence();
            let of_other = [put("b", Some(("a", before)))];
            assert_eq!(lead(&db, &of_other), ["1"], "nothing is in memory, and nothing happened");
            db.put("other", "value").unwrap();
            assert_eq!(lead(&db, &of_other), ["1"], "memory has all since");
            db.flush().unwrap();
            assert_eq!(lead(&db, &of_other), ["look again"]);
            let now = db.snapshot().sequence();
            assert_eq!(lead(&db, &[put("b", Some(("a", now)))]), ["1"]);
            let mut ingest = db.ingest();
            ingest.add("a", "value").unwrap();
            ingest.finish().unwrap();
            let of_loaded = [put("b", Some(("a", now)))];
            assert_eq!(lead(&db, &of_loaded), ["look again"], "a bulk load is in no memtable");
            db.put("other", "value").unwrap();
            assert_eq!(lead(&db, &of_loaded), ["look again"], "still, with a memtable after it");
        }
    }

    #[test]
    fn what_is_on_its_way_to_the_log_counts_before_it_is_in_memory() {
        let db = stepped(&one_tier());
        db.put("old", "value").unwrap();
        db.flush().unwrap();
        let now = db.snapshot().sequence();
        let before = [put("a", None), put("b", None)];
        let group = [
            put("a", Some(("old", now))),
            put("c", Some(("a", now))),
            put("c", Some(("b", now))),
            put("c", Some(("c", now))),
            put("d", Some(("c", now))),
        ];
        let told = lead_behind(&db, &before, &group);
        assert_eq!(told, ["1", "conflict", "conflict", "2", "conflict"]);
        assert_eq!(lead(&db, &group[1..4]), ["1", "2", "conflict"], "and no longer");
        // One behind it is in the memtable first: memory has all after the one that flies.
        db.put("b", "value").unwrap();
        let built_on_older = [put("c", Some(("other", Sequence(now.0 - 1))))];
        assert_eq!(lead(&db, &built_on_older), ["look again"]);
        let mut flying = flying(&db, &[]);
        flying.add(now, vec![(now, before[0].encoded.clone())]);
        let refused = refuse_by_checks(db.engine().versions(), false, &flying, &built_on_older);
        assert!(refused.unwrap().is_empty());
        flying.published(now);
        assert_eq!(flying.batches().count(), 0);
    }

    /// A group is in the memtable a moment before readers see it, and the next leader may come
    /// then.
    #[test]
    fn a_group_that_is_in_the_memtable_and_not_published_is_a_conflict() {
        let db = stepped(&one_tier());
        db.put("a", "value").unwrap();
        let versions = db.engine().versions();
        let looked = versions.visible();
        let claimed = versions.window.claim(1, None);
        let batch = put("a", None).encoded;
        versions.current().active.insert_batch(claimed.first(), &batch).unwrap();
        assert_eq!(versions.visible(), looked);
        let group = [put("b", Some(("a", looked)))];
        let refused = refuse_by_checks(versions, false, &Flying::default(), &group).unwrap();
        let [(0, Refused::Failed(error))] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(versions.window.wait(claimed.complete(false)));
    }

    /// What the log has and the memtable refuses must not be followed by an acknowledged write.
    #[test]
    fn a_batch_that_the_memtable_refuses_stops_all_writing() {
        for log_writes in [1, 4] {
            let db = stepped(&crate::Settings { log_writes, ..one_tier() });
            let mut cut = put("a", None);
            cut.encoded.truncate(cut.encoded.len() - 1);
            let error = db.engine().front().write(cut).unwrap_err();
            assert!(matches!(error, Refused::Failed(_)), "{error:?}");
            let later = db.put("b", "value").unwrap_err();
            assert_eq!(later.kind(), ErrorKind::ReadOnly, "{later}");
            assert_eq!(db.get("a").unwrap(), None);
        }
    }
}
