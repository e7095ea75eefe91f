//! What is merged for space, as tables.

use super::*;
use crate::Settings;
use crate::support::{one_tier, stepped, tier};
use crate::table_set::claims::{Claim, Claims};
use crate::table_set::manifest::Edit;
use thermocline_foundation::{FileNumber, Sequence};

/// A table: its level, its keys, entries, tombstones among them, and its newest sequence. A record
/// has 100 bytes, a tombstone 10.
type Row = (usize, (&'static str, &'static str), u64, u64, u64);

fn meta(number: u64, (_, (first, last), entries, deletes, newest): Row) -> TableMeta {
    TableMeta {
        number: FileNumber(number),
        bytes: (entries - deletes) * 100 + deletes * 10,
        entries,
        deletes,
        older_versions: 0,
        smallest_key: first.into(),
        largest_key: last.into(),
        smallest_sequence: Sequence(1),
        largest_sequence: Sequence(newest),
        ingested_at: None,
    }
}

/// Numbers of tables that are merged, and the level that they go to.
type Merged = Option<(Vec<u64>, usize)>;

/// What was found: what is merged, whether a merge waits for a snapshot, and the table to look at.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    merged: Merged,
    waits: bool,
    look: Option<u64>,
}

/// A table with its older versions, and its records that hide others, where there is an estimate.
#[derive(Clone, Debug)]
struct Given(Row, u64, Option<u64>);

/// Some state to search.
struct Searched<'a> {
    levels: &'a Levels,
    claims: Claims,
    settings: &'a Settings,
    writing: Writing,
    /// The oldest sequence that a reader may ask for.
    oldest: u64,
}

impl Searched<'_> {
    fn reclaim(&self) -> Reclaim {
        reclaim(&View {
            levels: self.levels,
            claims: &self.claims,
            settings: self.settings,
            writing: self.writing,
            oldest_read: Sequence(self.oldest),
        })
    }

    fn found(&self) -> Found {
        let Reclaim { selection, look, waits_for_snapshot: waits } = self.reclaim();
        let merged = selection.map(|selection| {
            let numbers = selection.inputs.iter().map(|(_, table)| table.meta.number.0).collect();
            (numbers, selection.output_level)
        });
        Found { merged, waits, look: look.map(|table| table.meta.number.0) }
    }
}

fn settings() -> Settings {
    Settings { tiers: vec![tier("/tier", 1 << 10)], ..one_tier() }
}

/// These tables, numbered from 1 on.
fn levels_of(given: &[Given], settings: &Settings) -> Levels {
    let db = stepped(settings);
    let added = given.iter().zip(1..).map(|(Given(row, older_versions, _), number)| {
        (row.0 as u8, TableMeta { older_versions: *older_versions, ..meta(number, *row) })
    });
    let edit = Edit { added: added.collect(), ..Edit::default() };
    let levels = Levels::default().apply(&edit, &db.engine().versions().store).unwrap();
    for (_, table) in levels.tables() {
        let Given(_, _, overwrites) = given[table.meta.number.0 as usize - 1];
        overwrites.into_iter().for_each(|records| table.set_overwrites(records));
    }
    levels
}

fn searched(given: &[Given], oldest: u64, writing: Writing) -> Found {
    let settings = settings();
    let (levels, claims) = (&levels_of(given, &settings), Claims::default());
    Searched { levels, claims, settings: &settings, writing, oldest }.found()
}

/// The tables that are merged and the level that they go to, `oldest` being the oldest sequence
/// that a reader may ask for, while running merges have the tables `taken`; and whether a merge
/// waits for a snapshot.
fn reclaimed(rows: &[Row], oldest: u64, taken: &[u64]) -> (Merged, bool) {
    let settings = settings();
    let given: Vec<_> = rows.iter().map(|row| Given(*row, 0, None)).collect();
    let mut claims = Claims::default();
    if !taken.is_empty() {
        let tables = taken.iter().copied().map(FileNumber).collect();
        let range = KeyRange::spanning(b"zz", b"zz");
        claims.take(Claim { tables, level: Some(6), range }).unwrap();
    }
    let levels = &levels_of(&given, &settings);
    let searched = Searched { levels, claims, settings: &settings, writing: Writing::Over, oldest };
    let Found { merged, waits, .. } = searched.found();
    (merged, waits)
}

#[test]
fn tombstones_go_down_where_they_free_a_quarter_of_what_is_rewritten() {
    let all = ("a", "z");
    let over = |deletes| [(5, all, 1000, deletes, 9), (6, all, 1000, 0, 8)];
    let table: [(&[Row], Merged); 10] = [
        (&[(6, all, 1000, 0, 9)], None),
        (&over(0), None),
        // 400 of 1000 records below, 64,000 + 100,000 bytes are rewritten.
        (&over(400), None),
        (&over(420), Some((vec![1, 2], 6))),
        (&over(1000), Some((vec![1, 2], 6))),
        // Tombstones over nothing, and at the bottom: they end.
        (&[(5, ("a", "c"), 10, 10, 9), (6, ("d", "z"), 1000, 0, 8)], Some((vec![1], 6))),
        (&[(6, all, 1000, 240, 9)], None),
        (&[(6, all, 1000, 260, 9)], Some((vec![1], 6))),
        // What they hide lies two levels down.
        (&[(4, all, 500, 500, 9), (6, all, 1000, 0, 8)], Some((vec![1], 5))),
        // Level 0 goes as a whole, also where it hides records of itself only.
        (&[(0, all, 500, 500, 9), (0, all, 500, 0, 8)], Some((vec![1, 2], 6))),
    ];
    for (rows, merged) in table {
        assert_eq!(reclaimed(rows, 9, &[]), (merged, false), "{rows:?}");
    }
}

#[test]
fn the_merge_that_frees_most_for_what_it_rewrites_is_the_first() {
    let rows = [
        (5, ("a", "f"), 1000, 600, 9),
        (5, ("g", "l"), 1000, 900, 9),
        (5, ("m", "z"), 1000, 700, 9),
        (6, ("a", "f"), 1000, 0, 8),
        (6, ("g", "l"), 1000, 0, 8),
        (6, ("m", "z"), 1000, 0, 8),
    ];
    assert_eq!(reclaimed(&rows, 9, &[]).0, Some((vec![2, 5], 6)));
    assert_eq!(reclaimed(&rows, 9, &[5]).0, Some((vec![3, 6], 6)), "a merge has one of them");
    assert_eq!(reclaimed(&rows, 9, &[1, 5, 6]).0, None);
}

#[test]
fn what_a_snapshot_needs_waits_for_its_end() {
    let rows = [(5, ("a", "z"), 1000, 1000, 9), (6, ("a", "z"), 1000, 0, 8)];
    assert_eq!(reclaimed(&rows, 8, &[]), (None, true));
    assert_eq!(reclaimed(&rows, 9, &[]), (Some((vec![1, 2], 6)), false));
    assert_eq!(reclaimed(&[(6, ("a", "z"), 10, 10, 9)], 8, &[]), (None, true));
    assert_eq!(reclaimed(&[(6, ("a", "z"), 10, 1, 9)], 8, &[]), (None, false), "nor worth it then");
}

const ALL: (&str, &str) = ("a", "z");

/// A table of level 5 over one of level 6, of 1000 records each.
fn over(overwrites: Option<u64>) -> Vec<Given> {
    vec![Given((5, ALL, 1000, 0, 9), 0, overwrites), Given((6, ALL, 1000, 0, 8), 0, None)]
}

#[test]
fn overwritten_records_are_a_reason_by_the_same_share_at_rest() {
    let merged = |numbers: &[u64], level| Some((numbers.to_vec(), level));
    let table: [(Vec<Given>, Merged, Option<u64>); 12] = [
        (over(Some(1000)), merged(&[1, 2], 6), None),
        (over(Some(500)), merged(&[1, 2], 6), None),
        (over(Some(490)), None, None),
        // Scattered, a tenth: not worth it.
        (over(Some(100)), None, None),
        (over(Some(0)), None, None),
        // There is no estimate, and it may be worth it.
        (over(None), None, Some(1)),
        // It would not be if all were overwritten.
        (
            vec![Given((5, ALL, 100, 0, 9), 0, None), Given((6, ALL, 1000, 0, 8), 0, None)],
            None,
            None,
        ),
        // A range was overwritten.
        (
            vec![
                Given((5, ("a", "f"), 1000, 0, 9), 0, Some(0)),
                Given((5, ("g", "l"), 1000, 0, 9), 0, Some(1000)),
                Given((6, ("a", "f"), 1000, 0, 8), 0, None),
                Given((6, ("g", "l"), 1000, 0, 8), 0, None),
            ],
            merged(&[2, 4], 6),
            None,
        ),
        // Together with tombstones.
        (
            vec![Given((5, ALL, 1000, 300, 9), 0, Some(200)), Given((6, ALL, 1000, 0, 8), 0, None)],
            merged(&[1, 2], 6),
            None,
        ),
        // Tables of level 0 hide records of each other; the oldest hides nothing.
        (
            vec![Given((0, ALL, 500, 0, 9), 0, None), Given((0, ALL, 500, 0, 8), 0, None)],
            None,
            Some(1),
        ),
        (
            vec![Given((0, ALL, 500, 0, 9), 0, Some(500)), Given((0, ALL, 500, 0, 8), 0, None)],
            merged(&[1, 2], 6),
            None,
        ),
        // What it hides lies two levels down.
        (
            vec![Given((4, ALL, 500, 0, 9), 0, Some(500)), Given((6, ALL, 1000, 0, 8), 0, None)],
            merged(&[1], 5),
            None,
        ),
    ];
    for (given, merged, look) in table {
        let found = searched(&given, 9, Writing::Over);
        assert_eq!(found, Found { merged, waits: false, look }, "{given:?}");
        assert_eq!(searched(&given, 9, Writing::NotBegun), found, "after an opening, too");
    }
}

#[test]
fn older_versions_of_a_table_end_where_it_lies() {
    let bottom = |older| [Given((6, ALL, 1000, 0, 9), older, None)];
    let merged = |older, oldest| searched(&bottom(older), oldest, Writing::Over);
    let found = |merged, waits| Found { merged, waits, look: None };
    assert_eq!(merged(240, 9), found(None, false));
    assert_eq!(merged(250, 9), found(Some((vec![1], 6)), false));
    assert_eq!(merged(250, 8), found(None, true), "a snapshot has them");
}

#[test]
fn while_there_are_writes_overwritten_records_wait() {
    let nothing = Found { merged: None, waits: false, look: None };
    let older = vec![Given((6, ALL, 1000, 0, 9), 500, None)];
    for given in [over(Some(1000)), over(None), older] {
        assert_eq!(searched(&given, 9, Writing::GoesOn), nothing, "{given:?}");
    }
}

#[test]
fn overwritten_records_that_a_snapshot_needs_wait_for_its_end() {
    let found = |overwrites, oldest| searched(&over(overwrites), oldest, Writing::Over);
    assert_eq!(found(Some(1000), 8), Found { merged: None, waits: true, look: None });
    assert_eq!(found(Some(100), 8), Found { merged: None, waits: false, look: None });
    assert_eq!(found(None, 8), Found { merged: None, waits: false, look: Some(1) });
}

/// Every look says that all records hide some, and no merge finds any.
#[test]
fn looks_that_are_always_wrong_cost_a_table_a_merge_a_level() {
    let settings = settings();
    let row = |level, keys| Given((level, keys, 1000, 0, 9), 0, None);
    let halves = [("a", "l"), ("m", "z")];
    let given: Vec<_> = [0, 0, 2, 3, 4, 5, 6]
        .into_iter()
        .flat_map(|level| halves.map(|keys| row(level, keys)))
        .collect();
    let db = stepped(&settings);
    let mut levels = levels_of(&given, &settings);
    let (mut merges, mut looks, mut next) = (0, 0, 100);
    loop {
        let (writing, oldest) = (Writing::Over, 9);
        let claims = Claims::default();
        let searched = Searched { levels: &levels, claims, settings: &settings, writing, oldest };
        let Reclaim { selection, look, .. } = searched.reclaim();
        if let Some(Selection { inputs, output_level, .. }) = selection {
            merges += 1;
            let sum = |of: fn(&TableMeta) -> u64| inputs.iter().map(|(_, it)| of(&it.meta)).sum();
            let smallest = inputs.iter().map(|(_, it)| it.meta.smallest_key.clone()).min();
            let largest = inputs.iter().map(|(_, it)| it.meta.largest_key.clone()).max();
            let output = TableMeta {
                number: FileNumber(next),
                bytes: sum(|meta| meta.bytes),
                entries: sum(|meta| meta.entries),
                smallest_key: smallest.unwrap(),
                largest_key: largest.unwrap(),
                ..inputs[0].1.meta.clone()
            };
            next += 1;
            let removed = inputs.iter().map(|(level, it)| (*level as u8, it.meta.number));
            let (removed, added) = (removed.collect(), vec![(output_level as u8, output)]);
            let edit = Edit { removed, added, ..Edit::default() };
            levels = levels.apply(&edit, &db.engine().versions().store).unwrap();
        } else if let Some(table) = look {
            looks += 1;
            table.set_overwrites(table.meta.entries);
        } else {
            break;
        }
        assert!(merges <= given.len() * 7, "it does not end");
    }
    assert!(merges > 0 && looks > 0, "{merges} {looks}");
    assert!(looks <= given.len() + merges, "a table is looked at once: {looks} {merges}");
}
