//! Bulk load of sorted records, past log and memtable.
//!
//! Records go straight to tables that store sequence 0 for all of them, and which sequence was the
//! newest before each, for the case that the manifest is lost. When the load finishes,
//! writers pause for a moment, it gets one sequence of its own (the tables' `ingested_at` in the
//! manifest), and all its tables appear at once, at the deepest level under which nothing overlaps
//! them. An unfinished load leaves nothing.

use crate::batch::check_sizes;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::LEVELS;
use crate::shared::Shared;
use crate::table_set::claims::Claims;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::{Levels, may_overlap};
use crate::table_set::manifest::Edit;
use crate::table_set::new_table::NewTable;
use crate::table_set::table::TableMeta;
use crate::versions::holders::{Held, Holder};
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_table::{RecordKind, Samples, Trailer};

/// A bulk load under way.
#[derive(Debug)]
pub struct Ingest {
    engine: Arc<Engine>,
    writer: Option<NewTable>,
    finished: Vec<TableMeta>,
    /// Of the table before, for the dictionary of the next.
    samples: Option<Samples>,
    /// Files made and not yet parts of the database; deleted if the load is not finished.
    unowned: Vec<FileNumber>,
    last_key: Option<Vec<u8>>,
    bytes: u64,
    records: u64,
    _held: Held,
}

impl Ingest {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let held = Held::new(engine.versions.holders(), Holder::Load);
        Self {
            engine,
            _held: held,
            writer: None,
            finished: Vec::new(),
            samples: None,
            unowned: Vec::new(),
            last_key: None,
            bytes: 0,
            records: 0,
        }
    }

    /// Adds a record; its key must be larger than the one before.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.engine.shared.files.require_owner()?;
        let (key, value) = (key.as_ref(), value.as_ref());
        check_sizes(key, value.len())?;
        if self.last_key.as_ref().is_some_and(|last| key <= last.as_slice()) {
            return Err(Error::invalid(format!(
                "record {} of the bulk load is out of order: keys must ascend and differ",
                self.records + 1
            )));
        }
        let table_bytes = self.engine.shared.settings.table_size.0;
        if let Some(table) = &mut self.writer {
            let asked = table.ask_for_room(key, value);
            let is_full = asked.as_ref().is_err_and(|e| e.kind() == ErrorKind::OutOfSpace);
            if is_full || table.estimated_bytes() >= table_bytes {
                self.close_table()?;
            } else {
                asked?;
            }
        }
        if self.writer.is_none() {
            let bottom = LEVELS - 1;
            let kind = FileKind::Table { level: bottom as u8 };
            let context = FileContext { kind, origin: Origin::Ingest };
            let Shared { files, settings, .. } = &*self.engine.shared;
            let options = settings.table_options(bottom);
            let table = NewTable::create(files, context, table_bytes, (key, value), options)?;
            self.unowned.push(table.number());
            self.writer = Some(table.following(self.samples.take(), table_bytes));
        }
        if let Some(table) = &mut self.writer {
            table.writer().add(key, Trailer::new(Sequence::ZERO, RecordKind::Put), value)?;
        }
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        self.bytes += (key.len() + value.len()) as u64;
        self.records += 1;
        Ok(())
    }

    /// Number of records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Makes the records durable and visible, all at once.
    pub fn finish(mut self) -> Result<()> {
        self.engine.shared.files.require_owner()?;
        self.close_table()?;
        if self.finished.is_empty() {
            return Ok(());
        }
        let engine = Arc::clone(&self.engine);
        engine.shared.index_room.require(self.records)?;
        // A failure half way leaves a sequence used and files of which nothing is known for sure. A
        // refusal leaves a sequence used.
        engine.front.quiesce()?.with_sequence(|sequence| {
            self.install(sequence).inspect_err(|error| engine.shared.fail_unless_refused(error))
        })
    }

    fn close_table(&mut self) -> Result<()> {
        if let Some(mut table) = self.writer.take() {
            self.samples = table.writer().take_samples();
            if !planted(Planted::LoadFollowsNothing) {
                table.writer().follow(self.engine.versions.visible());
            }
            let (mut meta, _) = table.finish()?;
            // Replaced when the load finishes; a crash before leaves unpublished files, which the
            // next open removes.
            meta.ingested_at = Some(Sequence::ZERO);
            self.finished.push(meta);
        }
        Ok(())
    }

    fn install(&mut self, sequence: Sequence) -> Result<()> {
        let numbers: Vec<_> = self.finished.iter().map(|meta| meta.number).collect();
        self.engine.shared.files.publish(&numbers)?;
        let mut tables = self.engine.versions.tables();
        let levels = Arc::clone(&self.engine.versions.current().levels);
        let mut edit = Edit::default();
        for mut meta in std::mem::take(&mut self.finished) {
            meta.ingested_at = Some(sequence);
            meta.smallest_sequence = sequence;
            meta.largest_sequence = sequence;
            let level = match tables.claims.ranges_meet(&span_of(&meta)) {
                // What a demotion is about to write there is older.
                true => 0,
                false => {
                    let deepest = deepest_free(&levels, &tables.claims, &meta);
                    self.engine.layout.level_of_load(deepest)
                }
            };
            self.engine.shared.files.reclassify(meta.number, FileKind::Table { level })?;
            edit.added.push((level, meta));
        }
        // A commit that fails may have taken effect; the next opening decides.
        let numbers = std::mem::take(&mut self.unowned);
        let Engine { shared, versions, .. } = &*self.engine;
        let count = || shared.counts.ingested_bytes.add(self.bytes);
        let committed = versions.commit_counted(&mut tables, edit, count);
        if committed.as_ref().is_err_and(Error::is_refusal) {
            self.unowned = numbers;
        }
        committed
    }
}

/// All keys of a table.
fn span_of(meta: &TableMeta) -> KeyRange {
    KeyRange::spanning(&meta.smallest_key, &meta.largest_key)
}

/// The deepest level such that neither it nor any above it has, or is about to have, a key of the
/// table's range.
fn deepest_free(levels: &Levels, claims: &Claims, meta: &TableMeta) -> u8 {
    let (from, to) = (meta.smallest_key.as_slice(), meta.largest_key.as_slice());
    let free = |level: &usize| {
        levels.overlapping(*level, Some(from), Some(to)).is_empty()
            && !claims.meet(*level, &span_of(meta))
    };
    let free_levels = (0..LEVELS).take_while(free).count();
    debug_assert!(may_overlap(0), "level 0 takes any table");
    free_levels.saturating_sub(1) as u8
}

impl Drop for Ingest {
    fn drop(&mut self) {
        if self.engine.shared.files.require_owner().is_err() {
            // In a forked child: what is being written, and the files, are the parent's.
            std::mem::forget(self.writer.take());
            return;
        }
        self.writer = None;
        if self.unowned.is_empty() {
            return;
        }
        match self.engine.shared.files.delete_files(&self.unowned) {
            Ok(()) => {
                self.engine.shared.room_freed();
                self.engine.shared.jobs.wake();
            }
            Err(error) => {
                tracing::warn!(%error, "files of an unfinished bulk load stay until the next open");
            }
        }
    }
}
