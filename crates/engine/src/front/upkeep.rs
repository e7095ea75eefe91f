//! Jobs that keep logs ready for writers: syncs, the next log, and zeros in it.

use super::logged::Logged;
use crate::error::Result;
use crate::jobs::{Job, Step};
use std::sync::Arc;
use thermocline_foundation::sync_site;

/// See the module's header.
#[derive(Debug)]
struct Upkeep {
    logged: Arc<Logged>,
    task: Task,
}

#[derive(Debug)]
enum Task {
    SyncLog,
    PrepareLog,
    FillLog,
}

impl Logged {
    /// The upkeep that is wanted now, claimed.
    pub fn upkeep(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        let task = if self.claim_sync() {
            Task::SyncLog
        } else if self.pool().claim_preparation() {
            Task::PrepareLog
        } else if self.claim_filling() {
            Task::FillLog
        } else {
            return None;
        };
        Some(Box::new(Upkeep { logged: Arc::clone(self), task }))
    }
}

impl Job for Upkeep {
    fn name(&self) -> &'static str {
        match self.task {
            Task::SyncLog => "background sync of the log",
            Task::PrepareLog => "preparation of a log",
            Task::FillLog => "filling of a log",
        }
    }

    fn step(&mut self) -> Result<Step> {
        match self.task {
            Task::SyncLog => sync_site("background", || self.logged.sync_tail())?,
            Task::PrepareLog => self.logged.pool().prepare_log()?,
            // The next piece is another job: what is more urgent goes first.
            Task::FillLog => self.logged.pool().fill()?,
        }
        Ok(Step::Done)
    }
}
