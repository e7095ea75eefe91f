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
    Sync,
    Prepare,
    Fill,
}

impl Logged {
    /// The upkeep that is wanted now, claimed.
    pub fn upkeep(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        let task = if self.claim_sync() {
            Task::Sync
        } else if self.pool().claim_preparation() {
            Task::Prepare
        } else if self.claim_filling() {
            Task::Fill
        } else {
            return None;
        };
        Some(Box::new(Upkeep { logged: Arc::clone(self), task }))
    }
}

impl Job for Upkeep {
    fn name(&self) -> &'static str {
        match self.task {
            Task::Sync => "background sync of the log",
            Task::Prepare => "preparation of a log",
            Task::Fill => "filling of a log",
        }
    }

    fn step(&mut self) -> Result<Step> {
        match self.task {
            Task::Sync => sync_site("background", || self.logged.sync_tail())?,
            Task::Prepare => self.logged.pool().prepare_log()?,
            // The next piece is another job: what is more urgent goes first.
            Task::Fill => self.logged.pool().fill()?,
        }
        Ok(Step::Done)
    }
}
