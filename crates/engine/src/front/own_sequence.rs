//! A sequence that no group of writes has: that of a bulk load.
//!
//! Threads: the one at the turnstile.

use crate::error::Result;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::versions::window::Group;
use crate::versions::{Change, Versions};
use thermocline_device::Purpose;
use thermocline_foundation::Sequence;

/// Runs `body` with the sequence that was `claimed` for it, and is as `durable` as said.
pub(super) fn run_with<T>(
    (shared, versions): (&Shared, &Versions),
    claimed: Group<'_>,
    durable: bool,
    body: impl FnOnce(Sequence) -> Result<T>,
) -> Result<T> {
    let sequence = claimed.first();
    let result = body(sequence).inspect_err(|_| {
        // The log says that the sequence was taken, so the manifest must too: recovery takes a
        // later record for proof that it once did. Failing, this stops all writing.
        let edit = Edit { last_sequence: Some(sequence), ..Edit::default() };
        let change = Change { edit, purpose: Purpose::Release, ..Change::default() };
        let committed = versions.commit(&mut versions.tables(), change);
        let _ = committed.inspect_err(|error| shared.fail(error));
    });
    match &result {
        // Nothing is before it that could keep it from being published.
        Ok(_) => drop(claimed.complete(durable)),
        // It stays a sequence that no record has, and readers pass it with the next one.
        Err(_) => claimed.skip(),
    }
    result
}
