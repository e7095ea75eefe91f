//! Sequences of bulk loads, of which their tables have none.

use super::logs::LoadsLogged;
use super::{KeySpan, span_of};
use crate::table_set::table::TableMeta;
use thermocline_foundation::Sequence;

/// Gives tables of bulk loads a sequence each, and says which keys they have. Files are numbered as
/// they are made, so a table of a smaller number has nothing that is newer than the load, and each
/// says which sequence it follows. Its own is the next after these and after an earlier load of the
/// same keys; or, where logs have all since then, the first after it that is a load's. What was
/// written between the end of its table and that of the load may have larger ones, and hides it.
pub(super) fn order_loads(tables: &mut [TableMeta], logged: &LoadsLogged) -> Vec<KeySpan> {
    tables.sort_by_key(|table| table.number);
    let (mut newest, mut loads) = (Sequence::ZERO, Vec::<TableMeta>::new());
    for table in tables {
        if table.largest_sequence > Sequence::ZERO {
            newest = newest.max(table.largest_sequence);
            continue;
        }
        let (from, to) = (Some(&table.smallest_key[..]), Some(&table.largest_key[..]));
        let of_others = loads.iter().filter(|load| load.overlaps(from, to));
        let of_others = of_others.map(|load| load.largest_sequence);
        let least = of_others.chain(table.ingested_at).fold(newest, Sequence::max).next();
        let is_logged = logged.since.is_some_and(|since| since <= least);
        let mut sequences = logged.sequences.iter().copied().filter(|_| is_logged);
        let sequence = sequences.find(|sequence| *sequence >= least).unwrap_or(least);
        table.ingested_at = Some(sequence);
        (table.smallest_sequence, table.largest_sequence) = (sequence, sequence);
        loads.push(table.clone());
    }
    loads.iter().map(span_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::FileNumber;

    fn table(number: u64, keys: (&str, &str), newest: u64) -> TableMeta {
        TableMeta {
            number: FileNumber(number),
            bytes: 4096,
            entries: 2,
            deletes: 0,
            older_versions: 0,
            smallest_key: keys.0.into(),
            largest_key: keys.1.into(),
            smallest_sequence: Sequence(newest.min(1)),
            largest_sequence: Sequence(newest),
            ingested_at: None,
        }
    }

    #[test]
    fn a_load_is_newer_than_files_before_it_and_than_loads_of_the_same_keys() {
        let mut tables = [
            table(9, ("a", "c"), 0),
            table(3, ("a", "z"), 40),
            table(5, ("a", "m"), 0),
            table(6, ("n", "z"), 0),
            table(12, ("a", "z"), 90),
        ];
        let (since, sequences) = (Some(Sequence(20)), vec![Sequence(30), Sequence(57)]);
        let loads = order_loads(&mut tables, &LoadsLogged { since, sequences });
        let numbers = tables.iter().map(|table| (table.number.0, table.largest_sequence.0));
        assert_eq!(numbers.collect::<Vec<_>>(), [(3, 40), (5, 57), (6, 57), (9, 58), (12, 90)]);
        let of_loads = tables.iter().filter_map(|table| table.ingested_at).collect::<Vec<_>>();
        assert_eq!(of_loads, [Sequence(57), Sequence(57), Sequence(58)]);
        let keys = [("a", "m"), ("n", "z"), ("a", "c")];
        assert_eq!(loads, keys.map(|(from, until)| (from.into(), until.into())));
        // No log is left of that time.
        let mut alone = [table(4, ("a", "b"), 7), table(8, ("a", "b"), 0)];
        for since in [None, Some(Sequence(9))] {
            (alone[1].largest_sequence, alone[1].ingested_at) = (Sequence::ZERO, None);
            let logged = LoadsLogged { since, sequences: vec![Sequence(12)] };
            order_loads(&mut alone, &logged);
            assert_eq!(alone[1].ingested_at, Some(Sequence(8)), "{since:?}");
        }
        // Slots had newer records when its table was finished.
        (alone[1].largest_sequence, alone[1].ingested_at) = (Sequence::ZERO, Some(Sequence(40)));
        order_loads(&mut alone, &LoadsLogged::default());
        assert_eq!(alone[1].ingested_at, Some(Sequence(41)));
    }
}
