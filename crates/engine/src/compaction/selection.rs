//! What a merge takes in and where its output goes.

use crate::table_set::claims::Claim;
use crate::table_set::key_range::KeyRange;
use crate::table_set::table::Table;
use std::sync::Arc;

/// A merge worth doing: plain data, which a chooser gives and a job carries out.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// The tables with their levels, those of upper levels first.
    pub inputs: Vec<(usize, Arc<Table>)>,
    pub output_level: usize,
    /// All keys of the inputs.
    pub range: KeyRange,
}

impl Selection {
    /// The highest level that tables come from.
    pub fn source_level(&self) -> usize {
        self.inputs.first().map_or(self.output_level, |(level, _)| *level)
    }

    /// The tables of that level.
    pub fn upper(&self) -> impl Iterator<Item = &Arc<Table>> {
        let from = self.source_level();
        self.inputs.iter().filter(move |(level, _)| *level == from).map(|(_, table)| table)
    }

    /// Bytes of the inputs.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, table)| table.meta.bytes).sum()
    }

    /// What the merge takes for itself, where it writes one level only.
    pub fn claim(&self) -> Claim {
        let tables = self.inputs.iter().map(|(_, table)| table.meta.number).collect();
        Claim { tables, level: Some(self.output_level as u8), range: self.range.clone() }
    }

    /// As [`Selection::claim`], where no other may write a key of the range to any level.
    pub fn claim_of_all_levels(&self) -> Claim {
        Claim { level: None, ..self.claim() }
    }
}
