//! The engine's background jobs, and the plan that chooses among them.

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::shortage::Moment;
use crate::jobs::{Job, Lane, Look, Planner, Step};
use crate::shared::Shared;
use crate::versions::Versions;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{Planted, planted};

/// A shared engine that plans its own background work.
#[derive(Debug)]
pub(crate) struct Background(pub Arc<Engine>);

impl Planner for Background {
    fn plan(&self, lane: Lane) -> Option<Box<dyn Job>> {
        let engine = &self.0;
        // A job has ended, or something has happened.
        engine.shared.news.came();
        engine.shared.latch.check().ok()?;
        match lane {
            Lane::Flush => plan_flush(engine),
            // A log is made in a moment, and writers wait for it when it is missing.
            Lane::Upkeep => engine.front.upkeep(),
            Lane::Index => plan_entering(engine),
            Lane::Bulk => plan_deletion(engine)
                .or_else(|| engine.fast_cache.as_ref()?.plan())
                .or_else(|| engine.layout.plan())
                .or_else(|| engine.migrations.plan()),
        }
    }

    fn failed(&self, job: &'static str, begun: Moment, error: &Error) {
        if error.is_refusal() && !planted(Planted::RefusalLatches) {
            // It has changed nothing, and gives back what it claimed: the plan finds it again.
            if error.kind() == ErrorKind::OutOfSpace {
                self.0.relieve();
            }
            self.0.shared.note_shortage(job, begun, error);
            return;
        }
        let text = format!("{job} failed: {error}");
        self.0.shared.fail(&Error::new(error.kind(), text));
    }

    fn panicked(&self, job: &'static str, text: &str) {
        self.0.shared.fail_by_panic(&format!("the background job '{job}'"), text);
    }

    fn look_for_rest(&self) -> Look {
        let Engine { shared, versions, .. } = &*self.0;
        // Where everything is flushed the plan knows that by itself.
        if versions.current().is_calm(false) { Look::Ended } else { shared.look_for_rest() }
    }
}

fn plan_flush(engine: &Engine) -> Option<Box<dyn Job>> {
    let state = engine.versions.current();
    // Oldest first, and one at a time, so that level 0 receives them in order.
    let frozen = state.frozen.last().filter(|frozen| frozen.is_drained())?;
    if frozen.claimed.swap(true, Relaxed) {
        return None;
    }
    Some(engine.layout.flush_job(Arc::clone(frozen)))
}

fn plan_entering(engine: &Engine) -> Option<Box<dyn Job>> {
    let is_beside = engine.shared.experiments.enter_beside != Some(false);
    let may_enter = is_beside || engine.versions.current().frozen.is_empty();
    may_enter.then(|| engine.layout.locator().plan()).flatten()
}

/// Deleting a table waits for the device, for long where the file system tells it at once what is
/// free, so it is not among the things that writers wait for.
fn plan_deletion(engine: &Engine) -> Option<Box<dyn Job>> {
    let Engine { shared, versions, .. } = engine;
    let deletion = || Deletion { shared: Arc::clone(shared), versions: Arc::clone(versions) };
    let is_due = !versions.store.obsolete.is_empty();
    is_due.then(|| Box::new(deletion()) as _)
}

/// Deletes the files of obsolete tables.
#[derive(Debug)]
struct Deletion {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
}

impl Job for Deletion {
    fn name(&self) -> &'static str {
        "deletion of tables"
    }

    fn step(&mut self) -> Result<Step> {
        let obsolete = self.versions.store.obsolete.take();
        let deleted = self.shared.files.delete_files(&obsolete);
        deleted.inspect_err(|_| self.versions.store.obsolete.add_all(&obsolete))?;
        self.shared.room_freed();
        Ok(Step::Done)
    }
}
