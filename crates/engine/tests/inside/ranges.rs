//! Pairs of ranges: apart, touching at one key, one inside the other, equal. Every function that
//! compares two ranges says of every pair what looking at each key says.
//!
//! Compiled into the library, for these functions are its own.

use crate::compaction::leveled;
use crate::compaction::view::{View, Writing};
use crate::layout::hybrid::demotion::ranges::pick_runs;
use crate::limits::LEVELS;
use crate::support::{one_tier, stepped};
use crate::table_set::claims::{Claim, Claims};
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::Levels;
use crate::table_set::manifest::Edit;
use crate::table_set::table::TableMeta;
use crate::{Error, Settings};
use std::ops::RangeBounds;
use thermocline_foundation::{FileNumber, Sequence};

/// Ends of ranges and tables.
const ENDS: [&str; 5] = ["b", "c", "d", "e", "f"];

const BOTTOM: usize = LEVELS - 1;

type Span = (&'static str, &'static str);

/// From the first key to the last, both of it: all that the ends make.
fn spans() -> Vec<Span> {
    let from = |from: &'static str| {
        ENDS.into_iter().filter(move |to| *to >= from).map(move |to| (from, to))
    };
    ENDS.into_iter().flat_map(from).collect()
}

/// Half-open ranges, open ends among them; none is empty.
fn ranges() -> Vec<KeyRange> {
    let owned = |key: Option<&str>| key.map(|key| key.as_bytes().to_vec());
    let ends = || ENDS.into_iter().map(Some).chain([None]);
    let range = |from| ends().map(move |to| (from, to));
    let pairs = ends().flat_map(range);
    let pairs = pairs.filter(|(from, to)| from.is_none() || to.is_none() || from < to);
    pairs.map(|(from, to)| KeyRange { from: owned(from), to: owned(to) }).collect()
}

/// Keys at every end, right behind each, and beyond all.
fn keys() -> Vec<Vec<u8>> {
    let near = |end: &str| [end.as_bytes().to_vec(), [end.as_bytes(), &[0]].concat()];
    let ends = ENDS.iter().copied().flat_map(near);
    ends.chain([Vec::new(), b"a".to_vec(), b"z".to_vec()]).collect()
}

fn is_in(key: &[u8], (from, to): Span) -> bool {
    from.as_bytes() <= key && key <= to.as_bytes()
}

fn any_key(is_in_both: impl Fn(&[u8]) -> bool) -> bool {
    keys().iter().any(|key| is_in_both(key))
}

fn meta(number: u64, (smallest, largest): Span) -> TableMeta {
    TableMeta {
        number: FileNumber(number),
        bytes: 1 << number,
        entries: 1000,
        deletes: 0,
        older_versions: 0,
        smallest_key: smallest.as_bytes().to_vec(),
        largest_key: largest.as_bytes().to_vec(),
        smallest_sequence: Sequence(1),
        largest_sequence: Sequence(1000),
        ingested_at: None,
    }
}

/// Tables of one level each, numbered from 1; none of them is opened.
fn levels(tables: &[(usize, Span)]) -> Result<Levels, Error> {
    let db = stepped(&one_tier());
    let added =
        tables.iter().zip(1..).map(|((level, span), number)| (*level as u8, meta(number, *span)));
    let edit = Edit { added: added.collect(), ..Edit::default() };
    Levels::default().apply(&edit, &db.engine().versions().store)
}

fn numbers<'a>(
    tables: impl IntoIterator<Item = &'a std::sync::Arc<crate::table_set::table::Table>>,
) -> Vec<u64> {
    let mut numbers: Vec<_> = tables.into_iter().map(|table| table.meta.number.0).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_range_has_the_keys_between_its_bounds_and_overlaps_what_shares_one() {
    for range in ranges() {
        for key in keys() {
            let right = RangeBounds::<[u8]>::contains(&range.bounds(), &key[..]);
            assert_eq!(range.contains(&key), right, "{range:?} {key:?}");
        }
        for other in ranges() {
            let right = any_key(|key| range.contains(key) && other.contains(key));
            assert_eq!(range.overlaps(&other), right, "{range:?} {other:?}");
        }
        for span in spans() {
            let right = any_key(|key| range.contains(key) && is_in(key, span));
            assert_eq!(range.has_key_of(&meta(1, span)), right, "{range:?} {span:?}");
        }
    }
}

#[test]
fn a_table_overlaps_what_shares_a_key_with_its_span() {
    for span in spans() {
        for (from, to) in spans() {
            let ends = || (Some(from.as_bytes()), Some(to.as_bytes()));
            for (from_end, to_end) in [ends(), (None, ends().1), (ends().0, None), (None, None)] {
                let is_between = |key: &[u8]| {
                    from_end.is_none_or(|from| from <= key) && to_end.is_none_or(|to| key <= to)
                };
                let right = any_key(|key| is_in(key, span) && is_between(key));
                let found = meta(1, span).overlaps(from_end, to_end);
                assert_eq!(found, right, "{span:?} {from_end:?} {to_end:?}");
            }
        }
    }
}

#[test]
fn claims_meet_where_they_share_a_key_of_one_level() {
    for claimed in spans() {
        let range = |(from, to): Span| KeyRange::spanning(from.as_bytes(), to.as_bytes());
        let claim = |table, level, span| Claim {
            tables: vec![FileNumber(table)],
            level,
            range: range(span),
        };
        for span in spans() {
            let share = any_key(|key| is_in(key, claimed) && is_in(key, span));
            let is_taken = |level, other| {
                let mut claims = Claims::default();
                claims.take(claim(1, level, claimed)).unwrap();
                assert_eq!(claims.meet(3, &range(span)), share && level != Some(2));
                claims.take(claim(2, other, span)).is_none()
            };
            for (level, other) in [(Some(3), Some(3)), (Some(3), None), (None, Some(3))] {
                assert_eq!(is_taken(level, other), share, "{claimed:?} {span:?}");
            }
            assert!(!is_taken(Some(2), Some(3)), "another level");
        }
    }
}

/// Two tables of a level, of which any may overlap in level 0 and none in another.
#[test]
fn levels_refuse_tables_that_share_a_key_and_find_all_that_overlap() {
    for first in spans() {
        for second in spans() {
            let share = any_key(|key| is_in(key, first) && is_in(key, second));
            assert_eq!(levels(&[(3, first), (3, second)]).is_err(), share, "{first:?} {second:?}");
            for level in [0, 3] {
                let Ok(levels) = levels(&[(level, first), (level, second)]) else { continue };
                check_levels(&levels, level, [first, second]);
            }
        }
    }
}

fn check_levels(levels: &Levels, level: usize, tables: [Span; 2]) {
    let having = |is_wanted: &dyn Fn(Span) -> bool| -> Vec<u64> {
        (1..).zip(tables).filter(|(_, span)| is_wanted(*span)).map(|(number, _)| number).collect()
    };
    for (from, to) in spans() {
        let right = having(&|span| any_key(|key| is_in(key, span) && is_in(key, (from, to))));
        let (first, last) = (from.as_bytes(), to.as_bytes());
        let found = numbers(&levels.overlapping(level, Some(first), Some(last)));
        assert_eq!(found, right, "{tables:?} {from} {to}");
        if level > 0 {
            let bytes = right.iter().map(|number| 1 << number).sum::<u64>();
            assert_eq!(
                levels.overlapping_bytes(level, first, last),
                bytes,
                "{tables:?} {from} {to}"
            );
        }
    }
    for key in keys() {
        let right = having(&|span| is_in(&key, span));
        let found = numbers(levels.candidates(&key).map(|(_, table)| table));
        assert_eq!(found, right, "{tables:?} {key:?}");
        if level > 0 {
            let located = levels.locate(level, &key).map(|table| table.meta.number.0);
            assert_eq!(located, right.first().copied(), "{tables:?} {key:?}");
            assert_eq!(levels.is_bottom_for(level - 1, &key), right.is_empty());
            assert!(levels.is_bottom_for(level, &key));
        }
    }
}

/// What is merged in a range is whole: the range has all keys of its inputs, and no table of the
/// levels down to the output, and none of a level that is merged, reaches into it from outside.
#[test]
fn a_merge_takes_in_every_table_that_reaches_into_its_range() {
    let mut grown = 0;
    for upper in spans() {
        for lower in spans() {
            let levels = levels(&[(BOTTOM - 1, upper), (BOTTOM, lower)]).unwrap();
            for range in ranges() {
                for merged in 0..3 {
                    let pick = pick_runs(&levels, range.clone(), merged, 3).selection;
                    let what =
                        || format!("{upper:?} {lower:?} {range:?} {merged}: {:?}", pick.range);
                    for (_, table) in &pick.inputs {
                        let meta = &table.meta;
                        let has = |key: &[u8]| pick.range.contains(key);
                        assert!(has(&meta.smallest_key) && has(&meta.largest_key), "{}", what());
                    }
                    let inputs = numbers(pick.inputs.iter().map(|(_, table)| table));
                    let above = levels.tables().filter(|(level, _)| *level <= pick.output_level);
                    let span = |number: FileNumber| [upper, lower][number.0 as usize - 1];
                    let reaches = |number| {
                        any_key(|key| pick.range.contains(key) && is_in(key, span(number)))
                    };
                    let right =
                        above.map(|(_, table)| table.meta.number).filter(|number| reaches(*number));
                    assert_eq!(
                        inputs,
                        right.map(|number| number.0).collect::<Vec<_>>(),
                        "{}",
                        what()
                    );
                    grown += usize::from(pick.range != range);
                }
            }
        }
    }
    assert!(grown > 100, "{grown}");
}

/// The same of compactions between two levels: what they claim has all keys of what they take.
#[test]
fn a_compaction_takes_in_all_that_overlaps_below_and_claims_all_of_it() {
    let settings = Settings::default();
    for upper in spans() {
        for lower in spans() {
            let levels = levels(&[(2, upper), (LEVELS - 1, lower)]).unwrap();
            for (from, to) in spans() {
                let ends = (Some(from.as_bytes()), Some(to.as_bytes()));
                let mut claims = Claims::default();
                let choose = |claims: &Claims| {
                    let writing = Writing::GoesOn;
                    let oldest_read = Sequence::MAX;
                    let view =
                        View { levels: &levels, claims, settings: &settings, writing, oldest_read };
                    leveled::choose_in_range(&view, 2, ends, None)
                };
                let chosen = choose(&claims).unwrap();
                let is_asked = any_key(|key| is_in(key, upper) && is_in(key, (from, to)));
                assert_eq!(chosen.is_some(), is_asked, "{upper:?} {from} {to}");
                let Some(chosen) = chosen else { continue };
                let share = any_key(|key| is_in(key, upper) && is_in(key, lower));
                assert_eq!(chosen.inputs.len(), 1 + usize::from(share), "{upper:?} {lower:?}");
                let claim = chosen.claim();
                for (_, table) in &chosen.inputs {
                    assert!(claim.tables.contains(&table.meta.number));
                    assert!(claim.range.contains(&table.meta.smallest_key));
                    assert!(claim.range.contains(&table.meta.largest_key));
                }
                // Another one in its way hears of it.
                claims.take(claim).unwrap();
                assert!(choose(&claims).is_err(), "{upper:?} {lower:?}");
            }
        }
    }
}
