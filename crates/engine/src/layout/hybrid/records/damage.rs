//! Damage of slots that an opening met, and which answers are still sure.
//!
//! A record of a known key is in the index like any other: a look-up reads its slot and reports the
//! damage. A record of an unknown key may be the newest version of any key, so an older one must
//! not stand for it. Sure is then
//! 1. what a memtable has: it is newer than all slots;
//! 2. a record in a slot that is newer than any that is missing;
//! 3. any record in a slot, where no slot holds a version that is not the newest of its key: so the
//!    manifest counts them.
//!
//! Any other answer, also that there is no such key, is an error that names the damage. A scan
//! would need all of them to be sure, and is refused.
//!
//! A store with damaged slots is open for reading only: merges would pass over what is missing, and
//! what they write would hide it. Nothing of this costs a sound store more than a look at an empty
//! list. Decision page: `docs/decisions/0057-damage.md`.

use crate::error::{Error, ErrorKind, Result};
use std::ops::Bound;
use thermocline_foundation::Sequence;
use thermocline_index::{Entry, FastIndex};

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// All that was met, each with file, tier, offset and, where it is known, key.
    met: Vec<Error>,
    /// The newest record of an unknown key that is missing.
    newest_missing: Option<Sequence>,
    /// A record in a slot may be older than one that is missing.
    slots_may_be_old: bool,
}

impl Damage {
    /// Gathers what a slab's salvage, or its header, told.
    pub fn add(&mut self, met: impl IntoIterator<Item = Error>, missing: Option<Sequence>) {
        self.met.extend(met);
        self.newest_missing = self.newest_missing.max(missing);
    }

    /// All slabs were looked at, and `index` has what is proved. The manifest counts so many
    /// records in slots that are not the newest of their keys there; none: it does not say.
    pub fn weigh(&mut self, index: &FastIndex, older_versions: Option<u64>) {
        if self.met.is_empty() {
            return;
        }
        self.slots_may_be_old = older_versions != Some(older_versions_of(index));
        for error in &self.met {
            tracing::error!(%error, "the fast tier is damaged");
        }
    }

    /// Why the store is open for reading only; none where nothing is damaged.
    pub fn reason(&self) -> Option<Error> {
        let first = self.met.first()?;
        let others = match self.met.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        Some(Error::new(
            first.kind(),
            format!("{first}{others}; `verify` shows all damage, `repair` takes it out of use"),
        ))
    }

    /// A look-up that no memtable has answered may go on: what is `found` in slots, or below where
    /// nothing is, is sure to be the newest.
    pub fn admit(&self, found: impl FnOnce() -> Option<Entry>) -> Result<()> {
        let Some(missing) = self.newest_missing else { return Ok(()) };
        let is_sure = |entry: Entry| entry.sequence > missing || !self.slots_may_be_old;
        if found().is_some_and(is_sure) {
            return Ok(());
        }
        Err(self.unsure())
    }

    /// A scan may go on.
    pub fn admit_scan(&self) -> Result<()> {
        self.newest_missing.map_or(Ok(()), |_| Err(self.unsure()))
    }

    #[cold]
    fn unsure(&self) -> Error {
        let reason = self.reason().map_or_else(String::new, |error| error.to_string());
        Error::new(
            ErrorKind::Corrupt,
            format!("a newer version may have been in a slot that is damaged: {reason}"),
        )
    }
}

/// Records in slots that are not the newest of their keys there. At an opening, when all entries
/// have slots.
pub(crate) fn older_versions_of(index: &FastIndex) -> u64 {
    let (mut last, mut older) = (Vec::new(), 0);
    let mut is_first = true;
    index.for_each(Bound::Unbounded, Bound::Unbounded, |key, _| {
        if std::mem::take(&mut is_first) || last != key {
            last.clear();
            last.extend_from_slice(key);
        } else {
            older += 1;
        }
    });
    older
}
