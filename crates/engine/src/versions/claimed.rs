//! A claim that a job or a caller holds, given back when it is dropped.

use super::Versions;
use crate::table_set::TableSet;
use crate::table_set::claims::{Claim, ClaimId};
use std::sync::Arc;

/// See the module's header. Not to be dropped under the lock of the tables.
#[derive(Debug)]
pub(crate) struct Claimed {
    versions: Arc<Versions>,
    id: Option<ClaimId>,
}

impl Versions {
    /// Takes a claim under the lock of the tables; none where another merge is in its way.
    pub fn claim(self: &Arc<Self>, tables: &mut TableSet, claim: Claim) -> Option<Claimed> {
        let id = tables.claims.take(claim)?;
        Some(Claimed { versions: Arc::clone(self), id: Some(id) })
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
