//! Ranges of keys, and which tables a merge of one takes in.
//!
//! ```text
//!   oldest run     |  a   b  |  c   d  |  e   f  |              one range a table (or several),
//!   newer runs        [ a ...... c ]     [ e ............ k ]    and one behind the last
//! ```
//! A range grows until nothing that is merged in it, and nothing above that, reaches out of it.
//! `choice.rs` decides which of them is worth a merge, and of how many runs.

use crate::compaction::selection::Selection;
use crate::layout::hybrid::rules::fullness::EvictionStep;
use crate::limits::LEVELS;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::{Levels, may_overlap};
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::Sequence;

/// The level of the oldest run.
pub(crate) const BOTTOM: usize = LEVELS - 1;

/// What a demotion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Room, by these means: cold records leave, and where it comes to that, hot ones.
    Room(EvictionStep),
    /// Reads of tables: what is hot there moves up, and what is cold leaves.
    Reads,
    /// Space of the slow tier: tombstones leave and end, with what they hide.
    Space,
    /// All of a range is to be in tables, in one run.
    Compaction,
}

impl Purpose {
    /// Writers may wait for it.
    pub fn makes_room(self) -> bool {
        matches!(self, Self::Room(_))
    }
}

/// A demotion to be carried out: what is merged, and what leaves with it.
#[derive(Clone, Debug)]
pub(crate) struct DemotionPlan {
    pub selection: Selection,
    pub purpose: Purpose,
    /// It gives up where less than this would leave.
    pub bytes_min: u64,
    /// Bytes of records after which no more are taken along.
    pub bytes_max: u64,
    /// The newest bulk load that is merged; zero where none is. Records that a load may have
    /// replaced leave, hot or not.
    pub ingested: Sequence,
    /// What its merge was worth, where it was chosen by that.
    pub score: Option<f64>,
    /// What the budget of the slow tier keeps for it.
    pub promised_bytes: u64,
}

impl DemotionPlan {
    /// A plan for reads, without bounds.
    pub fn new(selection: Selection, ingested: Sequence) -> Self {
        Self {
            selection,
            purpose: Purpose::Reads,
            bytes_min: 0,
            bytes_max: u64::MAX,
            ingested,
            score: None,
            promised_bytes: 0,
        }
    }

    /// Bytes of the tables that are merged.
    pub fn bytes(&self) -> u64 {
        self.selection.bytes()
    }

    /// The tables of bulk loads.
    pub fn loads(&self) -> impl Iterator<Item = &Arc<Table>> {
        let tables = self.selection.inputs.iter().map(|(_, table)| table);
        tables.filter(|table| table.meta.ingested_at.is_some())
    }
}

/// The runs of a range, from the newest: each is a level's tables that touch it.
pub(crate) fn runs_of(levels: &Levels, range: &KeyRange) -> Vec<(usize, Vec<Arc<Table>>)> {
    let tables_of = |level: usize| {
        let tables = levels.level(level).iter().filter(|table| range.touches(table));
        (level, tables.cloned().collect::<Vec<_>>())
    };
    (0..LEVELS).map(tables_of).filter(|(_, tables)| !tables.is_empty()).collect()
}

/// The sequence of the newest bulk load that a table of the range is from; zero where none is.
pub(crate) fn newest_ingest(levels: &Levels, range: &KeyRange) -> Sequence {
    let tables = levels.tables().filter(|(_, table)| range.touches(table));
    tables.filter_map(|(_, table)| table.meta.ingested_at).max().unwrap_or(Sequence::ZERO)
}

/// What merging the `merged` newest runs of `range` comes to; the range grows until no table that
/// is merged, and none above it, reaches out of it. Where it comes upon a bulk load, all runs of
/// what it has grown to are merged. All of them together go to the bottom, also where the oldest
/// lies higher: behind the last table of the bottom's run others may have more.
pub(crate) fn pick_runs(
    levels: &Levels,
    mut range: KeyRange,
    merged: usize,
    runs_max: usize,
) -> DemotionPlan {
    let top = LEVELS - runs_max;
    loop {
        let runs = runs_of(levels, &range);
        let ingested = newest_ingest(levels, &range);
        let merged = if ingested > Sequence::ZERO { runs.len() } else { merged.min(runs.len()) };
        let above = runs.first().map_or(LEVELS, |(level, _)| *level);
        let output_level = match merged {
            0 if above > top => above - 1,
            merged if merged == runs.len() => BOTTOM,
            // Level 0 has what bulk loads and other presets left there.
            merged => runs.get(merged.max(1) - 1).map_or(BOTTOM, |(level, _)| (*level).max(top)),
        };
        let before = range.clone();
        let mut inputs: Vec<(usize, Arc<Table>)> = Vec::new();
        for (level, tables) in runs.into_iter().filter(|(level, _)| *level <= output_level) {
            tables.iter().for_each(|table| range.include(table));
            inputs.extend(tables.into_iter().map(|table| (level, table)));
        }
        if range == before {
            return DemotionPlan::new(Selection { inputs, output_level, range }, ingested);
        }
    }
}

/// The ranges to choose among: what `width` consecutive tables of the oldest run span, and what
/// lies behind the last of them, where nothing need be rewritten.
pub(crate) fn ranges(levels: &Levels, width: usize) -> Vec<KeyRange> {
    let tables = levels.level(levels.deepest());
    let Some(last) = tables.last().filter(|_| !may_overlap(levels.deepest())) else {
        return vec![KeyRange::default()];
    };
    let behind = [&last.meta.largest_key[..], &[0]].concat();
    let count = (tables.len() + 1).saturating_sub(width).max(1);
    let start = |index: usize| {
        let table = tables.get(index).map(|table| table.meta.smallest_key.clone());
        table.unwrap_or_else(|| behind.clone())
    };
    let range = |first: usize| KeyRange {
        from: (first > 0).then(|| start(first)),
        to: Some(start(first + width)),
    };
    let mut ranges: Vec<_> = (0..count).map(range).collect();
    ranges.push(KeyRange { from: Some(behind), to: None });
    ranges
}

/// Tables of a level that the range touches.
pub(crate) fn count_touching(levels: &Levels, level: usize, range: &KeyRange) -> usize {
    levels.level(level).iter().filter(|table| range.touches(table)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{one_tier, stepped};
    use crate::table_set::manifest::Edit;
    use crate::table_set::table::TableMeta;
    use thermocline_foundation::FileNumber;

    /// Tables of one level each, by first and last key; none of them is opened.
    fn levels(tables: &[(usize, &str, &str)]) -> Levels {
        let db = stepped(&one_tier());
        let added = tables.iter().zip(1..).map(|((level, smallest, largest), number)| {
            let meta = TableMeta {
                number: FileNumber(number),
                bytes: 1 << 20,
                entries: 1000,
                deletes: 0,
                older_versions: 0,
                smallest_key: smallest.as_bytes().to_vec(),
                largest_key: largest.as_bytes().to_vec(),
                smallest_sequence: Sequence(1),
                largest_sequence: Sequence(1000),
                ingested_at: None,
            };
            (*level as u8, meta)
        });
        let edit = Edit { added: added.collect(), ..Edit::default() };
        Levels::default().apply(&edit, &db.engine().versions().store).unwrap()
    }

    fn range(from: Option<&str>, to: Option<&str>) -> KeyRange {
        let owned = |key: Option<&str>| key.map(|key| key.as_bytes().to_vec());
        KeyRange { from: owned(from), to: owned(to) }
    }

    /// The numbers of the tables that merging the newest `merged` runs of a range takes in, and the
    /// level they go to.
    fn merge(levels: &Levels, of: &KeyRange, merged: usize) -> (Vec<u64>, usize) {
        let pick = pick_runs(levels, of.clone(), merged, 3);
        let mut numbers: Vec<_> =
            pick.selection.inputs.iter().map(|(_, table)| table.meta.number.0).collect();
        numbers.sort_unstable();
        (numbers, pick.selection.output_level)
    }

    #[test]
    fn the_newest_runs_stay_above_the_oldest_and_all_together_go_to_the_bottom() {
        let levels = levels(&[(BOTTOM, "a", "f"), (BOTTOM - 1, "b", "e"), (BOTTOM, "g", "k")]);
        let first = range(None, Some("g"));
        assert_eq!(merge(&levels, &first, 0), (vec![], BOTTOM - 2), "a run of its own");
        assert_eq!(merge(&levels, &first, 1), (vec![2], BOTTOM - 1));
        assert_eq!(merge(&levels, &first, 2), (vec![1, 2], BOTTOM));
        assert_eq!(merge(&levels, &first, usize::MAX), (vec![1, 2], BOTTOM));
    }

    /// What lies behind the bottom's last table has its oldest run higher up: left there, the
    /// levels would stay two however often all of it is compacted.
    #[test]
    fn a_run_behind_the_bottoms_last_table_goes_to_the_bottom_too() {
        let levels = levels(&[(BOTTOM, "a", "f"), (BOTTOM - 1, "h", "k")]);
        let behind = ranges(&levels, 1).pop().unwrap();
        assert_eq!(behind, range(Some("f\0"), None));
        assert_eq!(merge(&levels, &behind, usize::MAX), (vec![2], BOTTOM));
        assert_eq!(merge(&levels, &behind, 0), (vec![], BOTTOM - 2));
    }

    #[test]
    fn ranges_of_several_tables_begin_at_each_but_the_last_ones_and_end_with_what_lies_behind() {
        let levels = levels(&[
            (BOTTOM, "a", "b"),
            (BOTTOM, "c", "d"),
            (BOTTOM, "e", "f"),
            (BOTTOM, "g", "h"),
            (BOTTOM - 1, "a", "z"),
        ]);
        let behind = range(Some("h\0"), None);
        let two =
            [range(None, Some("e")), range(Some("c"), Some("g")), range(Some("e"), Some("h\0"))];
        assert_eq!(ranges(&levels, 2), [&two[..], std::slice::from_ref(&behind)].concat());
        assert_eq!(ranges(&levels, 3)[0], range(None, Some("g")));
        assert_eq!(ranges(&levels, 3)[1..], [range(Some("c"), Some("h\0")), behind.clone()]);
        for width in [4, 5, 64] {
            assert_eq!(ranges(&levels, width), [range(None, Some("h\0")), behind.clone()]);
        }
        assert_eq!(ranges(&Levels::default(), 2), [KeyRange::default()]);
    }

    #[test]
    fn a_range_grows_to_the_whole_of_what_is_merged_and_takes_in_what_it_grows_to() {
        let levels = levels(&[
            (BOTTOM, "a", "c"),
            (BOTTOM, "d", "f"),
            (BOTTOM, "g", "i"),
            (BOTTOM - 1, "b", "e"),
        ]);
        let first = range(None, Some("d"));
        assert_eq!(merge(&levels, &first, 1), (vec![4], BOTTOM - 1));
        assert_eq!(merge(&levels, &first, 2), (vec![1, 2, 4], BOTTOM));
        let grown = pick_runs(&levels, first, 2, 3).selection.range;
        assert_eq!(grown, range(None, Some("f\0")));
        assert!(grown.contains(b"f") && !grown.contains(b"g"));
        assert!(range(Some("b"), None).contains(b"b") && !range(Some("b"), None).contains(b"a"));
    }
}
