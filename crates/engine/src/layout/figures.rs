//! What a layout keeps and takes beside tables, in figures.

use thermocline_device::Error as DeviceError;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_slab::{FreesHeld, LiveSlots};

/// What a layout keeps beside tables at one moment, held for a copy of it.
#[derive(Debug)]
pub(crate) struct Held {
    pub slots: LiveSlots,
    /// At most so many slots hold a version that is not the newest of its key in slots; none where
    /// there are no slots.
    pub older_versions: Option<u64>,
    pub last_sequence: Sequence,
    /// Slots that are freed from here on keep their records.
    pub frees: Option<FreesHeld>,
}

/// What slots and tables of a tier hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    pub records: u64,
    pub slot_bytes: u64,
    pub table_bytes: u64,
    /// Of the tables' bytes, as estimated.
    pub dead_bytes: u64,
}

/// Memory that a layout takes beside memtables, block cache and open tables, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LayoutMemory {
    pub merge_bytes: u64,
    pub slot_index_bytes: u64,
    pub record_cache_bytes: u64,
    pub popularity_bytes: u64,
}

/// What waits in a layout.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LayoutActivity {
    /// Records that wait to be copied up to the fast tier.
    pub promotions: u64,
    /// Copies that memory gave up and that wait for a slot.
    pub spills: u64,
}

/// What a check of the records beside tables found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub entries: u64,
    pub problems: Vec<(FileNumber, DeviceError)>,
}
