//! The tables that a merge reads, as its sources.

use crate::limits::LEVELS;
use crate::merge::{LevelCursor, Source, Tables};
use crate::table_set::levels::may_overlap;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_table::ReadAhead;

/// As few sources for the tables of a level that may overlap as they allow, and one for all of
/// another level. Each source holds a block, so fewer take less memory: large records lie in tables
/// of their own, which overlap no other.
pub(crate) fn sources_of(inputs: &[(usize, Arc<Table>)], read_ahead: ReadAhead) -> Vec<Source> {
    let mut sources = Vec::new();
    for level in 0..LEVELS {
        let of_level = inputs.iter().filter(|(of, _)| *of == level);
        let tables: Vec<_> = of_level.map(|(_, table)| Arc::clone(table)).collect();
        let cursors = match may_overlap(level) {
            true => disjoint(tables, |table| {
                (&table.meta.smallest_key[..], &table.meta.largest_key[..])
            }),
            false if tables.is_empty() => Vec::new(),
            false => vec![tables],
        };
        sources.extend(cursors.into_iter().map(|tables| {
            Source::Level(Box::new(LevelCursor::new(Tables::Listed(tables), read_ahead)))
        }));
    }
    sources
}

/// Sorts what has a first and a last key into lists whose ranges ascend and share no key.
fn disjoint<T>(mut all: Vec<T>, range: impl Fn(&T) -> (&[u8], &[u8])) -> Vec<Vec<T>> {
    all.sort_by(|a, b| range(a).cmp(&range(b)));
    let mut lists: Vec<Vec<T>> = Vec::new();
    for one in all {
        let first = range(&one).0;
        let is_behind = |list: &&mut Vec<T>| list.last().is_some_and(|last| range(last).1 < first);
        match lists.iter_mut().find(is_behind) {
            Some(list) => list.push(one),
            None => lists.push(vec![one]),
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_share_a_key_are_in_different_lists_and_others_in_one() {
        let of = |ranges: &[&'static str]| {
            let ranges = ranges.iter().map(|range| range.split_at(1)).collect();
            let lists = disjoint(ranges, |(first, last)| (first.as_bytes(), last.as_bytes()));
            let text = |list: Vec<(&str, &str)>| {
                list.into_iter().map(|(first, last)| format!("{first}{last}")).collect::<Vec<_>>()
            };
            lists.into_iter().map(text).collect::<Vec<_>>()
        };
        assert!(of(&[]).is_empty());
        assert_eq!(of(&["cd", "aa", "bb"]), [["aa", "bb", "cd"]]);
        assert_eq!(of(&["ac", "cd"]), [["ac"], ["cd"]], "both may have c");
        let lists = of(&["az", "ac", "de", "bd", "ff"]);
        assert_eq!(lists, [vec!["ac", "de", "ff"], vec!["az"], vec!["bd"]]);
    }
}
