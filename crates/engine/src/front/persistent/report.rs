//! What the region has to say of itself.

use super::Arenas;
use serde::{Deserialize, Serialize};
use thermocline_pmem::Durability;

/// The region of persistent memory that writes go to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionStats {
    /// Its file.
    pub path: String,
    /// What its bytes are: `persistent memory`, `persistent memory, caches included`, `emulated:
    /// lost at power failure`, or `an ordinary file: writes go to a log`.
    pub media: String,
    /// Memtables are in it; else writes go to a log.
    pub has_memtables: bool,
    /// Bytes of its chunks, in use or not.
    pub bytes: u64,
    /// Bytes of chunks that are free.
    pub free_bytes: u64,
    /// Lines that were flushed since the opening.
    pub lines: u64,
    /// Fences since the opening.
    pub fences: u64,
}

impl RegionStats {
    pub(in crate::front) fn of(arenas: &Arenas) -> Self {
        let region = arenas.region();
        let media = match region.medium().durability() {
            _ if arenas.is_beside_log() => "an ordinary file: writes go to a log",
            Durability::Flushed => "persistent memory",
            Durability::CachesIncluded => "persistent memory, caches included",
            Durability::Emulated => "emulated: lost at power failure",
        };
        let (geometry, counts) = (region.identity().geometry, region.medium().counts());
        Self {
            path: arenas.path().display().to_string(),
            media: media.to_owned(),
            has_memtables: !arenas.is_beside_log(),
            bytes: geometry.chunks() * geometry.chunk_bytes,
            free_bytes: region.chunks().free_chunks() * geometry.chunk_bytes,
            lines: counts.lines,
            fences: counts.fences,
        }
    }
}
