//! Flush of a memtable into a table of level 0, or several where the layout cuts them.

use crate::compaction::rewrite::Output;
use crate::compaction::rewrite::Retention;
use crate::compaction::rewrite::Rewrite;
use crate::error::{ErrorKind, Result};
use crate::generations::Frozen;
use crate::generations::memtable::Memtable;
use crate::generations::memtable::MemtableCursor;
use crate::jobs::Job;
use crate::jobs::Step;
use crate::merge::Merge;
use crate::merge::Source;
use crate::shared::Shared;
use crate::table_set::handed::HandOver;
use crate::table_set::manifest::Edit;
use crate::table_set::table::TableMeta;
use crate::versions::{Change, Versions};
use std::sync::Arc;
use thermocline_device::FileContext;
use thermocline_device::FileKind;
use thermocline_device::Origin;
use thermocline_foundation::Planted;
use thermocline_foundation::Sequence;
use thermocline_foundation::planted;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::sync_site;
/// Writes a frozen memtable to level 0.
#[derive(Debug)]
pub(crate) struct Flush {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    frozen: Arc<Frozen>,
    rewrite: Rewrite,
}

impl Flush {
    /// Tables are closed at the first key after `table_bytes`. Hands over where their records lie,
    /// if an index asks for it.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        frozen: Arc<Frozen>,
        table_bytes: u64,
        hand_over: Option<&Arc<HandOver>>,
    ) -> Self {
        let cursor = MemtableCursor::new(Arc::clone(&frozen.memtable));
        let retention = Retention::new(versions.kept_readable(), None);
        let kind = FileKind::Table { level: 0 };
        let output = Output {
            context: FileContext { kind, origin: Origin::Flush },
            options: shared.settings.table_options(0),
            table_bytes,
            expected_bytes: frozen.memtable.bytes().min(table_bytes),
            cache: Some(Arc::clone(&shared.cache)),
        };
        let merge = Merge::new(vec![Source::Memtable(cursor)]);
        let mut rewrite = Rewrite::new(Arc::clone(&shared.files), merge, retention, output);
        if let Some(hand_over) = hand_over {
            rewrite = rewrite.handing_over(Arc::clone(hand_over));
        }
        let (shared, versions) = (Arc::clone(shared), Arc::clone(versions));
        Self { shared, versions, frozen, rewrite }
    }

    fn finish(&mut self) -> Result<()> {
        // The log's tail must be durable before a later log can be the floor.
        sync_site("flush", || self.frozen.generation.seal())?;
        let added = self.rewrite.publish()?;
        let bytes: u64 = added.iter().map(|meta| meta.bytes).sum();
        if planted(Planted::LogRetiredBeforeEdit) {
            self.shared.files.delete_files(&[self.frozen.generation.number()])?;
        }
        if let Some(arena) = self.frozen.generation.arena()
            && planted(Planted::ArenaFreedBeforeEdit)
        {
            arena.free();
        }
        let edit = Edit {
            added: added.into_iter().map(|meta| (0, meta)).collect(),
            log_floor: Some(self.frozen.generation.floor_after()),
            ..Edit::default()
        };
        let flushed = Some(Arc::clone(&self.frozen));
        let handed = self.rewrite.take_handed();
        let change = Change { edit, flushed, handed, ..Change::default() };
        let Self { shared, versions, rewrite, frozen } = self;
        let count = || {
            shared.counts.flushed_bytes.add(bytes);
            shared.compaction_rate.flushed(bytes);
        };
        rewrite.hand_over(|| versions.commit_counted(&mut versions.tables(), change, count))?;
        // Its tables wait for the index by now, where there is one.
        shared.index_room.flushed(frozen.memtable.count());
        Ok(())
    }
}

impl Job for Flush {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn step(&mut self) -> Result<Step> {
        if self.rewrite.step()? == Step::More {
            return Ok(Step::More);
        }
        self.finish()?;
        Ok(Step::Done)
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.frozen.claimed.store(false, Relaxed);
    }
}

/// Writes a memtable of replayed records to tables of level 0, before the store is open. Where the
/// device of a tier turns out to have no room, on another.
pub(crate) fn write_replayed(shared: &Shared, memtable: Memtable) -> Result<Vec<TableMeta>> {
    if memtable.count() == 0 {
        return Ok(Vec::new());
    }
    let memtable = Arc::new(memtable);
    let mut tries = shared.files.tiers().len();
    loop {
        tries -= 1;
        match write_replayed_once(shared, &memtable) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace && tries > 0 => {}
            written => return written,
        }
    }
}

fn write_replayed_once(shared: &Shared, memtable: &Arc<Memtable>) -> Result<Vec<TableMeta>> {
    let expected_bytes = memtable.bytes();
    let merge = Merge::new(vec![Source::Memtable(MemtableCursor::new(Arc::clone(memtable)))]);
    let output = Output {
        context: FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Recovery },
        options: shared.settings.table_options(0),
        table_bytes: u64::MAX,
        expected_bytes,
        cache: None,
    };
    // No snapshot survives a restart, so of each key only the newest version matters.
    let retention = Retention::new(vec![Sequence::MAX], None);
    let mut rewrite = Rewrite::new(Arc::clone(&shared.files), merge, retention, output);
    while rewrite.step()? == Step::More {}
    let added = rewrite.publish()?;
    // The edit of the opening has them, or the next opening removes them.
    rewrite.hand_over(|| Ok(()))?;
    Ok(added)
}
