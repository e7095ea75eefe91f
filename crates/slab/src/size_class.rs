//! The sizes that slots have: a ladder whose steps are a sixty-fourth, where that is not less than
//! four bytes or, above a page, a sector. A record wastes one per cent of its slot, and of a small
//! one two bytes.
//!
//! ```text
//!   32 36 .. 60 | 64 68 .. | 128 132 .. | 256 260 .. | 512 520 .. | 1024 1040 .. | 2048 2080 ..
//!   4096 4608 .. 32768 in multiples of 512 | 33280 .. and on by a 64th of the power of two below
//! ```
//!
//! 1. The ladder is fixed. A setting decides only how far up it goes ([`SizeClasses::new`]), so
//!    slabs made under another setting have a class too.
//! 2. Each rung is above the one before; above a page each is a multiple of the sector, so that a
//!    slot shares at most its first and last page with others.
//! 3. The largest slot is an eighth of the longest slab. A record that is larger gets a slab of its
//!    own, with one slot ([`crate::SlabShape::single`]).
//! 4. A slab is of one size, so a rung is for a size that most records nearby have. The others get
//!    *coarse* slots, of every eighth of a power of two, from 512 bytes up of every sixteenth:
//!    there are not more than two sizes of slot for each of these steps.
//! 5. Where slabs may be of many lengths, a few records of a size get slots of the next of four
//!    sizes to a power of two, so that a batch touches few slabs.
//!
//! Plain values; any thread.

/// Smallest slab.
pub const SLAB_BYTES_MIN: u64 = 64 << 10;
/// Largest slab.
pub const SLAB_BYTES_MAX: u64 = 32 << 20;

const SLOT_BYTES_MIN: u32 = 32;
/// Steps from a power of two to the next, and bytes that a step has at least.
const STEPS: u32 = 64;
const STEP_BYTES_MIN: u32 = 4;
/// Steps between coarse sizes, and from where on there are more.
const COARSE_STEPS: u32 = 8;
const COARSE_STEPS_MORE: u32 = 16;
const COARSE_MORE_FROM: u32 = 512;
/// From here on slots are multiples of a sector.
const PAGED_FROM: u32 = 4096;
const SECTOR_BYTES: u32 = 512;
/// Sizes from a power of two to the next that serve few records.
const SHARED_STEPS: u32 = 4;
/// Largest slots of a slab's length.
pub(crate) const SLOTS_MIN: u64 = 8;

/// A rung of the ladder, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeClass(pub u16);

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
        let mut ladder = Vec::with_capacity(1024);
        let mut slot_bytes = SLOT_BYTES_MIN;
        while is_rung(slot_bytes) {
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
        (rung < self.usable).then_some(SizeClass(rung as u16))
    }

    /// The class whose slots serve records of `class` where most nearby have other sizes: the next
    /// coarse one; the same where there is none.
    pub(crate) fn coarse(&self, class: SizeClass) -> SizeClass {
        self.next_with(class, coarse_step(self.slot_bytes(class)))
    }

    /// The class whose slots serve records of `class` where there are few of them: the next whose
    /// slots are a multiple of a quarter of the power of two below; the same where there is none.
    pub(crate) fn shared(&self, class: SizeClass) -> SizeClass {
        self.next_with(class, power(self.slot_bytes(class)) / SHARED_STEPS)
    }

    /// The class from `class` on whose slots are a multiple of `step`.
    fn next_with(&self, class: SizeClass, step: u32) -> SizeClass {
        let next = self.class_with(self.slot_bytes(class).next_multiple_of(step));
        next.filter(|next| usize::from(next.0) < self.usable).unwrap_or(class)
    }

    /// The class whose slots are exactly so large, in slabs of any length.
    pub fn class_with(&self, slot_bytes: u32) -> Option<SizeClass> {
        self.ladder.binary_search(&slot_bytes).ok().map(|rung| SizeClass(rung as u16))
    }

    /// The class that slabs of a single record count as.
    pub(crate) fn largest(&self) -> SizeClass {
        SizeClass((self.ladder.len() - 1) as u16)
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

/// The power of two at or below.
fn power(slot_bytes: u32) -> u32 {
    1 << slot_bytes.ilog2()
}

/// Bytes that a step has at least where slots have `slot_bytes`.
fn step_min(slot_bytes: u32) -> u32 {
    if slot_bytes < PAGED_FROM { STEP_BYTES_MIN } else { SECTOR_BYTES }
}

/// From a slot of `slot_bytes` to the next larger.
fn step(slot_bytes: u32) -> u32 {
    (power(slot_bytes) / STEPS).max(step_min(slot_bytes))
}

/// From a coarse slot of about `slot_bytes` to the next larger.
fn coarse_step(slot_bytes: u32) -> u32 {
    let steps = if slot_bytes < COARSE_MORE_FROM { COARSE_STEPS } else { COARSE_STEPS_MORE };
    (power(slot_bytes) / steps).max(step_min(slot_bytes))
}

/// Some class has slots of `slot_bytes`.
pub(crate) fn is_rung(slot_bytes: u32) -> bool {
    (SLOT_BYTES_MIN..=(SLAB_BYTES_MAX / SLOTS_MIN) as u32).contains(&slot_bytes)
        && slot_bytes.is_multiple_of(step(slot_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_gets_the_smallest_slot_that_takes_it_and_wastes_little() {
        let classes = SizeClasses::new(1 << 20);
        assert_eq!(classes.record_bytes_max(), 128 << 10);
        for bytes in 33..=classes.record_bytes_max() {
            let class = classes.class_of(bytes).unwrap();
            let slot = u64::from(classes.slot_bytes(class));
            assert!(slot >= bytes && u64::from(classes.slot_bytes(SizeClass(class.0 - 1))) < bytes);
            let least = if slot > 4096 { 512 } else { 4 };
            assert!(
                slot - bytes < (bytes / 64).next_power_of_two().max(least),
                "{bytes} in {slot}"
            );
            assert!(slot <= 4096 || slot.is_multiple_of(512));
            assert_eq!(classes.class_with(slot as u32), Some(class));
        }
        assert_eq!(classes.class_of((128 << 10) + 1), None);
        assert_eq!(classes.class_of(0), Some(SizeClass(0)));
        assert_eq!(classes.slot_bytes(classes.class_of(1048).unwrap()), 1056);
    }

    #[test]
    fn the_sizes_of_slabs_made_before_there_were_finer_steps_are_the_coarse_ones() {
        let classes = SizeClasses::new(SLAB_BYTES_MAX);
        let mut before = vec![];
        let mut slot_bytes = 32u32;
        while slot_bytes <= 4 << 20 {
            before.push(slot_bytes);
            let power = 1 << slot_bytes.ilog2();
            slot_bytes += match slot_bytes {
                4096.. => (power / 16).max(512),
                512.. => power / 16,
                _ => power / 8,
            };
        }
        let all = (0..classes.len() as u16).map(SizeClass);
        let mut coarse: Vec<_> =
            all.clone().map(|class| classes.slot_bytes(classes.coarse(class))).collect();
        coarse.dedup();
        assert_eq!(coarse, before);
        for class in all {
            let [own, coarse] = [class, classes.coarse(class)].map(|c| classes.slot_bytes(c));
            assert!(is_rung(own) && coarse >= own && (coarse - own) * 8 <= own, "{own}: {coarse}");
        }
        assert!(!is_rung(28) && !is_rung(34) && !is_rung(1048) && !is_rung((4 << 20) + (64 << 10)));
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
