//! The tables that a merge reads, as its sources.

use crate::limits::LEVELS;
use crate::merge::{LevelCursor, Source, Tables};
use crate::table_set::levels::may_overlap;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_table::ReadAhead;

/// One source for each table of a level that may overlap, and one for all of another level, from
/// the newest to the oldest.
pub(crate) fn sources_of(inputs: &[(usize, Arc<Table>)], read_ahead: ReadAhead) -> Vec<Source> {
    let mut sources = Vec::new();
    for level in 0..LEVELS {
        let of_level = inputs.iter().filter(|(of, _)| *of == level);
        let tables: Vec<_> = of_level.map(|(_, table)| Arc::clone(table)).collect();
        let cursors = match may_overlap(level) {
            true => tables.into_iter().map(|table| vec![table]).collect(),
            false if tables.is_empty() => Vec::new(),
            false => vec![tables],
        };
        sources.extend(cursors.into_iter().map(|tables| {
            Source::Level(Box::new(LevelCursor::new(Tables::Listed(tables), read_ahead)))
        }));
    }
    sources
}
