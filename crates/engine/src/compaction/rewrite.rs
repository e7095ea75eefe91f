//! Rewriting: merges sorted sources into new tables, dropping what no reader can see any more.
//! Flushes and compactions are both this.
//!
//! What is dropped ([`Retention`]): the snapshots of the time cut the sequences into stripes; of a
//! key's versions only the newest in each stripe can be seen, so only it is kept. A tombstone is
//! dropped when every snapshot sees it or something newer, and no deeper level has its key: then
//! there is nothing left for it to hide.
//!
//! All versions of a key go to one table, so that a level stays disjoint by key. Where the tier of
//! that table has no room for another version, all that the table has moves to a tier that has.

use crate::error::{Error, ErrorKind, Result};
use crate::jobs::Step;
use crate::merge::{Merge, Target};
use crate::table_set::handed::{HandOver, Handed};
use crate::table_set::levels::Levels;
use crate::table_set::new_table::NewTable;
use crate::table_set::table::TableMeta;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::{FileContext, TieredFiles};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_table::{BlockCache, RecordKind, Samples, TableOptions, Trailer};

/// Bytes of keys and values that a step moves.
pub(crate) const STEP_BYTES: u64 = 1 << 20;

/// What is known of a key beside the entries that a rewrite reads, where one level may overlap.
pub(crate) trait Beside: Send + std::fmt::Debug {
    /// The newest version of the key in any table, as far as known, and whether a table has it that
    /// is not read.
    fn newest(&self, key: &[u8]) -> Result<Option<(Trailer, bool)>>;

    /// No table that is not read has an older version of the key than this tombstone, which is
    /// dropped then.
    fn drops(&self, key: &[u8], tombstone: Trailer) -> bool;
}

/// Decides which versions survive. Entries must come in merge order.
#[derive(Debug)]
pub(crate) struct Retention {
    /// Ascending; the last is the newest published sequence of the time.
    snapshots: Vec<Sequence>,
    /// The tables below the output and the output's level; none: tombstones must stay.
    below: Option<(Arc<Levels>, usize)>,
    beside: Option<Box<dyn Beside>>,
    key: Vec<u8>,
    has_key: bool,
    /// Stripe of the last kept (or rightly dropped) version of `key`.
    stripe: usize,
}

impl Retention {
    pub fn new(snapshots: Vec<Sequence>, below: Option<(Arc<Levels>, usize)>) -> Self {
        debug_assert!(snapshots.is_sorted());
        Self { snapshots, below, beside: None, key: Vec::new(), has_key: false, stripe: 0 }
    }

    /// Of tables that others may overlap.
    pub fn with_beside(mut self, beside: Box<dyn Beside>) -> Self {
        self.beside = Some(beside);
        self
    }

    fn stripe_of(&self, trailer: Trailer) -> usize {
        self.snapshots.partition_point(|snapshot| *snapshot < trailer.sequence())
    }

    /// A version that is not read hides this one, the first of its key, from all readers.
    fn is_hidden(&self, key: &[u8], trailer: Trailer) -> Result<bool> {
        let Some(beside) = self.beside.as_ref().filter(|_| self.is_first(key)) else {
            return Ok(false);
        };
        let stripe = self.stripe_of(trailer);
        // The same version elsewhere: a merge that was cut off has copied it.
        let hides = |(newest, elsewhere): &(Trailer, bool)| {
            *newest > trailer || *newest == trailer && *elsewhere
        };
        let newer = beside.newest(key)?.filter(hides);
        let stripe_of = |(newest, _)| self.stripe_of(newest);
        Ok(stripe < self.snapshots.len() && newer.map(stripe_of) == Some(stripe))
    }

    fn is_first(&self, key: &[u8]) -> bool {
        !self.has_key || self.key != key
    }

    /// Whether the entry survives, and whether it is the first of its key.
    pub fn judge(&mut self, key: &[u8], trailer: Trailer) -> (bool, bool) {
        self.judge_unless(key, trailer, false)
    }

    /// As [`Retention::judge`], with what is known beside the entries.
    fn judge_beside(&mut self, key: &[u8], trailer: Trailer) -> Result<(bool, bool)> {
        let is_hidden = self.is_hidden(key, trailer)?;
        Ok(self.judge_unless(key, trailer, is_hidden))
    }

    fn judge_unless(&mut self, key: &[u8], trailer: Trailer, is_hidden: bool) -> (bool, bool) {
        let stripe = self.stripe_of(trailer);
        let first = self.is_first(key);
        if first {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.has_key = true;
            if is_hidden {
                self.stripe = stripe;
                return (false, true);
            }
        } else if stripe == self.stripe && stripe < self.snapshots.len() {
            return (false, false);
        }
        self.stripe = stripe;
        let hides_nothing = trailer.kind() == RecordKind::Delete
            && stripe == 0
            && !planted(Planted::TombstoneLeftBehind)
            && self.below.as_ref().map_or(planted(Planted::TombstoneDroppedInFlush), |below| {
                let (levels, level) = below;
                levels.is_bottom_for(*level, key) || planted(Planted::TombstoneDroppedAboveOlder)
            });
        let is_dropped = hides_nothing || self.drops_beside(key, trailer, stripe);
        (!is_dropped, first)
    }

    fn drops_beside(&self, key: &[u8], trailer: Trailer, stripe: usize) -> bool {
        let is_oldest = trailer.kind() == RecordKind::Delete && stripe == 0;
        is_oldest && self.beside.as_ref().is_some_and(|beside| beside.drops(key, trailer))
    }
}

/// How and where tables are written.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub context: FileContext,
    pub options: TableOptions,
    /// A table is closed at the first key after this many bytes.
    pub table_bytes: u64,
    /// About how large a table will be, for placement.
    pub expected_bytes: u64,
    /// Where the tables' partitions are kept, if the tables are about to be read.
    pub cache: Option<Arc<BlockCache>>,
}

/// What becomes of a key's newest entry in a rewrite.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate<'a> {
    /// It goes to a table. Which one is known when all are finished: one that is written may move.
    Kept { trailer: Trailer, value: &'a [u8] },
    /// It was a tombstone with nothing left to hide: neither the tables that are made nor any below
    /// them have the key.
    Ended,
}

/// See [`Rewrite::observed`].
pub(crate) type Observe = Box<dyn FnMut(&[u8], Fate<'_>) + Send>;

struct Observer(Observe);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// A rewrite under way.
#[derive(Debug)]
pub(crate) struct Rewrite {
    files: Arc<TieredFiles>,
    merge: Merge,
    started: bool,
    retention: Retention,
    output: Output,
    writer: Option<NewTable>,
    finished: Vec<TableMeta>,
    /// Of the table before, for the dictionary of the next.
    samples: Option<Samples>,
    /// Sees what becomes of every key.
    observer: Option<Observer>,
    /// Whether and within what memory it hands over where records lie.
    hand_over: Option<Arc<HandOver>>,
    handed: BTreeMap<FileNumber, Handed>,
    /// Files made and not yet handed over; deleted if the rewrite is dropped.
    unowned: Vec<FileNumber>,
}

impl Rewrite {
    pub fn new(
        files: Arc<TieredFiles>,
        merge: Merge,
        retention: Retention,
        output: Output,
    ) -> Self {
        Self {
            files,
            merge,
            started: false,
            retention,
            output,
            writer: None,
            finished: Vec::new(),
            samples: None,
            observer: None,
            hand_over: None,
            handed: BTreeMap::new(),
            unowned: Vec::new(),
        }
    }

    /// Lets `observe` see every key, and what becomes of its newest entry.
    pub fn observed(mut self, observe: Observe) -> Self {
        self.observer = Some(Observer(observe));
        self
    }

    /// Gathers where the records of the tables lie, within the memory of `hand_over`.
    pub fn handing_over(mut self, hand_over: Arc<HandOver>) -> Self {
        self.hand_over = Some(hand_over);
        self
    }

    /// Where the records lie of those tables that were finished and for which there was memory.
    pub fn take_handed(&mut self) -> BTreeMap<FileNumber, Handed> {
        std::mem::take(&mut self.handed)
    }

    /// Moves about [`STEP_BYTES`]; `Done` when all tables are written and synced.
    pub fn step(&mut self) -> Result<Step> {
        if !self.started {
            self.merge.position(Target::First)?;
            self.started = true;
        }
        let mut moved = 0;
        while moved < STEP_BYTES {
            let Some((key, trailer)) = self.merge.current() else {
                self.close_table()?;
                return Ok(Step::Done);
            };
            let (keep, first) = self.retention.judge_beside(key, trailer)?;
            moved += key.len() as u64 + 8;
            if keep {
                let full = self
                    .writer
                    .as_ref()
                    .is_some_and(|table| table.estimated_bytes() >= self.output.table_bytes);
                if full && first {
                    // `close_table` needs all of `self`; the key is taken again below.
                    self.close_table()?;
                    if planted(Planted::FirstEntryAfterCutSkipped) {
                        self.merge.step()?;
                        continue;
                    }
                }
                self.make_room()?;
                if let (Some(table), Some((key, trailer))) =
                    (&mut self.writer, self.merge.current())
                {
                    let value = self.merge.value_slice();
                    moved += value.len() as u64;
                    table.writer().add(key, trailer, value)?;
                    if let Some(Observer(observe)) = self.observer.as_mut().filter(|_| first) {
                        observe(key, Fate::Kept { trailer, value });
                    }
                }
            } else if let Some(Observer(observe)) = self.observer.as_mut().filter(|_| first) {
                // What it hid goes with it: all of that is in the same stripe, the oldest.
                observe(key, Fate::Ended);
            }
            self.merge.step()?;
        }
        Ok(Step::More)
    }

    /// Has a table that takes the current entry: the one that is written, where its tier has room
    /// for what it comes to, or else another.
    fn make_room(&mut self) -> Result<()> {
        while let (Some(table), Some((key, _))) = (&mut self.writer, self.merge.current()) {
            let value = self.merge.value_slice();
            match table.ask_for_room(key, value) {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                asked => return asked,
            }
            if table.writer().last_key() != key {
                break;
            }
            let bytes = table.bytes_with(key, value);
            self.move_table(bytes)?;
        }
        self.close_table()?;
        self.open_table(self.output.expected_bytes)
    }

    /// Has the table that is written begin again where there is room for so many bytes.
    fn move_table(&mut self, bytes: u64) -> Result<()> {
        let Some(outgrown) = self.writer.take() else { return Ok(()) };
        let number = outgrown.number();
        self.open_table(bytes)?;
        if let Some(table) = &mut self.writer {
            table.take_over(outgrown)?;
        }
        self.files.delete_files(&[number])?;
        self.unowned.retain(|unowned| *unowned != number);
        Ok(())
    }

    /// Begins a table of about so many bytes.
    fn open_table(&mut self, bytes: u64) -> Result<()> {
        let Some((key, _)) = self.merge.current() else { return Ok(()) };
        let entry = (key, self.merge.value_slice());
        let Output { context, options, expected_bytes, table_bytes, cache, .. } = &self.output;
        let options = options.clone();
        let table = NewTable::create(&self.files, *context, bytes, entry, options)?;
        self.unowned.push(table.number());
        let table_bytes = *expected_bytes.min(table_bytes);
        let table = table.following(self.samples.take(), table_bytes);
        let table = match &self.hand_over {
            Some(hand_over) => table.handing_over(hand_over.promise()),
            None => table,
        };
        self.writer = Some(match cache {
            Some(cache) => table.kept_in(Arc::clone(cache)),
            None => table,
        });
        Ok(())
    }

    fn close_table(&mut self) -> Result<()> {
        if let Some(mut table) = self.writer.take() {
            self.samples = table.writer().take_samples();
            let (meta, handed) = table.finish()?;
            self.handed.extend(handed.map(|handed| (meta.number, handed)));
            self.finished.push(meta);
        }
        Ok(())
    }

    /// Makes the finished tables durable parts of the namespace. [`Rewrite::hand_over`] must
    /// follow.
    pub fn publish(&mut self) -> Result<Vec<TableMeta>> {
        let finished = std::mem::take(&mut self.finished);
        let numbers: Vec<_> = finished.iter().map(|meta| meta.number).collect();
        if !planted(Planted::EditBeforeTables) {
            self.files.publish(&numbers)?;
        }
        Ok(finished)
    }

    /// Hands the published tables over to the edit that `commit` makes. They come back, to be
    /// deleted, where that is refused; where it fails it may have taken effect, and the next
    /// opening decides.
    pub fn hand_over(&mut self, commit: impl FnOnce() -> Result<()>) -> Result<()> {
        let numbers = std::mem::take(&mut self.unowned);
        let committed = commit();
        if committed.as_ref().is_err_and(Error::is_refusal) {
            self.unowned = numbers;
        }
        committed
    }
}

impl Drop for Rewrite {
    fn drop(&mut self) {
        self.writer = None;
        if !self.unowned.is_empty()
            && let Err(error) = self.files.delete_files(&self.unowned)
        {
            // No manifest has them, so the next open removes them.
            tracing::warn!(%error, "tables of an abandoned rewrite stay until the next open");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivors(snapshots: &[u64], bottom: bool, versions: &[(u64, RecordKind)]) -> Vec<u64> {
        let below = bottom.then(|| (Arc::new(Levels::default()), 6));
        let snapshots = snapshots.iter().map(|s| Sequence(*s)).collect();
        let mut retention = Retention::new(snapshots, below);
        versions
            .iter()
            .filter(|(s, kind)| retention.judge(b"key", Trailer::new(Sequence(*s), *kind)).0)
            .map(|(s, _)| *s)
            .collect()
    }

    use RecordKind::{Delete, Put};

    #[test]
    fn only_the_newest_version_of_each_stripe_survives() {
        let versions = [(9, Put), (7, Put), (5, Put), (4, Put), (2, Put)];
        assert_eq!(survivors(&[10], false, &versions), [9]);
        assert_eq!(survivors(&[5, 10], false, &versions), [9, 5]);
        assert_eq!(survivors(&[3, 6, 10], false, &versions), [9, 5, 2]);
    }

    #[test]
    fn versions_newer_than_the_newest_published_all_survive() {
        assert_eq!(survivors(&[5], false, &[(9, Put), (8, Put), (4, Put), (3, Put)]), [9, 8, 4]);
    }

    #[test]
    fn a_tombstone_goes_only_at_the_bottom_and_below_every_snapshot() {
        let versions = [(9, Delete), (4, Put)];
        assert_eq!(survivors(&[10], false, &versions), [9]);
        assert_eq!(survivors(&[10], true, &versions), [0u64; 0]);
        assert_eq!(survivors(&[5, 10], true, &versions), [9, 4]);
        assert_eq!(survivors(&[3, 10], true, &[(9, Delete)]), [9]);
    }
}
