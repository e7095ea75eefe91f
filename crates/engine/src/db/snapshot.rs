//! The database as of one moment, as its users hold it.

use super::scan::Scan;
use crate::engine::Engine;
use crate::error::Result;
use crate::read::cursor::Cursor;
use crate::read::range::ScanRange;
use crate::versions::holders::{Held, Holder};
use crate::versions::snapshots::Snapshot as RegisteredSnapshot;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::{Planted, Sequence, planted};

/// The database as of one moment. Holding it keeps compactions from dropping versions that it sees.
#[derive(Clone, Debug)]
pub struct Snapshot {
    engine: Arc<Engine>,
    registered: RegisteredSnapshot,
    _held: Held,
}

impl Snapshot {
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        let registered = engine.snapshot();
        let held = Held::new(registered.holders(), Holder::Snapshot);
        Self { engine: Arc::clone(engine), registered, _held: held }
    }

    /// The newest sequence that the snapshot sees.
    pub fn sequence(&self) -> Sequence {
        self.registered.sequence()
    }

    /// The value of `key` at that moment.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let newest = planted(Planted::SnapshotReadsNewest);
        self.engine.ours()?.reader().get(key.as_ref(), (!newest).then(|| self.sequence()))
    }

    /// The values of `keys` at that moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        self.engine.ours()?.reader().multi_get(&keys, Some(self.sequence()))
    }

    /// A scan of that moment.
    pub fn scan(&self) -> Scan {
        Scan::new(Arc::clone(&self.engine), Some(self.registered.clone()))
    }

    /// A cursor over that moment.
    pub fn cursor(&self) -> Cursor {
        self.engine.reader().cursor(&ScanRange::all(), self.registered.clone(), 0)
    }
}
