//! The sizes that slots have: a ladder whose steps are an eighth, and a sixteenth from 512 bytes
//! up, so that a record wastes a few per cent of its slot and seldom more than a tenth.
//!
//! ```text
//!   32 36 40 .. 60 | 64 72 .. 120 | 128 .. | 256 .. | 512 544 .. 992 | 1024 1088 .. | 2048 ..
//!   4096 4608 .. multiples of 512, by a sixteenth of the power of two below
//! ```
//!
//! 1. The ladder is fixed. A setting decides only how far up it goes ([`SizeClasses::new`]), so
//!    slabs made under another setting have a class too.
//! 2. Each rung is above the one before; above a page each is a multiple of the sector, so that a
//!    slot shares at most its first and last page with others.
//! 3. The largest slot is an eighth of the longest slab. A record that is larger gets a slab of its
//!    own, with one slot ([`crate::SlabShape::single`]).
//! 4. Where slabs may be of many lengths, a few records of a size get slots of the next of four
//!    sizes to a power of two, so that a batch touches few slabs.
//!
//! Plain values; any thread.

/// Smallest slab.
pub const SLAB_BYTES_MIN: u64 = 64 << 10;
/// Largest slab.
pub const SLAB_BYTES_MAX: u64 = 32 << 20;

const SLOT_BYTES_MIN: u32 = 32;
/// From here on the steps are finer.
const FINE_FROM: u32 = 512;
/// From here on slots are multiples of a sector.
const PAGED_FROM: u32 = 4096;
const SECTOR_BYTES: u32 = 512;
/// Sizes from a power of two to the next that serve few records.
const SHARED_STEPS: u32 = 4;
/// Largest slots of a slab's length.
pub(crate) const SLOTS_MIN: u64 = 8;

/// A rung of the ladder, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeClass(pub u8);

/// The sizes that slots have in new slabs of one length.
#[derive(Clone, Debug)]
pub struct SizeClasses {
    slab_bytes: u64,
    ladder: Vec<u32>,
    /// How many rungs of the ladder new slabs have.
    usable: usize,
}

impl SizeClasses {
    /// The classes of slabs of `slab_bytes`, which is cut to a multiple of a page between
    /// [`SLAB_BYTES_MIN`] and [`SLAB_BYTES_MAX`].
    pub fn new(slab_bytes: u64) -> Self {
        let slab_bytes = slab_bytes.clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX) / 4096 * 4096;
        let mut ladder = Vec::with_capacity(256);
        let mut slot_bytes = SLOT_BYTES_MIN;
        while u64::from(slot_bytes) <= SLAB_BYTES_MAX / SLOTS_MIN {
            ladder.push(slot_bytes);
            slot_bytes += step(slot_bytes);
        }
        let usable = ladder.partition_point(|bytes| u64::from(*bytes) <= slab_bytes / SLOTS_MIN);
        Self { slab_bytes, ladder, usable }
    }

    /// Length of a new slab, in bytes.
    pub fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }

    /// The class of the smallest slot that takes a record of so many bytes
    /// ([`crate::record_bytes`]: header, key and value); none where no slot does.
    pub fn class_of(&self, record_bytes: u64) -> Option<SizeClass> {
        let rung = self.ladder.partition_point(|bytes| u64::from(*bytes) < record_bytes);
        (rung < self.usable).then_some(SizeClass(rung as u8))
    }

    /// The class whose slots serve records of `class` where there are few of them: the next whose
    /// slots are a multiple of a quarter of the power of two below; the same where there is none.
    pub(crate) fn shared(&self, class: SizeClass) -> SizeClass {
        let slot_bytes = self.slot_bytes(class);
        let quarter = (1 << slot_bytes.ilog2()) / SHARED_STEPS;
        let shared = self.class_with(slot_bytes.next_multiple_of(quarter));
        shared.filter(|shared| usize::from(shared.0) < self.usable).unwrap_or(class)
    }

    /// The class whose slots are exactly so large, in slabs of any length.
    pub fn class_with(&self, slot_bytes: u32) -> Option<SizeClass> {
        self.ladder.binary_search(&slot_bytes).ok().map(|rung| SizeClass(rung as u8))
    }

    /// The class that slabs of a single record count as.
    pub(crate) fn largest(&self) -> SizeClass {
        SizeClass((self.ladder.len() - 1) as u8)
    }

    /// Bytes of a slot of the class.
    pub fn slot_bytes(&self, class: SizeClass) -> u32 {
        self.ladder[usize::from(class.0)]
    }

    /// The largest record that has a slot, in bytes.
    pub fn record_bytes_max(&self) -> u64 {
        u64::from(self.ladder[self.usable - 1])
    }

    /// All rungs of the ladder.
    pub fn len(&self) -> usize {
        self.ladder.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// From a slot of `slot_bytes` to the next larger.
fn step(slot_bytes: u32) -> u32 {
    let power = 1 << slot_bytes.ilog2();
    match slot_bytes {
        PAGED_FROM.. => (power / 16).max(SECTOR_BYTES),
        FINE_FROM.. => power / 16,
        _ => power / 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_gets_the_smallest_slot_that_takes_it_and_wastes_little() {
        let classes = SizeClasses::new(1 << 20);
        assert_eq!(classes.record_bytes_max(), 128 << 10);
        assert!(classes.len() <= 256, "a class is a byte");
        for bytes in 33..=classes.record_bytes_max() {
            let class = classes.class_of(bytes).unwrap();
            let slot = u64::from(classes.slot_bytes(class));
            assert!(slot >= bytes && u64::from(classes.slot_bytes(SizeClass(class.0 - 1))) < bytes);
            let part = if (512..4096).contains(&bytes) || bytes > 8192 { 16 } else { 8 };
            assert!((slot - bytes) * part <= bytes.max(512), "{bytes} in {slot}");
            assert!(slot <= 4096 || slot.is_multiple_of(512));
            assert_eq!(classes.class_with(slot as u32), Some(class));
        }
        assert_eq!(classes.class_of((128 << 10) + 1), None);
        assert_eq!(classes.class_of(0), Some(SizeClass(0)));
    }

    #[test]
    fn few_records_share_one_of_four_sizes_to_a_power_of_two() {
        let classes = SizeClasses::new(1 << 20);
        let mut shared = Vec::new();
        for bytes in 1..=classes.record_bytes_max() {
            let class = classes.class_of(bytes).unwrap();
            let slot = classes.slot_bytes(classes.shared(class));
            let own = classes.slot_bytes(class);
            assert!(slot >= own && slot - own < slot / 4, "{own} in {slot}");
            shared.push(slot);
        }
        shared.dedup();
        assert_eq!(shared[..6], [32, 40, 48, 56, 64, 80]);
        assert_eq!(shared.len(), 4 * 12 + 1, "from 32 bytes to 128 KiB");
    }

    #[test]
    fn the_length_of_slabs_is_cut_to_what_is_allowed_and_moves_only_the_top() {
        let (small, large) = (SizeClasses::new(1), SizeClasses::new(u64::MAX));
        assert_eq!((small.slab_bytes(), large.slab_bytes()), (SLAB_BYTES_MIN, SLAB_BYTES_MAX));
        assert_eq!((small.record_bytes_max(), large.record_bytes_max()), (8192, 4 << 20));
        assert_eq!(small.class_with(4 << 20), large.class_of(4 << 20));
        assert_eq!(SizeClasses::new(100_000).slab_bytes(), 98_304);
    }
}
