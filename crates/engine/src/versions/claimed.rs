//! A claim that a job or a caller holds or waits for, given back when it is dropped.

use super::Versions;
use crate::table_set::TableSet;
use crate::table_set::claims::{Claim, ClaimId};
use std::sync::Arc;

/// A claim that is held. Not to be dropped under the lock of the tables.
#[derive(Debug)]
pub(crate) struct Claimed {
    versions: Arc<Versions>,
    id: Option<ClaimId>,
}

/// A claim that a caller waits for: no merge begins before this is dropped, which must not be under
/// the lock of the tables.
#[derive(Debug)]
pub(crate) struct ClaimAwaited {
    versions: Arc<Versions>,
}

impl Versions {
    /// Takes a claim under the lock of the tables; none where another merge is in its way.
    pub fn claim(self: &Arc<Self>, tables: &mut TableSet, claim: Claim) -> Option<Claimed> {
        let id = tables.claims.take(claim)?;
        Some(Claimed { versions: Arc::clone(self), id: Some(id) })
    }

    /// A caller begins to wait for what running merges hold.
    pub fn await_claim(self: &Arc<Self>, tables: &mut TableSet) -> ClaimAwaited {
        tables.claims.line_up();
        ClaimAwaited { versions: Arc::clone(self) }
    }
}

impl Claimed {
    /// It is never given back: a planted bug.
    pub fn keep(&mut self) {
        self.id = None;
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        self.versions.tables().claims.give_back(id);
        self.versions.shared.jobs.wake();
    }
}

impl Drop for ClaimAwaited {
    fn drop(&mut self) {
        self.versions.tables().claims.leave_line();
        self.versions.shared.jobs.wake();
    }
}
