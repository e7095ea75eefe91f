//! Look-ups of several keys, as of one moment.
//!
//! They go in rounds: each round asks every unanswered key's next tables until it needs a block
//! that is not cached, then reads all those blocks, on all tiers, as one batch. It counts, and
//! moves records up, as that many single look-ups do.

use super::Reader;
use crate::error::Result;
use crate::layout::{Answer, TableAnswer, Wanted};
use crate::locator::Locator;
use crate::table_set::levels::Levels;
use crate::table_set::levels::settles;
use crate::table_set::table::Table;
use crate::versions::Version;
use crate::versions::snapshots::Snapshot;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::read_batch;
use thermocline_foundation::Sequence;
use thermocline_table::{Block, BlockRead, Lookup, Probe, Trailer, key_hash};

impl Reader {
    /// The values of `keys`, in their order.
    pub fn multi_get(&self, keys: &[&[u8]], asked: Option<Sequence>) -> Result<Vec<Option<Bytes>>> {
        // Held to the end, so that no version is dropped for which the keys' moment is too late.
        let registers = self.layout.moves_records() && asked.is_none();
        let registered = registers.then(|| self.versions.snapshot());
        let version = self.versions.current_full();
        let moment = asked.or_else(|| registered.as_ref().map(Snapshot::sequence));
        let moment = moment.unwrap_or_else(|| self.versions.visible());
        self.multi_get_at(keys, moment, version, asked.is_none())
    }

    /// As [`Reader::multi_get`]; `is_now` where no caller asked for `moment`.
    pub(super) fn multi_get_at(
        &self,
        keys: &[&[u8]],
        moment: Sequence,
        mut version: Arc<Version>,
        is_now: bool,
    ) -> Result<Vec<Option<Bytes>>> {
        let results = vec![None; keys.len()];
        let (left, single) = (Vec::new(), Vec::new());
        let mut wanted = Wanted { keys, moment, left, single, results };
        for (at, key) in keys.iter().enumerate() {
            match self.get_in_memory(&version, key, moment) {
                Some(found) => wanted.answer(at, Some(found)),
                None => wanted.left.push(at),
            }
        }
        self.layout.get_many(&mut wanted)?;
        let single = std::mem::take(&mut wanted.single);
        for at in &single {
            wanted.results[*at] = self.get(keys[*at], Some(moment))?;
        }
        if self.layout.moves_records() {
            version = self.versions.current_full();
        }
        self.shared.note_gets((keys.len() - single.len()) as u64);
        let places = (self.layout.locator(), &*version.levels);
        let search = |at: &usize| Search::new(*at, keys[*at], moment, places);
        let mut searches: Vec<_> = wanted.left.iter().map(search).collect();
        while !searches.is_empty() {
            let mut waiting = Vec::new();
            for mut search in std::mem::take(&mut searches) {
                match search.advance()? {
                    None => self.answer(&mut wanted, search, is_now),
                    Some(read) => waiting.push((search, read)),
                }
            }
            searches = fetch(waiting)?;
        }
        Ok(wanted.results)
    }

    /// Answers with what a search of the tables found, and tells the layout.
    fn answer(&self, wanted: &mut Wanted<'_>, search: Search<'_>, is_now: bool) {
        let Search { index, key, hash, snapshot, newest, .. } = search;
        let Some((found, table)) = newest else {
            self.layout.answered(Answer::Nothing);
            return;
        };
        self.layout.answered(Answer::Table(TableAnswer {
            key,
            hash,
            found: (found.0, &found.1),
            table: table.meta.number,
            // What the table has of a later moment may be the same key's, and newer.
            is_newest: is_now && table.meta.largest_sequence <= snapshot,
        }));
        wanted.answer(index, Some(found));
    }
}

/// The look-up of one key of a `multi_get`, between rounds.
struct Search<'a> {
    index: usize,
    key: &'a [u8],
    hash: u64,
    snapshot: Sequence,
    candidates: std::vec::IntoIter<(usize, Arc<Table>)>,
    /// The table whose block is being fetched.
    table: Option<Arc<Table>>,
    /// The newest version so far, and the table that has it.
    newest: Option<((Trailer, Bytes), Arc<Table>)>,
}

impl<'a> Search<'a> {
    fn new(
        index: usize,
        key: &'a [u8],
        snapshot: Sequence,
        (locator, levels): (&Locator, &Levels),
    ) -> Self {
        let candidates = locator.candidates(levels, key);
        let candidates: Vec<_> =
            candidates.map(|(level, table)| (level, Arc::clone(table))).collect();
        Self {
            index,
            key,
            hash: key_hash(key),
            snapshot,
            candidates: candidates.into_iter(),
            table: None,
            newest: None,
        }
    }

    /// Goes through tables until the answer is known (none) or a block must be read.
    fn advance(&mut self) -> Result<Option<BlockRead>> {
        while let Some((level, table)) = self.candidates.next() {
            if self.newest.as_ref().is_some_and(|((best, _), _)| settles(*best, level, &table)) {
                break;
            }
            if table.stored_snapshot(self.snapshot).is_none() {
                continue;
            }
            match table.reader()?.probe(self.key, self.hash)? {
                Probe::Absent => {}
                Probe::Cached(block) => self.look(&table, &block)?,
                Probe::Fetch(read) => {
                    self.table = Some(table);
                    return Ok(Some(read));
                }
            }
        }
        Ok(None)
    }

    fn look(&mut self, table: &Arc<Table>, block: &Block) -> Result<()> {
        let Some(snapshot) = table.stored_snapshot(self.snapshot) else { return Ok(()) };
        let found = match table.reader()?.get_in(block, self.key, snapshot)? {
            Lookup::Found(trailer, value) => Some((table.trailer(trailer), value)),
            Lookup::Absent => None,
            // So many versions that they run over into the next block; rare enough for the plain
            // way.
            Lookup::NextBlock => table.get(self.key, self.snapshot)?,
        };
        if let Some(found) = found
            && self.newest.as_ref().is_none_or(|((best, _), _)| found.0 > *best)
        {
            self.newest = Some((found, Arc::clone(table)));
        }
        Ok(())
    }
}

/// Reads the wanted blocks in one batch and looks the keys up in them.
fn fetch(wanted: Vec<(Search<'_>, BlockRead)>) -> Result<Vec<Search<'_>>> {
    let mut reads = Vec::with_capacity(wanted.len());
    let mut tables = Vec::with_capacity(wanted.len());
    for (search, _) in &wanted {
        tables.extend(search.table.clone());
    }
    for (table, (_, read)) in tables.iter().zip(&wanted) {
        reads.push(read.read_at(table.reader()?.file()));
    }
    let arrived = read_batch(&reads);
    let mut searches = Vec::with_capacity(wanted.len());
    for (((mut search, read), table), stored) in wanted.into_iter().zip(&tables).zip(arrived) {
        let block = table.reader()?.fetch(&read, stored)?;
        search.table = None;
        search.look(table, &block)?;
        searches.push(search);
    }
    Ok(searches)
}
