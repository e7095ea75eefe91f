//! The manifest is made anew, of what tables, slots and logs tell.
//!
//! ```text
//!   files opened -> each table, slab and log looked at -> plan, as data
//!   -> damaged bytes kept in lost/ -> records of slots and logs written to tables
//!   -> a new manifest: all tables in level 0, no live slot, a new log
//!   -> opened once: all tables are merged
//! ```
//! 1. Each record has its sequence, and of each key the newest one counts, wherever it lies. Level
//!    0 is read that way, and merges take all of it. So no version hides a newer one.
//! 2. The manifest alone knew which files and slots are not wanted any more. What these have is
//!    older than what replaced it, but for one thing: a merge drops a deletion together with all
//!    that it hides. So a key that was deleted may have a value again; the plan says so by ranges.
//! 3. A bulk load's tables have no sequences. One is chosen that is newer than all that there was
//!    when its table was finished ([`order_loads`]).
//! 4. The new manifest is the moment at which all of it takes effect. A rebuild that is cut off
//!    before is begun again, and finds the same; one that is cut off later is begun again to delete
//!    the old one.
//!
//! A log that is damaged is kept in `lost`, and gives what of it is intact, also behind the damage:
//! of a key whose newest record is intact that one counts, whatever is missing beside it.
//!
//! The parts: `logs` and `slots`, what each has, `tables`, which get it, and `loads`, their order.
//! Decision page: `docs/decisions/0113-a-manifest-made-anew.md`.
//!
//! Threads: the caller's alone, until the opening at the end.

mod loads;
mod logs;
mod slots;
mod tables;

use super::logs::begin as begin_log;
use super::plan::{Lost, RepairPlan, RepairStep};
use super::{Bytes, CACHE_BYTES, Meter, Piece, is_damage, keep, may_be_given_later, require_given};
use crate::engine::opened_files::{Access, OpenedFiles, open_files_without_manifest};
use crate::engine::opening::open;
use crate::engine::restore::{never_had_manifest, numbers_of, require_floor, restore};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::generations::memtable::Entry;
use crate::jobs::{Jobs, Progress};
use crate::settings::Settings;
use crate::table_set::manifest::{Edit, Manifest};
use crate::table_set::table::{ObsoleteFiles, TableMeta, TableStore};
use loads::order_loads;
use logs::LogsTold;
use slots::SlotsTold;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_device::{
    ErrorKind as DeviceErrorKind, FileInfo, FileKind, Origin, TierIndex, TieredFiles, Unreadable,
};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_slab::LiveSlots;
use thermocline_table::{BlockCache, TableReader};

/// Ranges of keys that are told one by one; the last takes what is behind it.
const RANGES_MAX: usize = 100;

/// First and last key.
type KeySpan = (Vec<u8>, Vec<u8>);

impl Environment {
    /// What [`Environment::rebuild_manifest`] would do, and what that costs. Reads everything and
    /// changes nothing. Empty where the manifest can be read: then [`Environment::repair`] repairs
    /// what else is damaged.
    pub fn plan_manifest_rebuild(
        &self,
        home: &Path,
        settings: Option<&Settings>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RepairPlan> {
        let ground = Ground::open(self, home, settings, Access::Read)?;
        Ok(ground.look(progress)?.map_or_else(RepairPlan::default, |told| told.plan()))
    }

    /// Makes the manifest anew, of what tables, slots and logs tell, where it is damaged beyond a
    /// bit of a sector, or gone. A key whose newest record is a value that can be read has it; one
    /// that was deleted may have an older value again, as the plan says. All else that is damaged
    /// is left to [`Environment::repair`]. One that is cut off is begun again.
    pub fn rebuild_manifest(
        &self,
        home: &Path,
        settings: Option<&Settings>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RepairPlan> {
        let ground = Ground::open(self, home, settings, Access::Write)?;
        let Some(mut told) = ground.look(progress)? else {
            ground.forget_older_manifests()?;
            return Ok(RepairPlan::default());
        };
        keep(&ground.files, self, told.pieces.iter_mut())?;
        let manifest = ground.make_manifest(&told)?;
        ground.files.close(&[(FileKind::Manifest, manifest.extent())])?;
        let mut plan = told.plan();
        drop((manifest, told, ground));
        match merge(self, home, settings, progress) {
            // The database is there; merges go on when it is repaired, or has room.
            Err(error) if may_wait(&error) => {
                tracing::warn!(%error, "tables are not merged for now");
                plan.unmerged = Some(error.to_string());
            }
            merged => merged?,
        }
        Ok(plan)
    }
}

/// What ends a merge, and leaves all as it was for a later one.
fn may_wait(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io | ErrorKind::OutOfSpace)
}

/// Has all tables in as few levels as they are in after a compaction, which a merge of level 0
/// would come to later.
fn merge(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let opened = open(environment, home, given, Access::Write)?;
    let merged = match opened.is_written {
        true => opened.engine.compact_range(None, None, progress),
        false => Ok(()),
    };
    let closed = opened.engine.close(opened.is_written);
    merged.and(closed)
}

/// A database whose files are open, and whose manifest may not be one.
struct Ground {
    files: Arc<TieredFiles>,
    settings: Settings,
    store: Arc<TableStore>,
    unreadable: Unreadable,
}

/// What its files tell.
struct Told {
    files: u64,
    bytes: u64,
    pieces: Vec<Piece>,
    manifests: Vec<FileNumber>,
    tables: Vec<TableMeta>,
    slots: SlotsTold,
    /// The newest record of each key in logs.
    in_logs: Vec<Entry>,
    last_sequence: Sequence,
}

impl Told {
    fn plan(&self) -> RepairPlan {
        let steps = self.pieces.iter().map(|piece| piece.step.clone()).collect();
        RepairPlan { files: self.files, bytes: self.bytes, steps, unmerged: None }
    }
}

impl Ground {
    fn open(
        environment: &Environment,
        home: &Path,
        given: Option<&Settings>,
        access: Access,
    ) -> Result<Self> {
        let refused = || {
            Error::invalid(format!(
                "{} has a region of persistent memory, whose memtables only the manifest puts in \
                 their place; restore the database from a checkpoint",
                home.display()
            ))
        };
        let is_right = |_, record: Option<&RegionRecord>, _: &Settings, _| match record {
            Some(_) => Err(refused()),
            None => Ok(()),
        };
        let OpenedFiles { files, settings, .. } =
            open_files_without_manifest(environment, home, given, access, is_right)?;
        // Opened for reading only there is nothing to ask before.
        if files.region().is_some() {
            return Err(refused());
        }
        let store = Arc::new(TableStore {
            files: Arc::clone(&files),
            cache: Arc::new(BlockCache::new(CACHE_BYTES)),
            obsolete: ObsoleteFiles::default(),
            jobs: Arc::new(Jobs::new(&environment.workers)),
        });
        Ok(Self { files, settings, store, unreadable: environment.unreadable })
    }

    /// Why the manifest cannot be used; none where it can.
    fn damage(&self, logs: &LogsTold) -> Result<Option<Error>> {
        // A checkpoint that was not finished is refused.
        let had_one = !never_had_manifest(&self.files);
        match restore(&self.store) {
            Ok(None) => Ok(None),
            Ok(Some(restored)) => {
                let numbers = numbers_of(&self.files, |kind| kind == FileKind::Log);
                let checked = require_floor(&numbers, restored.log_floor);
                let checked = checked.and_then(|()| logs.require_loads(restored.last_sequence));
                Ok(checked.err())
            }
            Err(error) if had_one && (self.is_damage(&error) || is_missing(&error)) => {
                Ok(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    fn is_damage(&self, error: &Error) -> bool {
        is_damage(error, self.unreadable)
    }

    /// Looks at everything; none where the manifest can be used.
    fn look(&self, progress: &mut dyn FnMut(Progress)) -> Result<Option<Told>> {
        let told = self.look_at_all(progress);
        told.map_err(|error| may_be_given_later(error, self.unreadable))
    }

    fn look_at_all(&self, progress: &mut dyn FnMut(Progress)) -> Result<Option<Told>> {
        let logs = logs::look(self)?;
        let Some(damage) = self.damage(&logs)? else { return Ok(None) };
        let files = self.published(|_| true);
        let bytes = files.iter().map(|info| info.bytes).sum();
        let now = Progress { done_bytes: 0, total_bytes: bytes };
        let mut meter = Meter { now, progress };
        let manifests = numbers_of(&self.files, |kind| kind == FileKind::Manifest);
        let mut pieces = self.look_at_manifests(&manifests, &damage)?;
        // The newest manifest is the one.
        let newest = pieces.len() - 1;
        let of_logs = self.published(|kind| kind == FileKind::Log);
        meter.add(of_logs.iter().map(|info| info.bytes).sum());
        let mut tables = self.look_at_tables(&mut meter, &mut pieces)?;
        let loads = order_loads(&mut tables, &logs.loads);
        let slots = slots::look(self, &mut meter, &mut pieces)?;
        meter.add(bytes);
        let of_tables = tables.iter().map(|table| table.largest_sequence);
        let known = of_tables.chain([slots.last, logs.reached]).max().unwrap_or_default();
        let (in_logs, last_sequence) = logs::newest(self, logs.floor, known, &mut pieces)?;
        require_given(&pieces, self.unreadable)?;
        let ranges = tables
            .iter()
            .map(span_of)
            .chain(slots.span())
            .chain(span_of_records(&in_logs))
            .collect();
        let returning = joined(ranges).into_iter();
        let returning = returning.map(|(from, until)| Lost::MayReturn { from, until });
        let loaded = joined(loads).into_iter().map(|(from, until)| Lost::Loaded { from, until });
        pieces[newest].step.lost.extend(returning.chain(loaded));
        Ok(Some(Told {
            files: files.len() as u64,
            bytes,
            pieces,
            manifests,
            tables,
            slots,
            in_logs,
            last_sequence,
        }))
    }

    fn published(&self, want: impl Fn(FileKind) -> bool) -> Vec<FileInfo> {
        let mut files = self.files.files();
        files.retain(|info| info.published && want(info.kind));
        files
    }

    /// A piece for each manifest, ascending, or one where none is known.
    fn look_at_manifests(&self, manifests: &[FileNumber], damage: &Error) -> Result<Vec<Piece>> {
        const REPAIR: &str = "made anew, of what tables, slots and logs tell";
        if manifests.is_empty() {
            let name = FileKind::Manifest.extension().to_owned();
            let step = RepairStep::of_name(name, TierIndex(0), damage, REPAIR);
            return Ok(vec![Piece { step, bytes: Bytes::Missing }]);
        }
        let piece = |number: &FileNumber| {
            let name = format!("{number}.{}", FileKind::Manifest.extension());
            let step = RepairStep::of_name(name, TierIndex(0), damage, REPAIR);
            match self.files.open_file(*number) {
                Ok(_) => Ok(Piece::all(*number, step)),
                Err(error) if error.kind() == DeviceErrorKind::NotFound => {
                    Ok(Piece { step, bytes: Bytes::Missing })
                }
                Err(error) => Err(error.into()),
            }
        };
        manifests.iter().map(piece).collect()
    }

    /// Reads the properties of each table. The plan names a table that has none to read, and the
    /// new manifest leaves it out.
    fn look_at_tables(
        &self,
        meter: &mut Meter<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<Vec<TableMeta>> {
        let mut tables = Vec::new();
        for info in self.published(|kind| matches!(kind, FileKind::Table { .. })) {
            let file = self.files.open_file(info.number)?;
            let cache = Arc::clone(&self.store.cache);
            match TableReader::open_mended(Arc::clone(&file), cache).map_err(Error::from) {
                Ok(reader) => tables.extend(meta_of(info.number, &reader)),
                Err(error) if self.is_damage(&error) => {
                    let repair = "taken out: its index cannot be read";
                    let mut step = RepairStep::new(&file, &error, repair);
                    step.lost.push(Lost::UnknownRecords);
                    pieces.push(Piece::all(info.number, step));
                }
                Err(error) => return Err(error),
            }
            meter.add(info.bytes);
        }
        Ok(tables)
    }

    /// Deletes those before the newest, which a rebuild that was cut off has left: an opening would
    /// refuse one that is missing or short.
    fn forget_older_manifests(&self) -> Result<()> {
        let mut manifests = numbers_of(&self.files, |kind| kind == FileKind::Manifest);
        manifests.pop();
        self.files.delete_files(&manifests)?;
        Ok(self.files.close(&[])?)
    }

    /// Writes what slots and logs have to tables, and then the manifest, which takes the place of
    /// the old ones.
    fn make_manifest(&self, told: &Told) -> Result<Manifest> {
        let of_slots = match planted(Planted::RebuildForgetsSlots) {
            true => Vec::new(),
            false => told.slots.write(self)?,
        };
        let (of_logs, floor) = (self.write_logged(&told.in_logs)?, self.make_log()?);
        let tables = told.tables.iter().cloned().chain(of_slots).chain(of_logs);
        let tables = tables.map(|meta| (0, meta)).collect();
        let slots = LiveSlots::default();
        let state = Edit::of_state(tables, &slots, floor, told.last_sequence);
        let manifest = Manifest::create(&self.files, &state, Origin::Recovery)?;
        self.files.delete_files(&told.manifests)?;
        Ok(manifest)
    }

    /// Writes the records of logs to tables.
    fn write_logged(&self, records: &[Entry]) -> Result<Vec<TableMeta>> {
        if planted(Planted::RebuildForgetsLogs) {
            return Ok(Vec::new());
        }
        let bytes = |record: &Entry| (record.key().len() + record.value_slice().len()) as u64;
        let all_bytes = records.iter().map(bytes).sum();
        let records = records.iter().map(|it| Ok((it.key(), it.trailer(), it.value(), bytes(it))));
        tables::write(self, all_bytes, records)
    }

    /// A log without a record, behind all that there are: the next opening deletes these.
    fn make_log(&self) -> Result<FileNumber> {
        let (file, writer) = begin_log(&self.files)?;
        writer.seal()?;
        self.files.publish(&[file.number()])?;
        Ok(file.number())
    }
}

fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// What the manifest would say of a table; none of an empty one. That of a bulk load has the
/// sequence that it follows.
fn meta_of(number: FileNumber, reader: &TableReader) -> Option<TableMeta> {
    let properties = reader.properties();
    (properties.entries > 0).then(|| TableMeta {
        number,
        bytes: reader.file_bytes(),
        entries: properties.entries,
        deletes: properties.deletes,
        older_versions: 0,
        smallest_key: properties.smallest_key.clone(),
        largest_key: properties.largest_key.clone(),
        smallest_sequence: properties.smallest_sequence,
        largest_sequence: properties.largest_sequence,
        ingested_at: (properties.largest_sequence == Sequence::ZERO).then_some(properties.follows),
    })
}

fn span_of(table: &TableMeta) -> KeySpan {
    (table.smallest_key.clone(), table.largest_key.clone())
}

/// First and last key of records that ascend.
fn span_of_records(records: &[Entry]) -> Option<KeySpan> {
    Some((records.first()?.key().to_vec(), records.last()?.key().to_vec()))
}

/// Ranges that share keys become one. Of more than can be told the last takes the others.
fn joined(mut ranges: Vec<KeySpan>) -> Vec<KeySpan> {
    ranges.sort();
    let mut spans: Vec<KeySpan> = Vec::new();
    for (from, until) in ranges {
        let is_full = spans.len() == RANGES_MAX;
        match spans.last_mut() {
            Some(last) if is_full || from <= last.1 => {
                if until > last.1 {
                    last.1 = until;
                }
            }
            _ => spans.push((from, until)),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_share_a_key_are_told_as_one_and_many_end_in_one() {
        let span = |from: &str, until: &str| (from.as_bytes().to_vec(), until.as_bytes().to_vec());
        assert!(joined(Vec::new()).is_empty());
        let ranges = vec![span("x", "y"), span("a", "c"), span("c", "d"), span("b", "b")];
        assert_eq!(joined(ranges), [span("a", "d"), span("x", "y")]);
        let many = (0..RANGES_MAX + 9).map(|n| span(&format!("{n:04}"), &format!("{n:04}x")));
        let told = joined(many.collect());
        assert_eq!(told.len(), RANGES_MAX);
        assert_eq!(told[RANGES_MAX - 1], span("0099", "0108x"));
    }
}
