//! The look-up of one key: memtables first, then what the layout has.
//!
//! It takes the version, then the visible sequence (in this order: an edit may drop versions that
//! an older sequence would need), and touches no lock.

use super::Reader;
use crate::error::Result;
use crate::layout::{Answer, Found, Moment, live};
use crate::versions::Version;
use bytes::Bytes;
use thermocline_foundation::Sequence;

impl Reader {
    /// The value of `key` at the moment that was `asked` for, or now.
    pub fn get(&self, key: &[u8], asked: Option<Sequence>) -> Result<Option<Bytes>> {
        self.shared.note_gets(1);
        let version = self.versions.current();
        let visible = asked.unwrap_or_else(|| self.versions.visible());
        if let Some(found) = self.get_in_memory(&version, key, visible) {
            return Ok(live(Some(found)));
        }
        let moment = Moment { version: &version, asked, visible };
        Ok(live(self.layout.get(&moment, key)?))
    }

    /// The value of `key` now, where a memtable knows it. Does no I/O.
    pub fn get_from_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let version = self.versions.current();
        let found = self.get_in_memory(&version, key, self.versions.visible())?;
        self.shared.note_gets(1);
        Some(live(Some(found)))
    }

    /// The newest entry of `key` that memtables have at the moment `visible`, counted as a hit.
    pub(super) fn get_in_memory(&self, version: &Version, key: &[u8], visible: Sequence) -> Found {
        let found = version.get_in_memory(key, visible)?;
        self.shared.counts.memtable_hits.add(1);
        self.layout.answered(Answer::Memtable(key, found.0));
        Some(found)
    }
}
