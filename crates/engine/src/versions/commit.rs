//! How an edit of the tables takes effect: durable, then visible.
//!
//! ```text
//!   followers add their part -> room for the frame -> followers take it -> manifest, one frame
//!   -> followers: what was born can be found
//!   -> readers see tables and memtables -> followers: what died is gone
//!   -> tables that the edit takes out end -> followers hear of the levels
//! ```
//! So a record is found at every moment. Before there is room for the frame nothing has changed,
//! and an edit that finds none is refused; from then on a failure latches the store.

use super::Versions;
use super::followers::{Change, Switch};
use super::version::Version;
use crate::error::Result;
use crate::table_set::TableSet;
use crate::table_set::levels::Levels;
use crate::table_set::manifest::Edit;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_slab::LiveSlots;

/// What the tables' side knows of logs and sequences.
#[derive(Clone, Copy)]
struct Sequences {
    log_floor: FileNumber,
    last_sequence: Sequence,
    durable_sequence: Sequence,
}

impl Sequences {
    fn of(tables: &TableSet) -> Self {
        let &TableSet { log_floor, last_sequence, durable_sequence, .. } = tables;
        Self { log_floor, last_sequence, durable_sequence }
    }
}

impl Versions {
    /// Makes a change durable and shows it to readers: all of it or nothing. A failure latches the
    /// store, for the manifest may or may not hold the edit; but for a refusal, which has changed
    /// nothing.
    pub fn commit(&self, tables: &mut TableSet, change: impl Into<Change>) -> Result<()> {
        self.commit_counted(tables, change, || ())
    }

    /// As [`Versions::commit`]. `count` counts what the edit is to keep, once nothing refuses it
    /// any more.
    pub fn commit_counted(
        &self,
        tables: &mut TableSet,
        change: impl Into<Change>,
        count: impl FnOnce(),
    ) -> Result<()> {
        let mut change = change.into();
        self.shared.latch.check()?;
        let _guard = self.shared.latch.guard();
        let before = Arc::clone(&self.current().levels);
        let after = self.levels_after(&before, &change.edit)?;
        for follower in &self.followers {
            let prepared = follower.prepare(&mut change);
            prepared.inspect_err(|error| self.shared.fail(error))?;
        }
        let asked = tables.manifest.ask_for_room(&change.edit, change.purpose);
        asked.inspect_err(|error| self.shared.fail_unless_refused(error))?;
        count();
        self.number(tables, &mut change);
        for follower in &self.followers {
            let taken = follower.take(&mut change);
            taken.inspect_err(|error| self.shared.fail(error))?;
        }
        let early = planted(Planted::InputsDeletedBeforeEdit);
        if early {
            let gone = change.edit.gone().map(|(_, number)| number);
            self.shared.files.delete_files(&gone.collect::<Vec<_>>())?;
        }
        self.make_durable(tables, &change.edit, &after)?;
        if planted(Planted::EditBeforeTables) {
            self.shared.files.publish(&self.unpublished_of(&change.edit))?;
        }
        self.show(&Switch { change: &change, before: &before, after: &after })?;
        for (level, number) in change.edit.gone().filter(|_| !early) {
            if let Some(table) = before.find(usize::from(level), number) {
                table.mark_obsolete();
            }
        }
        self.levels_changed(tables);
        self.shared.jobs.wake();
        Ok(())
    }

    /// Gives the edit the newest sequence that tables or slots have, and what was counted.
    fn number(&self, tables: &mut TableSet, change: &mut Change) {
        let Change { edit, slots, .. } = change;
        let newest = edit.added.iter().map(|(_, meta)| meta.largest_sequence).max();
        let added = slots.added.iter().map(|new| new.entry.sequence).max();
        let newest = newest.max(edit.last_sequence).max(added);
        tables.last_sequence = tables.last_sequence.max(newest.unwrap_or_default());
        edit.last_sequence = Some(tables.last_sequence);
        edit.totals = Some(self.totals());
        if let Some(floor) = edit.log_floor {
            tables.log_floor = floor;
        }
        if let Some(sequence) = edit.durable_sequence {
            tables.durable_sequence = sequence;
        }
    }

    fn make_durable(&self, tables: &mut TableSet, edit: &Edit, after: &Arc<Levels>) -> Result<()> {
        let sequences = Sequences::of(tables);
        let whole = || self.whole(after, sequences);
        tables.manifest.commit(edit, whole).inspect_err(|error| self.shared.fail(error))
    }

    /// The edit that makes the whole state.
    fn whole(&self, levels: &Levels, sequences: Sequences) -> Edit {
        let Sequences { log_floor, last_sequence, durable_sequence } = sequences;
        let no_slots = LiveSlots::default();
        let mut whole = Edit {
            totals: Some(self.totals()),
            durable_sequence: Some(durable_sequence),
            ..Edit::of_state(levels.snapshot(), &no_slots, log_floor, last_sequence)
        };
        self.followers.iter().for_each(|follower| follower.whole(&mut whole));
        whole
    }

    /// Writes the manifest afresh, which goes to a tier with room; a refusal leaves it where it is.
    pub fn move_manifest(&self, tables: &mut TableSet) -> Result<()> {
        self.shared.latch.check()?;
        let _guard = self.shared.latch.guard();
        let whole = self.whole(&self.current().levels, Sequences::of(tables));
        let moved = tables.manifest.write_afresh(&whole);
        moved.inspect_err(|error| self.shared.fail_unless_refused(error))
    }

    /// Shows readers an edit that is durable.
    fn show(&self, switch: &Switch<'_>) -> Result<()> {
        for follower in &self.followers {
            let told = follower.before_switch(switch);
            told.inspect_err(|error| self.shared.fail(error))?;
        }
        let ended_load = match planted(Planted::IngestEndsBeforeDepartures) {
            true => Sequence::ZERO,
            false => switch.before.newest_load_ended(switch.after),
        };
        let flushed = switch.change.flushed.as_ref();
        self.switch(|version| version.with_levels(switch.after, flushed, ended_load));
        self.followers.iter().for_each(|follower| follower.after_switch(switch));
        if ended_load > Sequence::ZERO {
            self.switch(Version::without_ended_load);
        }
        Ok(())
    }

    /// The tables after an edit; the same ones where it changes only slots, so that no follower
    /// need look at them anew.
    fn levels_after(&self, before: &Arc<Levels>, edit: &Edit) -> Result<Arc<Levels>> {
        if edit.added.is_empty() && edit.removed.is_empty() {
            return Ok(Arc::clone(before));
        }
        Ok(Arc::new(before.apply(edit, &self.store)?))
    }

    /// Tables that the edit adds and the namespace would lose in a crash: none, but for a planted
    /// bug.
    fn unpublished_of(&self, edit: &Edit) -> Vec<FileNumber> {
        let files = self.shared.files.files().into_iter().filter(|info| !info.published);
        let is_added = |number| edit.added.iter().any(|(_, meta)| meta.number == number);
        files.map(|info| info.number).filter(|number| is_added(*number)).collect()
    }
}
