//! Jobs that keep logs ready for writers: syncs, and the next log.

use super::logged::Logged;
use crate::error::Result;
use crate::jobs::{Job, Step};
use std::sync::Arc;
use thermocline_foundation::sync_site;

/// See the module's header.
#[derive(Debug)]
pub(super) struct Upkeep {
    logged: Arc<Logged>,
    task: Task,
}

#[derive(Debug)]
pub(super) enum Task {
    SyncLog,
    PrepareLog,
}

impl Upkeep {
    pub fn new(logged: &Arc<Logged>, task: Task) -> Self {
        Self { logged: Arc::clone(logged), task }
    }
}

impl Job for Upkeep {
    fn name(&self) -> &'static str {
        match self.task {
            Task::SyncLog => "background sync of the log",
            Task::PrepareLog => "preparation of a log",
        }
    }

    fn step(&mut self) -> Result<Step> {
        match self.task {
            Task::SyncLog => sync_site("background", || self.logged.sync_tail())?,
            Task::PrepareLog => self.logged.prepare_log()?,
        }
        Ok(Step::Done)
    }
}
