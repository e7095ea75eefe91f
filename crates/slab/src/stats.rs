//! Figures about slabs, as of one moment. Plain values.

use crate::size_class::SizeClass;

/// The slabs of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassStats {
    /// The class.
    pub class: SizeClass,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// How many slabs there are.
    pub slabs: u64,
    /// Slots of all of them.
    pub slots: u64,
    /// Slots with a live record.
    pub live: u64,
    /// Slots that can be given out.
    pub free: u64,
    /// Slots of reservations that are not committed.
    pub reserved: u64,
    /// Slots that were freed and are held back; see [`crate::Slabs::delay_slot_reuse`].
    pub held: u64,
    /// Slabs without any record.
    pub empty_slabs: u64,
    /// Files of the slabs, in bytes.
    pub file_bytes: u64,
    /// What the records of the class take of a slot on average, in bytes: of those written or
    /// scanned since opening. The slot's size where there was none, and for slabs of a single
    /// record, which waste less than a page.
    pub record_bytes_mean: u64,
}

impl ClassStats {
    /// Bytes of live slots that their records do not use; an estimate from the mean.
    pub fn waste_bytes(&self) -> u64 {
        self.live * u64::from(self.slot_bytes).saturating_sub(self.record_bytes_mean)
    }
}

/// All slabs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabStats {
    /// Classes that have a slab, smallest slots first.
    pub classes: Vec<ClassStats>,
    /// Files of all slabs, in bytes; slabs being made included.
    pub file_bytes: u64,
    /// What they may take.
    pub limit_bytes: u64,
    /// A guard keeps slots that are freed from being given out.
    pub are_frees_held: bool,
}

/// Reads since opening of what writes had to keep: pages that they share with other records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptReads {
    /// How many.
    pub reads: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl SlabStats {
    /// Bytes of slots with a live record.
    pub fn bytes_live(&self) -> u64 {
        self.sum(|class| class.live * u64::from(class.slot_bytes))
    }

    /// Of these, bytes that no record uses; an estimate.
    pub fn waste_bytes(&self) -> u64 {
        self.sum(ClassStats::waste_bytes)
    }

    /// Bytes of slots that can be given out.
    pub fn bytes_free(&self) -> u64 {
        self.sum(|class| class.free * u64::from(class.slot_bytes))
    }

    /// There are slabs without any record.
    pub fn has_empty_slabs(&self) -> bool {
        self.classes.iter().any(|class| class.empty_slabs > 0)
    }

    fn sum(&self, of: impl Fn(&ClassStats) -> u64) -> u64 {
        self.classes.iter().map(of).sum()
    }
}
